"""tools/mutants.py plants bugs that matter, and tells which ones a toy package's tests miss."""

import ast
import importlib
import json
import sys
import time
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"

CODE = '''\
"""Sums — with a dash, since offsets are in bytes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    LIMIT: int = 3


def total(values: list[float], most: int = 100) -> float:
    """π ≈ 3.2"""
    result = 0.0
    for value in values:
        if len(values) > most and not value:
            raise ValueError(f"too many: {len(values) + 1}")
        result += value
    return max(result, -5.0)


def unseen(a, b):
    return a - b


def kind(value):
    sum = isinstance(value, int)
    return value
'''
TESTS = """\
import pytest
from toy.sums import total


def test_total():
    assert total([1.0, 2.0]) == 3.0
    assert total([-9.0]) == -5.0


def test_broken_before():
    assert False
"""


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(TOOLS)
    yield importlib.import_module("mutants")
    for name in ("mutants", "trials"):
        sys.modules.pop(name)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # for speed
    for file, text in {
        "toy/__init__.py": "",
        "toy/sums.py": CODE,
        "tests/test_sums.py": TESTS,
        "tests/test_others.py": "def test_it():\n    assert True\n",
        "tests/test_architecture.py": "def test_it():\n    assert 'total' == 'sums'\n",
    }.items():
        path = tmp_path / "mutants" / file  # a name of which only those below the root may speak
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "mutants"


def test_each_change_is_one_place_and_still_a_program(tool, toy):
    found = list(tool.mutants(toy / "toy" / "sums.py"))
    lines = CODE.splitlines()
    for mutant in found:
        ast.parse(mutant.text)
        assert mutant.text != CODE
    changed = {(m.kind, m.line) for m in found}
    line = {text.strip(): number for number, text in enumerate(lines, start=1)}
    assert changed == {
        ("comparison", line["if len(values) > most and not value:"]),
        ("logic", line["if len(values) > most and not value:"]),
        ("dropped sign", line["if len(values) > most and not value:"]),
        ("dropped", line["if len(values) > most and not value:"]),
        ("off by one", line["def total(values: list[float], most: int = 100) -> float:"]),
        ("sign", line["result += value"]),
        ("sign", line["return a - b"]),
        ("twin", line["return max(result, -5.0)"]),
        ("arguments", line["return max(result, -5.0)"]),
        ("factor", line["return max(result, -5.0)"]),
        ("dropped sign", line["return max(result, -5.0)"]),
    }


def test_a_sample_is_the_same_for_the_same_seed(tool, toy):
    files = [toy / "toy" / "sums.py"]
    assert tool.sample(files, 5, seed=1) == tool.sample(files, 5, seed=1)
    assert tool.sample(files, 5, seed=1) != tool.sample(files, 5, seed=2)
    assert len(tool.sample(files, 99, seed=0)) == len(list(tool.mutants(files[0])))


def test_the_most_telling_tests_per_second_come_first(tool, toy):
    file = toy / "toy" / "sums.py"
    mutant = next(m for m in tool.mutants(file) if m.line == 16)  # result += value
    relevance = tool.Relevance(toy, "toy")

    def ranked(seconds, **functions):
        names = {"others": [], "sums": ["total"]} | functions
        known = {
            f"tests/test_{name}.py": tool.Known("", seconds[name], [], {"toy/sums.py": entered})
            for name, entered in names.items()
        }
        return relevance.ranked(mutant, known)

    both = {"others": ["total"]}
    assert ranked({"others": 1.0, "sums": 9.0}) == ["tests/test_sums.py"]
    assert ranked({"others": 1.0, "sums": 9.0}, others=["unseen"]) == ["tests/test_sums.py"]
    assert ranked({"others": 9.0, "sums": 9.0}, **both)[0] == "tests/test_sums.py"
    assert ranked({"others": 1.0, "sums": 999.0}, **both)[0] == "tests/test_others.py"


def test_the_function_around_a_line(tool):
    text = "class A:\n  b = 1\n  def c(self):\n    def d():\n      return 2\n    return d\n"
    names = [tool.function_at(ast.parse(text), line) for line in range(1, 7)]
    assert names == ["", "", "A.c", "A.c.d", "A.c.d", "A.c"]


@pytest.fixture
def planted(tool, toy, monkeypatch):
    """Two bugs: the sum's sign is tested, unseen() is not; one test fails anyway."""
    code = (
        "def total(values):\n    return values[0] + values[-1]\n\ndef unseen(a, b):\n    a *= b\n"
    )
    file = toy / "toy" / "sums.py"
    file.write_text(code, encoding="utf-8")
    monkeypatch.setattr(
        tool, "sample", lambda *_: [m for m in tool.mutants(file) if m.kind == "sign"]
    )
    tests = "from toy.sums import total\n\ndef test_total():\n    assert total([1, 2]) == 3\n"
    broken = "\ndef test_broken():\n    assert total([1]) == 3\n"
    (toy / "tests" / "test_sums.py").write_text(tests.replace("def", broken[1:] + "def", 1))
    return file


def test_survivors_are_told(tool, toy, planted, capsys):
    """A test that fails anyway catches nothing; what a file enters is remembered."""
    code = planted.read_text(encoding="utf-8")
    survived = tool.main(["--package", "toy", "--jobs", "2", "--root", str(toy)])
    out = capsys.readouterr().out
    assert "1 tests fail without a bug: tests/test_sums.py::test_broken" in out
    assert "toy/sums.py:2 (sign): caught by tests/test_sums.py::test_total\n" in out
    assert "toy/sums.py:5 (sign): SURVIVED\n" in out
    assert "    -    a *= b\n    +    a /= b\n" in out
    assert "    no test enters this function\n" in out
    assert "1 of 2 were caught, 1 survived, 0 undecided" in out
    assert survived == 1
    assert planted.read_text(encoding="utf-8") == code
    survey = json.loads((toy / "out" / "survey.json").read_text(encoding="utf-8"))
    functions = {test: tool.Known(*known).functions for test, known in survey.items()}
    assert functions["tests/test_sums.py"]["toy/sums.py"] == ["<module>", "total"]
    assert functions["tests/test_others.py"] == {}


def test_all_is_stopped_in_time(tool, toy, planted, tmp_path):
    """A test that has no end with a bug: undecided if the time is over."""
    endless = "from toy.sums import total\n\ndef test_it():\n    while total([1, 2]) != 3: pass\n"
    (toy / "tests" / "test_sums.py").write_text(endless)
    court = tool.Court(toy, "toy", tmp_path / "copies", jobs=1, end=time.monotonic() + 600)
    known = court.survey(["tests/test_sums.py"])
    case = tool.Case(tool.sample()[0], list(known))
    court.end = time.monotonic() + 1.0
    court.try_all([case], known, pytest.fail)
    assert not case.decided
    assert not case.caught
    assert tool.describe(case, toy).startswith("toy/sums.py:2 (sign): undecided, 1 files left\n")
    assert time.monotonic() < court.end + 60
