"""The layout: who imports whom, who differentiates, how long things are, what is public.

Each rule is a function in tests/architecture that lists what breaks it. Here they are applied to
this tree, and to a copy in which violations are planted.
"""

import importlib
import pkgutil
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import biloop
from tests.architecture import shape
from tests.architecture.derivatives import uncounted
from tests.architecture.imports import broken_contracts
from tests.architecture.internals import without_reason

ROOT = Path(__file__).parents[1]

RULES = {
    "imports point to the left": broken_contracts,
    "only oracles differentiate": lambda root: uncounted(root / "biloop"),
    "files are short": shape.long_files,
    "functions fit a screen": shape.long_functions,
    "files say why they exist": shape.silent_files,
    "helpers live beside their users": shape.bad_names,
    "no function hides a module": shape.hidden_modules,
    "tests reach what is public by public names": without_reason,
}


@pytest.mark.parametrize("rule", RULES)
def test_this_tree(rule):
    assert not RULES[rule](ROOT)


def test_about_twenty_entries_at_the_top():
    assert len(shape.top_entries(ROOT)) <= shape.TOP_ENTRIES


def test_every_module_can_be_reached_by_its_name():
    """`import biloop.sweeps.table` and then `biloop.sweeps.table.…`, for each module there is."""
    for found in pkgutil.walk_packages(biloop.__path__, "biloop."):
        if found.name == "biloop.torch" and find_spec("torch") is None:
            continue  # says what to install: tests/test_torch.py
        parent, _, name = found.name.rpartition(".")
        module = importlib.import_module(found.name)
        assert getattr(sys.modules[parent], name) is module, f"{found.name} is hidden"


def test_public_names_exist_and_say_what_they_are():
    assert len(set(biloop.__all__)) == len(biloop.__all__)
    for name in biloop.__all__:
        assert (getattr(biloop, name).__doc__ or "").strip(), name


# --- the rules can fail -------------------------------------------------------------------------

DERIVATIVES = {
    "name": "from jax import grad\n",
    "alias": "from jax import grad as slope\n",
    "attribute": "import jax\njax.vjp(problem.inner, x, y)\n",
    "module alias": "import jax as j\nj.value_and_grad(f)\n",
    "inner module": "from jax._src.api import jacfwd\n",
    "string": 'import jax\ngetattr(jax, "grad")(f)\n',
    "dictionary": 'import jax\nvars(jax)["hessian"](f)\njax.__dict__["jvp"](f)\n',
    "assignment": "import jax\nlibrary = jax\nlibrary.linearize(f, x)\n",
    "equinox": "import equinox as eqx\neqx.filter_value_and_grad(f)\n",
    "equinox name": "from equinox import filter_vjp as pull\n",
    "star": "from jax import *\n",
    "inside a function": "def f():\n    import jax\n    return jax.linear_transpose\n",
    "no call": "import jax\ntransforms = [jax.jacrev]\n",
}


@pytest.mark.parametrize("spelling", DERIVATIVES)
def test_a_derivative_is_found_in_any_spelling(tmp_path, spelling):
    (tmp_path / "planted.py").write_text(DERIVATIVES[spelling], encoding="utf-8")
    (tmp_path / "oracles.py").write_text(DERIVATIVES[spelling], encoding="utf-8")
    found = uncounted(tmp_path, allowed={})
    assert found
    assert all(where.startswith("planted.py:") for where in found)


def test_an_allowance_covers_its_names_only_and_does_not_outlive_them(tmp_path):
    (tmp_path / "planted.py").write_text("import jax\njax.vjp, jax.grad\n", encoding="utf-8")
    found = uncounted(tmp_path, allowed={"planted.py": {"vjp", "jvp"}})
    assert found == [
        "planted.py:2 grad",
        "planted.py is allowed jvp, which it does not use",
    ]


