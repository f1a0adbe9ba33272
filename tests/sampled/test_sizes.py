"""A scheme is a few lines, an estimator a page: code, without imports, comments and docstrings."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

import biloop

PACKAGE = Path(biloop.__file__).parent
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
METHODS = (
    "directions", "compact", "single_loop", "sampled_aid", "series", "penalty", "barrier",
    "evolution", "matrices",
)  # fmt: skip
ESTIMATORS = list(PACKAGE.glob("samples/estimators/*.py"))
FAMILY = [
    *PACKAGE.glob("samples/*.py"),
    *ESTIMATORS,
    *(PACKAGE / f"methods/{name}.py" for name in METHODS),
]


def lines(text):
    """The numbers of the lines that are code."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = {n for t in tokens if t.type not in LAYOUT for n in range(t.start[0], t.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            found -= set(range(node.lineno, node.end_lineno + 1))
    return found - {len(text.splitlines()) + 1}


def test_what_is_counted():
    text = '"""Why."""\nimport os\n\n# how\ndef f():\n    """What."""\n    return (\n1\n    )\n'
    assert lines(text) == {5, 7, 8, 9}


@pytest.mark.parametrize(
    "path", list(PACKAGE.glob("samples/estimators/*.py")), ids=lambda p: p.stem
)
def test_an_estimator_is_at_most_forty_lines(path):
    assert len(lines(path.read_text(encoding="utf-8"))) <= 40


@pytest.mark.parametrize("name", ["sampled", "first_order"])
def test_a_scheme_is_at_most_five_lines(name):
    text = (PACKAGE / f"schemes/{name}.py").read_text(encoding="utf-8")
    code = lines(text)
    for function in ast.parse(text).body:
        if isinstance(function, ast.FunctionDef):
            body = {n for node in function.body for n in range(node.lineno, node.end_lineno + 1)}
            assert len(body & code) <= 5, function.name


def test_the_family_is_short():
    assert sum(len(lines(path.read_text(encoding="utf-8"))) for path in FAMILY) <= 1200
