"""Constants: validation, κ, and which smoothness of Φ is the right one."""

import ast
import math
import re
from pathlib import Path

import pytest
from hypothesis import given

import biloop.theory as theory
from biloop.theory import Constants, Start

from .strategies import constants, many


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0.0, 0.0, 1.0, 1.0), "L must be a finite number > 0, got 0.0"),
        ((1.0, -1.0, 1.0, 1.0), "mu must be a finite number > 0, got -1.0"),
        ((1.0, 2.0, 1.0, 1.0), "mu = 2.0 > L = 1.0"),
        ((math.inf, 1.0, 1.0, 1.0), "L must be a finite number > 0, got inf"),
        ((1.0, math.nan, 1.0, 1.0), "mu must be a finite number > 0, got nan"),
        ((1.0, 1.0, -0.5, 1.0), "rho must be a finite number >= 0, got -0.5"),
        ((1.0, 1.0, 1.0, math.nan), "M must be a finite number >= 0, got nan"),
    ],
)
def test_bad_constants_are_refused(arguments: tuple[float, ...], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        Constants(*arguments)


def test_bad_start_is_refused() -> None:
    with pytest.raises(ValueError, match="gap must be a finite number >= 0, got -1"):
        Start(gap=-1.0, y_distance=0.0)


def test_bad_parameters_are_refused() -> None:
    c = Constants(1.0, 0.1, 1.0, 1.0)
    with pytest.raises(ValueError, match="Q must be an integer >= 1, got 0"):
        theory.C_Q(c, 0.5, 0)
    with pytest.raises(ValueError, match=r"Q must be an integer >= 1, got 1\.5"):
        theory.C_Q(c, 0.5, 1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="eta must be at most 1/mu"):
        theory.C_Q(c, 11.0, 1)
    with pytest.raises(ValueError, match="alpha must be less than 1/mu"):
        theory.w_N(c, 1, 10.0)
    with pytest.raises(ValueError, match="beta must be"):
        theory.theorem2(c, Start(1.0, 1.0), 50, 1, 1.0, 1.0, 1.0, beta=0.0)


def test_constants_are_values() -> None:
    c = Constants(2, 1, 0, 3)
    assert c == Constants(2.0, 1.0, 0.0, 3.0)
    assert c.kappa == 2.0
    with pytest.raises(AttributeError):
        c.L = 3.0  # type: ignore[misc]


@many
@given(constants())
def test_smoothness_is_what_the_chain_rule_gives(c: Constants) -> None:
    # ∇Φ = ∇_x f(z*) − J(z*) v*: the change of each factor per unit of x, times the others
    path = 1.0 + c.kappa
    adjoint = (c.L / c.mu + c.rho * c.M / c.mu**2) * path
    expected = c.L * path + c.rho * path * c.M / c.mu + c.L * adjoint
    assert math.isclose(c.L_Phi, expected, rel_tol=1e-12)


@many
@given(constants())
def test_three_smoothness_constants(c: Constants) -> None:
    # printed and corrected differ by ρM(M−1)/μ, and the slack 1 + κ − √(1+κ²) covers it for M < 1
    assert c.L_Phi_sharp <= c.L_Phi
    assert c.L_Phi_sharp <= c.L_Phi_printed
    difference = c.rho * c.M * (c.M - 1.0) / c.mu
    assert math.isclose(c.L_Phi_printed, c.L_Phi + difference, rel_tol=1e-12)


def test_smoothness_is_homogeneous_where_the_printed_one_is_not() -> None:
    # measure y and x in units ten times smaller: second derivatives fall by 100, so must L_Φ
    c, scaled = Constants(1.0, 0.1, 1.0, 1.0), Constants(1e-2, 1e-3, 1e-3, 1e-1)
    assert math.isclose(scaled.L_Phi, 1e-2 * c.L_Phi, rel_tol=1e-12)
    assert not math.isclose(scaled.L_Phi_printed, 1e-2 * c.L_Phi_printed, rel_tol=1e-3)


def test_theory_imports_nothing_else_of_ours() -> None:
    allowed = {"math", "dataclasses", "collections", "types", "typing", "operator", "numpy"}
    assert theory.__file__ is not None
    for path in Path(theory.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            else:
                continue
            others = {name for name in names if not name.startswith("biloop.theory")}
            assert {name.split(".")[0] for name in others} <= allowed, path


def test_every_public_name_exists() -> None:
    assert all(hasattr(theory, name) for name in theory.__all__)
    assert len(set(theory.__all__)) == len(theory.__all__)
