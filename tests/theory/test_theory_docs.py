"""docs/theory.md says nothing that does not run or exist."""

import math
import re
from pathlib import Path

import pytest

import biloop.theory as theory
from biloop.theory import lemmas

from .test_theory_bounds_on_runs import LOOSENESS
from .test_theory_lemmas import REACHES

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


@pytest.mark.parametrize(
    ("statement", "bounds"),
    [
        ("hypergradient error (sketch, step 1)", ["hypergradient error of AID"]),
        ("Lemma 1, adjoint error", ["Lemma 1"]),
        ("Lemma 2, inner error", ["Lemma 2", "inner contraction"]),
        ("Lemma 3, error recursion", ["Lemma 3, one step", "Lemma 3, telescoped"]),
        ("adjoint from zero (proof of Theorem 2)", ["adjoint from zero"]),
        ("Lemma 4, response Jacobian", ["Lemma 4"]),
        ("Lemma 5, ITD error recursion", ["hypergradient error of ITD", "Lemma 5, one step"]),
    ],
)
def test_how_much_of_a_bound_is_reached_is_what_the_lemma_tests_measure(statement, bounds) -> None:
    (found,) = [row[3] for row in rows() if row[0] == statement]
    assert re.findall(r"0\.\d+", found) == [f"{REACHES[bound]:.2f}" for bound in bounds]


@pytest.mark.parametrize(("name", "kappa"), [key for key in LOOSENESS if key[1] < 10])
def test_the_looseness_of_the_bounds_is_what_the_runs_measure(name: str, kappa: float) -> None:
    table = PAGE.split("A run in which it changes")[1].split("Corollary 6 is loose")[0]
    (row,) = [line for line in table.splitlines() if line.startswith(f"| {name} ")]
    cell = row.split("|")[(2.0, 5.0).index(kappa) + 2]
    assert float(cell.split()[0]) == pytest.approx(LOOSENESS[name, kappa], rel=0.06)


@pytest.mark.parametrize(
    ("multiple", "exponent", "constant"), [(1, 2, 96e-2), (2, 1, 96e-4), (3, 0, 96e-6)]
)
def test_the_constant_in_the_length_of_the_n_n_loop(multiple, exponent, constant) -> None:
    """Section 3: the floor of Theorem 3 is 96 κ^{3−c} ε^c for N = c κ ln(κ/ε), here ε = 0.01."""
    kappa, eps = 2.0**12, 0.01
    N = math.ceil(multiple * kappa * math.log(kappa / eps))
    floor = theory.floor_theorem3(theory.Constants(1.0, 1.0 / kappa, 1.0, 1.0), N, 0.5)
    assert floor == pytest.approx(constant * kappa**exponent, rel=0.01)
    assert (floor <= eps) == (multiple == 3)


def test_what_makes_the_start_term_of_corollary_4() -> None:
    """Error 18: δ_0 = Θ(κ⁴) and 1 − τ = Θ(κ⁻¹) give κ⁵, and w = Θ(κ⁷) gives β = Θ(κ⁻⁴)."""
    kappas = [2.0**e for e in range(10, 15)]
    start, found = (
        theory.Start(gap=1.0, y_distance=1.0),
        {"w": [], "delta0": [], "gap": [], "beta": []},
    )
    for kappa in kappas:
        c = theory.Constants(1.0, 1.0 / kappa, 1.0, 1.0)
        at = theory.corollary4(c, start, eps=1e-2)
        found["w"].append(theory.w_theorem2(c, at.N, at.Q, at.alpha, at.eta, at.lam))
        found["delta0"].append(theory.delta0_theorem2(c, at.N, at.Q, at.alpha, at.eta, start))
        found["gap"].append(
            theory.one_minus_tau_theorem2(c, at.N, at.Q, at.alpha, at.eta, at.lam, at.beta)
        )
        found["beta"].append(at.beta)
    slopes = {name: theory.exponent(kappas, values) for name, values in found.items()}
    assert slopes == pytest.approx({"w": 7, "delta0": 4, "gap": -1, "beta": -4}, abs=0.1)
