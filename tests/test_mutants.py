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
    a = a - b
    return helper(a, b, near=a if b else 1 / where(b, b, 7.0))


def kind(value, text):
    sum = isinstance(value, int | float)
    return text + "." if value is None else helper(value, text)


def __repr__():
    return 3
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
    for name in ("mutants", "trials", "bugs"):
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
    refusal = line["if len(values) > most and not value:"]
    last = line["return helper(a, b, near=a if b else 1 / where(b, b, 7.0))"]
    text = line['return text + "." if value is None else helper(value, text)']
    assert changed == {
        *((k, refusal) for k in ("boundary", "comparison", "logic", "dropped sign", "dropped")),
        ("ignored", refusal),  # most is 100, whatever is given
        ("off by one", line["def total(values: list[float], most: int = 100) -> float:"]),
        ("factor", line["result = 0.0"]),
        ("sign", line["result += value"]),
        *((k, line["return max(result, -5.0)"]) for k in ("twin", "factor", "dropped sign")),
        *((k, line["a = a - b"]) for k in ("sign", "dropped term", "not carried")),
        *((k, last) for k in ("arguments", "ignored", "branch", "sign", "dropped term")),
        ("off by one", last),
        ("branch", text),
    } - {("factor", line["result = 0.0"])}  # twice nothing is nothing


def test_what_means_nothing_is_not_planted(tool, toy):
    bugs = sys.modules["bugs"]
    file = toy / "toy" / "sums.py"
    same = bugs.Mutant(file, "sign", 1, 0, 0, b"# a remark\n")
    assert bugs.means_nothing(same)
    assert bugs.means_nothing(same._replace(new=b"def"))  # no program
    assert not bugs.means_nothing(same._replace(new=b"import sys\n"))
    assert not list(bugs.mutants(file.with_name("trace_plot.py")))


def test_a_sample_is_the_same_for_the_same_seed(tool, toy):
    files = [toy / "toy" / "sums.py"]
    assert tool.sample(files, 5, seed=1) == tool.sample(files, 5, seed=1)
    assert tool.sample(files, 5, seed=1) != tool.sample(files, 5, seed=2)
    assert len(tool.sample(files, 99, seed=0)) == len(list(tool.mutants(files[0])))


def test_the_most_telling_tests_per_second_come_first(tool, toy):
    file = toy / "toy" / "sums.py"
    mutant = next(m for m in tool.mutants(file) if m.line == 16)  # result += value
    relevance = tool.Relevance(toy, "toy")

    def ranked(**seconds):
        return relevance.ranked(mutant, lambda test: seconds[Path(test).stem])

    assert ranked(test_sums=1.0, test_others=1.0) == ["tests/test_sums.py"]
    (toy / "tests" / "test_others.py").write_text("# total, of sums\n")
    relevance = tool.Relevance(toy, "toy")
    assert ranked(test_sums=9.0, test_others=9.0)[0] == "tests/test_sums.py"
    assert ranked(test_sums=999.0, test_others=1.0)[0] == "tests/test_others.py"


def test_the_function_around_a_line(tool):
    text = "class A:\n  b = 1\n  def c(self):\n    def d():\n      return 2\n    return d\n"
    names = [tool.function_at(ast.parse(text), line) for line in range(1, 7)]
    assert names == ["", "", "A.c", "A.c.d", "A.c.d", "A.c"]


@pytest.fixture
def suspects(tool, toy, monkeypatch):
    """Four bugs: two are seen by a file that speaks of them, one by another, and one by none."""
    code = "def total(a, b):\n    return a + b\n\ndef unseen(a, b):\n    a *= b\n"
    file = toy / "toy" / "sums.py"
    file.write_text(code, encoding="utf-8")
    (toy / "toy" / "far.py").write_text("def count(n):\n    n += 1\n    return n\n")
    files = [file, toy / "toy" / "far.py"]
    found = [m for each in files for m in tool.mutants(each) if m.kind in {"sign", "dropped term"}]
    monkeypatch.setattr(tool, "sample", lambda *_: found)
    tests = "from toy.sums import total\n\ndef test_broken():\n    assert total(1, 1) == 3\n"
    tests += "\ndef test_total():\n    assert total(1, 2) == 3\n"
    (toy / "tests" / "test_sums.py").write_text(tests)
    hidden = "import importlib\n\ndef test_it():\n"
    hidden += "    assert vars(importlib.import_module('toy.f' + 'ar'))['co' + 'unt'](1) == 2\n"
    (toy / "tests" / "test_others.py").write_text(hidden)
    return file


@pytest.mark.slow
def test_survivors_are_told(tool, toy, suspects, capsys):
    """A test that fails anyway catches nothing; each file has its say at last."""
    code = suspects.read_text(encoding="utf-8")
    survived = tool.main(["--package", "toy", "--jobs", "2", "--root", str(toy)])
    out = capsys.readouterr().out
    assert "Fail without a bug: tests/test_sums.py::test_broken\n" in out
    assert "toy/sums.py:2 (sign): caught by tests/test_sums.py::test_total\n" in out
    assert "toy/sums.py:2 (dropped term): caught by tests/test_sums.py::test_total\n" in out
    assert "2 are left, and planted together\n" in out
    assert "toy/far.py:2 (sign): caught by tests/test_others.py::test_it\n" in out
    assert "toy/sums.py:5 (sign): SURVIVED\n" in out
    assert "    -    a *= b\n    +    a /= b\n" in out
    assert "3 of 4 were caught, 1 survived, 0 undecided" in out
    assert survived == 1
    assert suspects.read_text(encoding="utf-8") == code
    seconds = json.loads((toy / "out" / "seconds.json").read_text(encoding="utf-8"))
    assert set(seconds) == {"tests/test_sums.py", "tests/test_others.py"}


@pytest.mark.slow
def test_all_is_stopped_in_time(tool, toy, suspects, tmp_path):
    """A test that has no end with a bug: undecided if the time is over."""
    endless = "from toy.sums import total\n\ndef test_it():\n    while total(1, 2) != 3: pass\n"
    (toy / "tests" / "test_sums.py").write_text(endless)
    end = time.monotonic() + 600
    court = tool.Court(toy, tmp_path / "copies", 1, end, sys.executable)
    case = tool.Case(tool.sample()[0], ["tests/test_sums.py"])
    court.end = time.monotonic() + 1.0
    with pytest.raises(tool.OutOfTime):
        court.try_each([case], pytest.fail)
    assert not case.caught
    assert tool.describe(case, toy).startswith("toy/sums.py:2 (sign): undecided\n")
    assert time.monotonic() < court.end + 60