def test_numpys_gradient_and_an_objects_own_hessian_are_not_derivatives(tmp_path):
    text = (
        "import numpy as np\nclass P:\n    def f(self):\n        return self.hessian, np.gradient\n"
    )
    (tmp_path / "planted.py").write_text(text, encoding="utf-8")
    assert not uncounted(tmp_path, allowed={})


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of what the rules read, to be broken and mended."""
    root = tmp_path_factory.mktemp("copy")
    for folder in ("biloop", "tests", "tools"):
        left_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, root / folder, ignore=left_out)
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


# What is added to a file, and the import that must be complained of.
IMPORTS = [
    ("theory/planted.py", "import biloop", "biloop"),
    ("theory/tables.py", "from biloop.problem import Problem", "biloop.problem"),
    ("data/planted.py", "from biloop import problem", "biloop.problem"),
    ("linear/planted.py", "from ..run.solve import solve", "biloop.run.solve"),
    ("vectors.py", "from . import problem", "biloop.problem"),
    ("oracles.py", "def f():\n    import biloop.linear.cg", "biloop.linear.cg"),
    ("problem/rows.py", "import biloop.oracles as other", "biloop.oracles"),
    ("outer/planted.py", "from biloop.methods import AID", "biloop.methods"),
    ("report/planted.py", "from biloop.run.solve import solve", "biloop.run.solve"),
    ("report/face.py", "from biloop import solve", "biloop"),
    ("comparison/planted.py", "import biloop.report.output", "biloop.report.output"),
    ("sweeps/planted.py", "from biloop.paper import work", "biloop.paper.work"),
    ("paper/planted.py", "import biloop.cli.main", "biloop.cli.main"),
    ("__init__.py", "from biloop.paper import runner", "biloop.paper.runner"),
]


@pytest.fixture
def plant(copy):
    """Add text to a file of the copy, or make it, until the test is over."""
    planted = {}

    def write(file, text, first='"""Planted."""\n'):
        path = copy / file
        before = path.read_text(encoding="utf-8") if path.exists() else None
        planted.setdefault(path, before)
        path.write_text(f"{first if before is None else before}{text}\n", encoding="utf-8")

    yield write
    for path, text in planted.items():
        path.unlink() if text is None else path.write_text(text, encoding="utf-8")


def test_planted_imports_are_caught(copy, plant):
    """All in one copy: a contract names each import at fault, so that one run shows them all."""
    before = set(broken_contracts(copy))
    for file, text, _ in IMPORTS:
        plant(f"biloop/{file}", text)
    for_types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import biloop.cli.cache"
    plant("biloop/schedules/forms.py", for_types)
    plant("biloop/newcomer.py", "")
    found = set(broken_contracts(copy)) - before
    for file, _, imported in IMPORTS:
        module = "biloop." + file.removesuffix(".py").replace("/", ".")
        edge = f"{module.removesuffix('.__init__')} -> {imported}"
        assert edge in found
        found.discard(edge)
    assert found == {"biloop.newcomer has no place in the flow"}


@pytest.mark.parametrize(
    ("rule", "file", "text"),
    [
        ("files are short", "biloop/linear/planted.py", "x = 1\n" * 665),
        ("files are short", "tests/test_planted.py", "x = 1\n" * 405),
        ("functions fit a screen", "biloop/linear/planted.py", "def f(x):\n" + "    x += 1\n" * 61),
        (
            "functions fit a screen",
            "biloop/linear/planted.py",
            "class A:\n def f(x):\n" + "  x += 1\n" * 61,
        ),
        (
            "only oracles differentiate",
            "biloop/linear/planted.py",
            "import jax\njax.vjp(problem.inner)",
        ),
        ("only oracles differentiate", "biloop/methods/unroll.py", "jax.grad(f)"),
        ("helpers live beside their users", "biloop/run/utils.py", ""),
        ("no function hides a module", "biloop/sweeps/__init__.py", "def table():\n    pass"),
        (
            "no function hides a module",
            "biloop/__init__.py",
            "from biloop.linear.cg import CG as linear",
        ),
        (
            "no function hides a module",
            "biloop/__init__.py",
            "from biloop.theory import rates as schemes",
        ),
        ("no function hides a module", "biloop/__init__.py", "run: int = 3"),
        (
            "tests reach what is public by public names",
            "tests/test_planted.py",
            "from biloop.inner.newton_cg import NewtonCG",
        ),
        (
            "tests reach what is public by public names",
            "tests/test_planted.py",
            "def test():\n    import biloop.linear.cg",
        ),
    ],
)
def test_planted_violations_are_caught(copy, plant, rule, file, text):
    before = RULES[rule](copy)
    plant(file, text)
    assert len(RULES[rule](copy)) == len(before) + 1


def test_a_file_without_docstring_is_caught(copy, plant):
    before = set(shape.silent_files(copy))
    planted = {
        "biloop/linear/planted.py": "x = 1",
        "biloop/empty.py": "",
        "tests/test_p.py": "x = 1",
    }
    for file, text in planted.items():
        plant(file, text, first="")
    assert set(shape.silent_files(copy)) - before == set(planted)
