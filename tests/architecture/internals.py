"""Which modules the tests import that no user would: each for a reason, and for no other."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import sources

PUBLIC = {  # what a user imports, or one who writes a solver: CONTRIBUTING.md
    "biloop", "biloop.data", "biloop.estimate", "biloop.problems", "biloop.prox",
    "biloop.schedules", "biloop.schemes", "biloop.sklearn", "biloop.theory", "biloop.torch",
    "biloop.theory.lemmas", "biloop.theory.lower_bound", "biloop.theory.sampled_rates",
    "biloop.vectors", "biloop.oracles", "biloop.linear.base", "biloop.loops.iteration",
    "biloop.methods.base",
}  # fmt: skip
REASONS = {
    "biloop.schedules.arguments": "numbers are written alike everywhere; what is refused, and how",
    "biloop.cli": "commands run in the process of the tests, which saves seconds each time",
    "biloop.comparison": "a comparison takes half a minute: its parts are given runs made up",
    "biloop.compilation": "what is compiled when, and what is kept, cannot be seen from outside",
    "biloop.data": "files of every format are made, and broken, on purpose",
    "biloop.estimate.sampling": "a bound from below, held against a third derivative known",
    "biloop.samples.estimators": "what an estimator says that it evaluated",
    "biloop.inner.kinks": "what the program of g says of kinks, without a run that ends at one",
    "biloop.linear.conjugate": "systems inside of Newton's method",
    "biloop.loops.adaptive": "what adaptive loops know is given to them",
    "biloop.methods.derivatives": "how many bytes are free is made up",
    "biloop.methods.reference": "who judges the others is judged as well",
    "biloop.methods.unroll_bytes": "bytes as predicted, beside those of the compiler",
    "biloop.outer": "any outer step from what solve is given",
    "biloop.paper": "the study of the paper has no public name but the command",
    "biloop.problems": "problems as they are shipped, and the draws they are made of",
    "biloop.report": "a page without a comparison that takes half a minute",
    "biloop.run": "files, fingerprints and programs of a run are damaged and compared",
    "biloop.sklearn": "folds and what holds penalties, without a fit that takes seconds",
    "biloop.sweeps": "which cells run together cannot be seen from outside",
    "biloop.theory": "the algebra below the statements",
}


def imported(root: Path) -> Iterator[tuple[str, str]]:
    """Where a test imports something of ours, and what: the module, or the room it is in."""
    for path, tree in sources(root / "tests"):
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                while not _is_module(root, name) and "." in name:
                    name = name.rpartition(".")[0]
                if name.partition(".")[0] == "biloop":
                    yield f"{path.relative_to(root)}:{node.lineno}", name


def _is_module(root: Path, name: str) -> bool:
    place = root.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").exists()


def without_reason(root: Path) -> list[str]:
    """Imports of what is neither public nor has a reason, and reasons that nobody needs."""
    found, used = [], set()
    for where, module in imported(root):
        if module in PUBLIC:
            continue
        reasons = {room for room in REASONS if f"{module}.".startswith(f"{room}.")}
        used |= reasons
        if not reasons:
            found.append(f"{where} {module}")
    return found + [f"nobody imports {room}" for room in REASONS if room not in used]
