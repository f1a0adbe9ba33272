"""Theorem 4: the floor, the starts from which it holds at every K, and AID on the same instance."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from biloop.theory import Constants, lower_bound

from .strategies import constants, fractions, many

C = Constants(1.0, 0.1, 0.0, 1.0)
ALPHA, BETA = 0.5, 0.5
ONES = np.ones(2)


def inner_gradient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return lower_bound.spectrum(C) * y - C.L * x + 1.0


def itd_run(x: np.ndarray, K: int, N: int) -> list[np.ndarray]:
    """Algorithm 2 on the instance, written from f and g: the Jacobian is carried along."""
    z, y, path = lower_bound.spectrum(C), np.zeros(2), [x]
    for _ in range(K):
        jacobian = np.zeros((2, 2))
        for _ in range(N):
            jacobian = jacobian @ (np.eye(2) - ALPHA * np.diag(z)) + ALPHA * C.L * np.eye(2)
            y = y - ALPHA * inner_gradient(x, y)
        x = x - BETA * (z * x + jacobian @ (C.M * ONES))
        path.append(x)
    return path


def aid_run(x: np.ndarray, K: int, N: int, Q: int, warm: bool) -> np.ndarray:
    z, y, v = lower_bound.spectrum(C), np.zeros(2), np.zeros(2)
    for _ in range(K):
        for _ in range(N):
            y = y - ALPHA * inner_gradient(x, y)
        v = v if warm else np.zeros(2)
        for _ in range(Q):
            v = v - ALPHA * (z * v - C.M * ONES)
        # ∇_x∇_y g = −L I
        x = x - BETA * (z * x + C.L * v)
    return x


def squared(v: np.ndarray) -> float:
    return float(v @ v)


def test_closed_forms_are_those_of_f_and_g() -> None:
    x = np.array([0.3, -0.7])
    assert np.allclose(inner_gradient(x, lower_bound.response(C, x)), 0.0)
    step = 1e-6
    numeric = [
        (lower_bound.outer_value(C, x + step * e) - lower_bound.outer_value(C, x - step * e))
        / (2 * step)
        for e in np.eye(2)
    ]
    assert np.allclose(lower_bound.outer_gradient(C, x), numeric, atol=1e-8)


@pytest.mark.parametrize("N", [1, 2, 5, 20])
def test_iterates(N: int) -> None:
    x0 = np.array([1.0, -3.0])
    for K, x in enumerate(itd_run(x0, 30, N)):
        closed = lower_bound.itd_iterate(C, x0, K, N, ALPHA, BETA)
        assert np.allclose(x, closed, rtol=1e-12, atol=1e-12)
        gradient = lower_bound.gradient_along_itd(C, x0, K, N, ALPHA, BETA)
        assert np.allclose(lower_bound.outer_gradient(C, x), gradient, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("N", [1, 2, 5, 20])
def test_limit_of_itd_is_the_floor(N: int) -> None:
    x = itd_run(ONES, 1500, N)[-1]
    reached, floor = squared(lower_bound.outer_gradient(C, x)), lower_bound.floor(C, N, ALPHA)
    assert abs(reached - floor) <= 1e-9 * floor
    assert np.allclose(x, lower_bound.itd_limit(C, N, ALPHA), rtol=1e-12)


@pytest.mark.parametrize(("N", "Q"), [(1, 1), (1, 5), (5, 1), (5, 5)])
def test_aid_needs_the_warm_start(N: int, Q: int) -> None:
    warm = aid_run(ONES, 1500, N, Q, warm=True)
    assert squared(lower_bound.outer_gradient(C, warm)) < 1e-15
    zero = aid_run(ONES, 1500, N, Q, warm=False)
    floor = lower_bound.floor(C, Q, ALPHA)
    assert floor > 1.0
    assert math.isclose(squared(lower_bound.outer_gradient(C, zero)), floor, rel_tol=1e-9)


@many
@given(
    constants(max_kappa=1e3, with_zeros=False),
    st.integers(1, 50),
    st.integers(0, 10_000),
    fractions,
    fractions,
    st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 100.0)),
)
def test_floor_holds_for_every_K_from_above_the_limit(
    c: Constants, N: int, K: int, a: float, b: float, above: tuple[float, float]
) -> None:
    alpha, beta = a / c.L, b / c.L
    x0 = lower_bound.itd_limit(c, N, alpha) * (1.0 - 1e-12) + np.array(above)
    assert lower_bound.stays_above_floor(c, x0, N, alpha)
    gradient = lower_bound.gradient_along_itd(c, x0, K, N, alpha, beta)
    floor = lower_bound.floor(c, N, alpha)
    assume(floor > 1e-26)
    assert squared(gradient) >= floor * (1.0 - 1e-9)


def test_ones_is_above_the_limit() -> None:
    assert lower_bound.stays_above_floor(C, ONES, 1, ALPHA)
    assert np.all(lower_bound.itd_limit(C, 1, ALPHA) <= ONES)


def test_floor_fails_from_below_the_limit() -> None:
    x0 = -200.0 * ONES
    assert not lower_bound.stays_above_floor(C, x0, 1, ALPHA)
    floor = lower_bound.floor(C, 1, ALPHA)
    lowest = min(
        squared(lower_bound.gradient_along_itd(C, x0, K, 1, ALPHA, BETA)) for K in range(400)
    )
    assert lowest < 0.01 * floor
    end = squared(lower_bound.gradient_along_itd(C, x0, 5000, 1, ALPHA, BETA))
    assert math.isclose(end, floor, rel_tol=1e-9)


@many
@given(constants(max_kappa=1e4, with_zeros=False), st.integers(1, 1000), fractions)
def test_order_of_the_floor(c: Constants, N: int, a: float) -> None:
    floor, order = (each(c, N, a / c.L) for each in (lower_bound.floor, lower_bound.floor_order))
    assert order * (1 - 1e-12) <= floor <= 2.0 * order * (1 + 1e-12)


def test_instance_has_L_and_M_only_up_to_constants() -> None:
    def joint(c: Constants) -> float:
        z = np.diag(lower_bound.spectrum(c))
        coupling = -c.L * np.eye(2)
        hessian = np.block([[np.zeros((2, 2)), coupling], [coupling, z]])
        return float(np.linalg.norm(hessian, 2))

    assert math.isclose(joint(C), lower_bound.joint_smoothness(C), rel_tol=1e-12)
    assert joint(C) > 1.6 * C.L
    assert math.isclose(lower_bound.outer_gradient_norm(C), np.linalg.norm(C.M * ONES))
    repaired = lower_bound.admissible_instance(C)
    assert joint(repaired) <= C.L * (1 + 1e-12)
    assert lower_bound.outer_gradient_norm(repaired) <= C.M * (1 + 1e-12)


def test_a_step_beyond_one_over_L_is_refused() -> None:
    with pytest.raises(ValueError, match="alpha must be at most 1/L"):
        lower_bound.floor(C, 1, 1.5)
