"""The layout: who imports whom, how long files are, and that the public names exist."""

import ast
from pathlib import Path

import pytest

import biloop

PACKAGE = Path(biloop.__file__).parent

# A module imports only from modules to its left, and theory nothing of ours.
PIPELINE = [
    "theory",
    "data",
    "matrix_products",
    "vectors",
    "results",
    "schedules",
    "loops",
    "step_size",
    "problem",
    "processes",
    "checksum",
    "shard",
    "oracles",
    "lanczos",
    "inner",
    "linear",
    "newton",
    "hypergradient",
    "outer",
    "base_loop",
    "trace",
    "progress",
    "record",
    "checkpoint",
    "diagnose",
    "solve",
    "sweep",
    "schemes",
    "estimate",
    "problems",
    "load",
    "report",
    "compare",
    "reproduce",
    "commands",
    "cli",
]

FILES = sorted(PACKAGE.rglob("*.py"))


def module_of(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def imported(path):
    """The modules of biloop that a file imports when it runs, not only for type checking."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checking = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if node in checking:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "biloop":
            inside = node.module.split(".")[1:]
            yield from [inside[0]] if inside else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("biloop."))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_to_the_left(path):
    here = module_of(path)
    if here == "__init__":
        return
    assert here in PIPELINE, f"{here} has no place in the pipeline yet"
    for other in imported(path):
        assert other == here or PIPELINE.index(other) < PIPELINE.index(here), (here, other)


def test_only_oracles_differentiate_a_problem():
    """jax.grad and friends outside oracles.py would be a second way to pay for a derivative."""
    names = {"grad", "value_and_grad", "hessian", "jacobian", "jacfwd", "jacrev", "linearize"}
    for path in FILES:
        used = {
            node.attr
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "jax"
        }
        if module_of(path) not in {"oracles"}:
            assert not used & names, path


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_say_why_they_exist(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_public_names():
    for name in biloop.__all__:
        assert hasattr(biloop, name)
    assert not hasattr(biloop, "utils")
