"""docs/theory.md says nothing that does not run or exist."""

import re
from pathlib import Path

import pytest

import biloop.theory as theory
from biloop.theory import lemmas

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")


def test_code_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "docs/theory.md", "exec"), {})


def rows() -> list[list[str]]:
    section = PAGE.split("## 1.")[1].split("## 2.")[0]
    table = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in table[2:]]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_functions_of_the_table_exist(row: list[str]) -> None:
    for name in re.findall(r"`([^`]+)`", row[1]):
        last = name.split(".")[-1]
        homes = (theory, lemmas, theory.Constants, theory.Certificate)
        known = any(hasattr(home, last) for home in homes)
        assert known or last in theory.Constants.__dataclass_fields__, name


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_tests_of_the_table_exist(row: list[str]) -> None:
    for name in re.findall(r"`([^`]+)`", row[2]):
        assert (Path(__file__).parent / f"test_theory_{name}.py").exists(), name
