"""Tables 1 and 2 come out of the formulas; where an entry does not, the term that causes it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biloop.theory import (
    SCHEMES,
    Constants,
    Start,
    aid_complexity,
    corollary3,
    corollary5,
    corollary6,
    exponent,
    floor_theorem2,
    floor_theorem3,
    itd_complexity,
    smallest_N_theorem3,
    table1,
    table2,
    unit_constants,
)
from biloop.theory.complexity import ba_inner_steps
from biloop.theory.tables import KAPPAS

from .strategies import constants, log_uniform, many, starts

START = Start(gap=1.0, y_distance=1.0)


def fitted(entries: tuple, algorithm: str, variable: str = "kappa") -> dict[str, float]:
    return {
        each.quantity: each.fitted
        for each in entries
        if each.algorithm == algorithm and each.variable == variable
    }


@pytest.mark.parametrize(
    ("algorithm", "K", "gradients", "products"),
    [
        ("N-Q-loop AID", 3, 4, 4),
        ("N-loop AID", 4, 5, 4),
        ("Q-loop AID", 5, 5, 6),
        ("No-loop AID", 6, 6, 6),
    ],
)
def test_table1_exponents(algorithm: str, K: float, gradients: float, products: float) -> None:
    got = fitted(table1(), algorithm)
    assert abs(got["K"] - K) < 0.15
    assert abs(got["Gc"] - gradients) < 0.15
    assert abs(got["MV"] - products) < 0.15


def test_every_printed_exponent_is_met_within_the_logarithm() -> None:
    for entry in table1() + table2():
        if entry.printed is not None:
            assert abs(entry.fitted - entry.printed) < 0.15, entry


def test_logarithms_account_for_what_exceeds_the_printed_exponent() -> None:
    # N = 2κ ln κ has slope 1.11 over κ = 2^10 ... 2^16; K itself has slope 3
    lengths = [2.0 * kappa * math.log(kappa) for kappa in KAPPAS]
    got = fitted(table1(), "N-Q-loop AID")
    assert abs(got["Gc"] - got["K"] - exponent(KAPPAS, lengths)) < 0.01


@pytest.mark.parametrize(
    ("algorithm", "gradients", "products"),
    [("N-Q-loop AID", 3, 3), ("N-loop AID", 4, 3), ("Q-loop AID", 3, 4), ("No-loop AID", 5, 5)],
)
def test_constant_hessians_save_powers_of_kappa(
    algorithm: str, gradients: float, products: float
) -> None:
    # ρ = 0: L_Φ = Θ(κ²) and C_Q = Θ(κ) instead of Θ(κ³) and Θ(κ²)
    got = fitted(table1(rho=0.0), algorithm)
    assert abs(got["Gc"] - gradients) < 0.15
    assert abs(got["MV"] - products) < 0.15


def test_no_loop_itd_is_not_applicable() -> None:
    got = fitted(table2(), "No-loop ITD")
    assert got["Gc"] == got["MV"] == math.inf
    assert abs(got["rate"] - 3.0) < 0.15
    assert abs(got["floor"] - 3.0) < 0.15


def test_printed_Q_of_table1_leaves_a_floor() -> None:
    # Q = κ ln κ brings (27L²M²/μ²)(1−ημ)^{2Q} to 27 whatever κ is: no ε < 27 is certified
    for kappa in KAPPAS:
        c = unit_constants(kappa)
        floor = floor_theorem2(c, math.ceil(kappa * math.log(kappa)), 1.0)
        assert 25.0 < floor <= 27.0
        printed = corollary3(c, START, 1e-2, Q=math.ceil(kappa * math.log(kappa)))
        assert aid_complexity("printed", printed, 1e-2).gradients == math.inf


def test_printed_N_of_table2_leaves_a_floor() -> None:
    # N = κ ln(κ/ε) brings 48M²L²(1−αμ)^{2N}/(αμ³) to 96κ²ε only, and N = 2κ ln(κ/ε) to 96κε²
    eps = 1e-2
    for kappa in KAPPAS:
        c = unit_constants(kappa)
        for constant, left in ((1.0, 96.0 * kappa**2 * eps), (2.0, 96.0 * kappa * eps**2)):
            N = math.ceil(constant * kappa * math.log(kappa / eps))
            assert math.isclose(floor_theorem3(c, N, 0.5), left, rel_tol=0.02)
            certificate = corollary5(c, START, eps, N=N)
            assert itd_complexity("printed", certificate, eps).gradients == math.inf


def test_smallest_N_of_table2_costs_half_a_power() -> None:
    # with the floor just at ε/2, w_N² ~ κ⁴(1−αμ)^N ~ κ^2.5 stands in δ_0/(αμ): K ~ κ^3.5
    eps, rates, memory = 1e-2, [], []
    for kappa in KAPPAS:
        c = unit_constants(kappa)
        N = smallest_N_theorem3(c, 0.5, eps / 2.0)
        certificate = corollary5(c, START, eps, N=N)
        rates.append(certificate.gap_term + certificate.start_term)
        memory.append(certificate.start_term)
    assert abs(exponent(KAPPAS, rates) - 3.48) < 0.05
    assert abs(exponent(KAPPAS, memory) - 3.5) < 0.05
    # three times κ ln κ, and κ ln(192/ε): the constant that Θ hides
    smallest = [smallest_N_theorem3(unit_constants(k), 0.5, eps / 2.0) for k in KAPPAS]
    for N, kappa in zip(smallest, KAPPAS, strict=True):
        exact = 3.0 * kappa * math.log(kappa) + kappa * math.log(192.0 / eps)
        assert math.isclose(N, exact, rel_tol=1e-3)


def test_logarithm_in_N_of_corollary3_serves_the_start_alone() -> None:
    # N = 8κ without the logarithm: the gap term stays κ³, the start term becomes κ⁴
    gap, start = [], []
    for kappa in KAPPAS:
        certificate = corollary3(unit_constants(kappa), START, 1e-2, N=math.ceil(8.0 * kappa))
        assert certificate.holds
        gap.append(certificate.gap_term)
        start.append(certificate.start_term)
    assert abs(exponent(KAPPAS, gap) - 3.0) < 0.02
    assert abs(exponent(KAPPAS, start) - 4.0) < 0.02


@pytest.mark.parametrize("name", SCHEMES)
def test_counts(name: str) -> None:
    c, eps = Constants(1.0, 0.1, 0.5, 1.0), 1e-2
    cost = SCHEMES[name](c, START, eps)
    assert cost.scheme == name
    if name == "No-loop ITD":
        assert math.inf == cost.K
        return
    if cost.N is not None:
        assert cost.gradients == cost.K * (cost.N + 2)
    if cost.Q is not None:
        assert cost.products == cost.K * (cost.Q + 1)
    elif cost.N is not None:
        assert cost.products == 2 * cost.K * cost.N
    if cost.certificate is not None:
        assert cost.certificate.bound(int(cost.K)) <= eps * (1 + 1e-12)


def test_no_loop_itd_reaches_what_lies_above_its_floor() -> None:
    c = Constants(1.0, 0.5, 0.5, 1.0)
    certificate = corollary6(c, START)
    cost = itd_complexity("No-loop ITD", certificate, 2.0 * certificate.floor)
    assert math.isfinite(cost.K)


def test_ba_inner_steps_are_counted_exactly() -> None:
    total = 0
    for k in range(3000):
        total += next(n for n in range(1, 99) if (2 * n) ** 4 >= k + 1)
        assert ba_inner_steps(k + 1) == total
    # Σ (k+1)^¼/2 ≈ (2/5) K^{5/4}, plus a half each from rounding up
    K = 10**16
    assert math.isclose(ba_inner_steps(K), 0.4 * K**1.25 + 0.5 * K, rel_tol=1e-3)


def test_itd_and_aid_are_not_mixed_up() -> None:
    with pytest.raises(ValueError, match="Corollary 6 has no Q"):
        aid_complexity("wrong", corollary6(Constants(1, 1, 1, 1), START), 1e-2)


@many
@given(
    constants(max_kappa=1e4, with_zeros=False), starts, log_uniform(1e-6, 1.0), st.integers(2, 9)
)
def test_a_smaller_eps_costs_more(c: Constants, start: Start, eps: float, factor: int) -> None:
    for name, scheme in SCHEMES.items():
        # a smaller ε makes N of the N-N-loop longer, which can pay for itself when y_0 is far off
        if name == "N-N-loop ITD":
            continue
        near, far = scheme(c, start, eps), scheme(c, start, eps / factor)
        assert far.gradients >= near.gradients
        assert far.products >= near.products
