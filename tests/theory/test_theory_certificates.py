"""Certificates: numbers at κ = 2, 5, 10, solved step sizes, monotonicity for random constants."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from biloop.theory import (
    C_Q,
    Certificate,
    Condition,
    Constants,
    Start,
    beta_corollary5,
    beta_recursion_limit,
    condition_theorem2,
    condition_theorem3,
    corollary1,
    corollary2,
    corollary3,
    corollary4,
    corollary5,
    corollary6,
    delta0_theorem3,
    floor_theorem2,
    floor_theorem3,
    largest_beta_theorem2,
    largest_beta_theorem3,
    smallest_N_theorem3,
    smallest_Q_theorem2,
    theorem1,
    theorem2,
    theorem3,
    w_theorem3,
    w_tilde_theorem1,
)

from .strategies import constants, fractions, lams, log_uniform, loops, many, starts

START = Start(gap=1.0, y_distance=1.0)


def instance(kappa: float) -> Constants:
    return Constants(0.983, 0.983 / kappa, 0.109, 1.0)


@pytest.mark.parametrize(("kappa", "beta", "N"), [(2, 8e-3, 6), (5, 5e-4, 20), (10, 4e-5, 45)])
def test_corollary1_numbers(kappa: float, beta: float, N: int) -> None:
    certificate = corollary1(instance(kappa), START)
    assert certificate.holds
    assert certificate.N == N
    assert float(f"{certificate.beta:.0e}") == beta


@pytest.mark.parametrize(("kappa", "beta"), [(2, 1e-5), (5, 1e-7), (10, 3e-9)])
def test_corollary2_numbers(kappa: float, beta: float) -> None:
    certificate = corollary2(instance(kappa), START)
    assert certificate.holds
    assert float(f"{certificate.beta:.0e}") == beta


@pytest.mark.parametrize(("kappa", "beta", "N"), [(2, 2e-2, 3), (5, 4e-3, 17), (10, 1e-3, 47)])
def test_corollary3_numbers(kappa: float, beta: float, N: int) -> None:
    certificate = corollary3(instance(kappa), START, eps=1e-2)
    assert certificate.holds
    assert certificate.N == N
    assert float(f"{certificate.beta:.0e}") == beta


@pytest.mark.parametrize(("kappa", "beta", "N"), [(2, 1e-2, 23), (5, 1e-3, 70), (10, 2e-4, 161)])
def test_corollary5_numbers(kappa: float, beta: float, N: int) -> None:
    # this N is ⌈κ ln(96κ³/ε)⌉, from (1−αμ)^{2N} ≤ exp(−N/κ); solved exactly it is a few less
    assert math.ceil(kappa * math.log(96.0 * kappa**3 / 1e-2)) == N
    certificate = corollary5(instance(kappa), START, eps=1e-2, N=N)
    assert certificate.holds
    assert float(f"{certificate.beta:.0e}") == beta
    assert smallest_N_theorem3(instance(kappa), certificate.alpha, 1e-2) <= N


def test_bounds_are_the_printed_ones() -> None:
    c, start, K = instance(5.0), Start(gap=0.8, y_distance=0.6), 1000
    bend = 1.0 + (c.rho * c.M / (c.L * c.mu)) ** 2

    one = corollary1(c, start)
    delta = bend * 0.6**2 + (3.0 * c.M / c.mu + 2.0 * c.L / c.mu * 0.6) ** 2
    expected = 8.0 * 0.8 / (one.beta * K) + 21.0 * c.L**2 * delta / (c.mu / c.L * K)
    assert math.isclose(one.bound(K), expected, rel_tol=1e-12)

    two = corollary3(c, start, eps=1e-2)
    assert two.Q is not None
    step, shrink = 1.0 / c.L, (1.0 - c.mu / c.L) ** two.N
    sensitivity = c.L**2 * (bend + 2.0 * C_Q(c, step, two.Q) ** 2)
    slack = 1.0 - shrink * (2.0 + 12.0 * sensitivity * (c.L * two.beta / c.mu) ** 2)
    floor = 27.0 * (c.L * c.M / c.mu) ** 2 * (1.0 - c.mu / c.L) ** (2 * two.Q)
    transient = 4.0 * 0.8 / two.beta + 3.0 * 3.0 * sensitivity * shrink * 0.6**2 / slack
    assert math.isclose(two.bound(K), transient / K + floor, rel_tol=1e-12)

    three = corollary5(c, start, eps=1e-2, N=70)
    t = three.alpha * c.mu
    floor = 48.0 * c.M**2 * c.L**2 * (1.0 - t) ** 140 / (three.alpha * c.mu**3)
    transient = 4.0 * 0.8 / three.beta + 12.0 * delta0_theorem3(c, 70, three.alpha, start) / t
    assert math.isclose(three.bound(K), transient / K + floor, rel_tol=1e-12)


def test_prescribed_step_sizes_are_the_printed_ones() -> None:
    for kappa in (2.0, 5.0, 10.0):
        c = instance(kappa)
        one, no = corollary1(c, START), corollary2(c, START)
        assert one.alpha == one.eta == no.alpha == 1.0 / c.L
        assert one.lam == 1.0
        assert no.lam == no.alpha * c.mu / 2.0
        assert no.eta is not None
        assert math.isclose(no.eta, no.alpha * c.mu**2 / (128.0 * c.L**2))
        for each in (one, no):
            assert each.eta is not None
            assert each.lam is not None
            w = w_tilde_theorem1(c, 1, each.eta, each.lam)
            limit = math.sqrt(each.eta * c.mu / (18.0 * c.L**2 * w))
            assert math.isclose(each.beta, min(1.0 / (12.0 * c.L_Phi), limit))
        for each in (corollary5(c, START, 1e-2), corollary6(c, START, N=3)):
            assert each.alpha == 1.0 / (2.0 * c.L * (3 if each.N == 3 else 1))
            w, t = w_theorem3(c, each.N, each.alpha), each.alpha * c.mu
            limits = (t / (40.0 * w), (1.0 - t / 4.0) / (2.0 * w), 1.0 / (8.0 * c.L_Phi) ** 2)
            assert math.isclose(each.beta, math.sqrt(min(limits)))


def test_a_broken_condition_means_no_bound() -> None:
    c = instance(5.0)
    good = corollary1(c, START)
    assert math.isfinite(good.bound(10))
    bad = theorem1(c, START, good.N - 1, 1, 1.0 / c.L, 1.0 / c.L, 1.0)
    assert not bad.holds
    assert [each.name[:5] for each in bad.broken] == ["(1+λ)"]
    assert bad.bound(10) == math.inf
    assert bad.outer_steps(1.0) == math.inf
    steep = theorem1(c, START, good.N, 1, 1.0 / c.L, 1.0 / c.L, 1.0, beta=2.0 * good.beta)
    assert not steep.holds
    # λ so large that the inner error grows: no β at all
    hopeless = theorem2(c, START, 1, 5, 1.0 / c.L, 1.0 / c.L, 1.0)
    assert hopeless.beta == 0.0
    assert not hopeless.holds
    assert hopeless.bound(10) == math.inf


def test_step_sizes_above_one_over_L_are_not_certified() -> None:
    c = instance(5.0)
    long = theorem2(c, START, 60, 60, 1.1 / c.L, 1.0 / c.L, 1.0)
    assert [each.name for each in long.broken] == ["α ≤ 1/L"]
    assert not theorem3(c, START, 60, 0.6 / c.L).holds


def test_nan_never_passes() -> None:
    assert not Condition("x", math.nan, 1.0).holds
    assert not Condition("x", 0.0, math.nan, strict=True).holds
    assert Condition("x", 1.0, 1.0).holds
    assert not Condition("x", 1.0, 1.0, strict=True).holds


@many
@given(constants(), loops, loops, fractions, fractions, lams)
def test_largest_beta_of_theorem2_is_the_largest(
    c: Constants, N: int, Q: int, a: float, e: float, lam: float
) -> None:
    parameters = (N, Q, a / c.L, e / c.L, lam)
    beta = largest_beta_theorem2(c, *parameters)
    if beta == 0.0:
        assert not condition_theorem2(c, *parameters, 1e-12 / c.L_Phi).holds
    else:
        assert condition_theorem2(c, *parameters, beta).holds
        assert not condition_theorem2(c, *parameters, beta * (1.0 + 1e-9)).holds
        # the closed form against bisection of the condition itself
        low, high = 0.0, 1.0 / c.L_Phi
        for _ in range(80):
            middle = 0.5 * (low + high)
            if condition_theorem2(c, *parameters, middle).holds:
                low = middle
            else:
                high = middle
        assert math.isclose(low, beta, rel_tol=1e-9)


@many
@given(constants(), loops, fractions)
def test_largest_beta_of_theorem3_is_the_largest(c: Constants, N: int, a: float) -> None:
    alpha = a / (2.0 * c.L)
    beta = largest_beta_theorem3(c, N, alpha)
    limit = beta_recursion_limit(c, N, alpha)
    assert condition_theorem3(c, N, alpha, beta).holds
    assert beta <= limit
    larger = beta * (1.0 + 1e-9)
    assert larger > limit or not condition_theorem3(c, N, alpha, larger).holds
    # the prescribed one is safe, and at most a factor √5 short
    prescribed = beta_corollary5(c, N, alpha)
    assert prescribed <= beta * (1.0 + 1e-12) <= math.sqrt(5.0) * prescribed * (1.0 + 1e-9)


@many
@given(constants(), starts, log_uniform(1e-8, 1.0))
def test_every_corollary_holds(c: Constants, start: Start, eps: float) -> None:
    for certificate in (
        corollary1(c, start),
        corollary2(c, start),
        corollary3(c, start, eps),
        corollary4(c, start, eps),
        corollary5(c, start, eps),
        corollary6(c, start),
        corollary6(c, start, N=3),
    ):
        assert certificate.holds, (certificate.statement, certificate.broken)
        assert certificate.beta > 0.0
        assert_bound_behaves(certificate)
    for certificate in (corollary3(c, start, eps), corollary4(c, start, eps)):
        assert certificate.floor <= eps / 2.0
        K = certificate.outer_steps(eps)
        if K < 2.0**50:
            assert certificate.bound(int(K)) <= eps * (1 + 1e-12)
            assert K == 1.0 or certificate.bound(int(K) - 1) > eps * (1 - 1e-12)


def assert_bound_behaves(certificate: Certificate) -> None:
    bounds = [certificate.bound(K) for K in (1, 2, 10, 1000, 10**9)]
    assert all(math.isfinite(each) and each >= 0.0 for each in bounds)
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] >= certificate.floor
    shift = replace(certificate, start_term=0.0, gap_term=0.0)
    assert shift.bound(7) == certificate.floor


@many
@given(constants(), st.integers(1, 2000), fractions, log_uniform(1e-10, 1e2))
def test_floors_fall_and_their_solutions_are_smallest(
    c: Constants, n: int, a: float, target: float
) -> None:
    eta, alpha = a / c.L, a / (2.0 * c.L)
    assert floor_theorem2(c, n + 1, eta) <= floor_theorem2(c, n, eta)
    assert floor_theorem3(c, n + 1, alpha) <= floor_theorem3(c, n, alpha)
    Q, N = smallest_Q_theorem2(c, eta, target), smallest_N_theorem3(c, alpha, target)
    assert floor_theorem2(c, Q, eta) <= target
    assert floor_theorem3(c, N, alpha) <= target
    assert Q == 1 or floor_theorem2(c, Q - 1, eta) > target * (1 - 1e-9)
    assert N == 1 or floor_theorem3(c, N - 1, alpha) > target * (1 - 1e-9)


@many
@given(constants(), starts, loops, loops, lams)
def test_longer_inner_loops_allow_longer_outer_steps(
    c: Constants, start: Start, N: int, Q: int, lam: float
) -> None:
    step = 1.0 / c.L
    short = theorem2(c, start, N, Q, step, step, lam)
    long = theorem2(c, start, N + 1, Q, step, step, lam)
    assert short.beta <= long.beta * (1.0 + 1e-12)
    assume(short.holds)
    assert long.holds
    assert long.bound(100) <= short.bound(100) * (1.0 + 1e-9)


@many
@given(constants(), starts, log_uniform(1.01, 10.0))
def test_bounds_grow_with_the_start(c: Constants, start: Start, factor: float) -> None:
    worse = Start(start.gap * factor, start.y_distance * factor, v_norm=1.0)
    for near, far in (
        (corollary1(c, start), corollary1(c, worse)),
        (corollary4(c, start, 1e-2), corollary4(c, worse, 1e-2)),
        (corollary6(c, start), corollary6(c, worse)),
    ):
        assert near.beta == far.beta
        assert near.bound(50) < far.bound(50)


@pytest.mark.parametrize("scale", [2.0**-12, 2.0**12])
@pytest.mark.parametrize("Q", [1, 4])
def test_no_scale_is_absolute(scale: float, Q: int) -> None:
    """f and g times s: counts stay, step sizes go with 1/s, bounds with s²."""
    numbers = {"L": 3.0, "mu": 0.5, "rho": 0.7, "M": 2.0}
    here = Constants(**numbers), Start(2.0, 1.5, 0.3)
    there = Constants(**{k: scale * n for k, n in numbers.items()}), Start(2.0 * scale, 1.5, 0.3)
    eps = 1e-3
    made = [
        [
            corollary1(*at, Q),
            corollary2(*at, Q),
            corollary3(*at, accuracy),
            corollary4(*at, accuracy),
            corollary5(*at, accuracy),
            corollary6(*at, Q),
        ]
        for at, accuracy in ((here, eps), (there, eps * scale**2))
    ]
    for one, other in zip(*made, strict=True):
        assert (one.N, one.Q, one.lam) == (other.N, other.Q, other.lam)
        for name, power in (("alpha", -1), ("eta", -1), ("beta", -1)):
            if getattr(one, name) is not None:
                scaled = getattr(one, name) * scale**power
                assert getattr(other, name) == pytest.approx(scaled, rel=1e-12), (one, name)
        for name in ("gap_term", "start_term", "floor"):
            scaled = getattr(one, name) * scale**2
            assert getattr(other, name) == pytest.approx(scaled, rel=1e-9), (one, name)
