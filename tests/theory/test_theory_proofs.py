"""The proofs, followed with numbers: each step's bound implies the next, for random constants.

Runs test the lemmas where a run happens to go; here the errors are as large as the lemma before
allows, so that a wrong constant in any link breaks the chain.
"""

import math

from hypothesis import assume, given
from hypothesis import strategies as st

from biloop.theory import (
    Constants,
    Start,
    beta_theorem1,
    condition_theorem1,
    corollary1,
    corollary2,
    delta0_theorem1,
    delta0_theorem2,
    delta0_theorem3,
    delta_theorem1,
    floor_theorem3,
    hypergradient_sensitivity,
    lemmas,
    one_minus_tau_theorem2,
    r,
    smallest_N_theorem1,
    theorem1,
    theorem2,
    theorem3,
    w_theorem1,
    w_theorem2,
    w_theorem3,
    w_tilde_theorem1,
)
from biloop.theory.powers import decay

from .strategies import constants, fractions, lams, log_uniform, loops, many, small_loops, starts

errors = st.one_of(st.just(0.0), log_uniform(1e-8, 1e4))
ROUND = 1.0 + 1e-9


@many
@given(constants(), small_loops, fractions, fractions, lams, errors, errors, errors)
def test_lemmas_1_and_2_give_lemma_3(
    c: Constants, Q: int, a: float, e: float, lam: float, y: float, v: float, move: float
) -> None:
    alpha, eta = a / c.L, e / c.L
    assume(eta * c.mu < 1.0)
    N = smallest_N_theorem1(c, Q, alpha, eta, lam)
    y_next = lemmas.lemma2_inner_error(c, N, alpha, lam, y, move)
    v_next = lemmas.lemma1_adjoint_error(c, Q, eta, v, y_next, move)
    before = delta_theorem1(c, math.sqrt(y), math.sqrt(v))
    after = delta_theorem1(c, math.sqrt(y_next), math.sqrt(v_next))
    assert after <= lemmas.lemma3_step(c, N, Q, alpha, eta, lam, before, move) * ROUND
    # the hypergradient error is 3L²δ_k
    error = lemmas.aid_hypergradient_error(c, y, v)
    assert math.isclose(error, 3.0 * c.L**2 * before, rel_tol=1e-12)


@many
@given(constants(), small_loops, fractions, fractions, lams)
def test_w_is_at_most_w_tilde_without_r_above_one(
    c: Constants, Q: int, a: float, e: float, lam: float
) -> None:
    alpha, eta = a / c.L, e / c.L
    assume(eta * c.mu < 1.0)
    N = smallest_N_theorem1(c, Q, alpha, eta, lam)
    tilde = w_tilde_theorem1(c, Q, eta, lam)
    assert w_theorem1(c, N, Q, alpha, eta, lam) <= tilde * ROUND


def test_r_is_not_above_one() -> None:
    # the proof of Theorem 1 says r > 1; Corollary 2's own parameters give r ≤ 4η²Q², about κ⁻⁴
    for kappa in (2.0, 10.0, 1000.0):
        c = Constants(1.0, 1.0 / kappa, 1.0, 1.0)
        eta = corollary2(c, Start(1.0, 1.0)).eta
        assert eta is not None
        assert r(c, eta, 1) <= 4.0 * eta**2 <= kappa**-4


@many
@given(constants(max_kappa=1e4), starts, small_loops, fractions, fractions, lams)
def test_theorem1_constants(
    c: Constants, start: Start, Q: int, a: float, e: float, lam: float
) -> None:
    alpha, eta = a / c.L, e / c.L
    t = eta * c.mu
    assume(t < 1.0)
    N = smallest_N_theorem1(c, Q, alpha, eta, lam)
    certificate = theorem1(c, start, N, Q, alpha, eta, lam)
    assert certificate.holds
    # the last display before the constants 8 and 21 are put in
    beta = certificate.beta
    growth = 6.0 * w_theorem1(c, N, Q, alpha, eta, lam) * (c.L * beta) ** 2
    half = 0.5 + beta * c.L_Phi
    coefficient = 0.5 - beta * c.L_Phi - growth * half / (t - growth)
    gap_term = start.gap / beta / coefficient
    start_term = 3.0 * c.L**2 * delta0_theorem1(c, start) * half / (t - growth) / coefficient
    assert 0.0 < gap_term <= certificate.gap_term * ROUND
    assert 0.0 <= start_term <= certificate.start_term * ROUND


@many
@given(constants(max_kappa=1e4), starts, loops, loops, fractions, fractions, lams)
def test_theorem2_constants(
    c: Constants, start: Start, N: int, Q: int, a: float, e: float, lam: float
) -> None:
    alpha, eta = a / c.L, e / c.L
    parameters = (N, Q, alpha, eta, lam)
    certificate = theorem2(c, start, *parameters)
    assume(certificate.beta > 0.0)
    assert certificate.holds
    beta = certificate.beta
    half = 0.5 + beta * c.L_Phi
    slack = one_minus_tau_theorem2(c, *parameters, beta)
    growth = w_theorem2(c, *parameters) * beta**2 / slack
    coefficient = 0.5 - beta * c.L_Phi - growth * half
    delta0 = delta0_theorem2(c, N, Q, alpha, eta, start)
    bias = 6.0 * (c.kappa * c.M * decay(eta * c.mu, Q)) ** 2 * half * (1.0 + growth)
    assert start.gap / beta / coefficient <= certificate.gap_term * ROUND
    assert half * delta0 / slack / coefficient <= certificate.start_term * ROUND
    # the floor is printed with 27; the display before it gives 18
    assert bias / coefficient <= certificate.floor * (18.0 / 27.0) * ROUND
    # the two forms of δ_0's factor
    inner = 3.0 * hypergradient_sensitivity(c, eta, Q)
    assert math.isclose(delta0, inner * decay(alpha * c.mu, N) * start.y_distance**2)


@many
@given(constants(max_kappa=1e4), loops, fractions, errors, errors, errors)
def test_lemmas_2_and_4_give_lemma_5(
    c: Constants, N: int, a: float, y: float, gradient: float, error: float
) -> None:
    alpha = a / (2.0 * c.L)
    t = alpha * c.mu
    beta = theorem3(c, Start(1.0, 1.0), N, alpha).beta
    move = beta**2 * (2.0 * error + 2.0 * gradient)
    y_next = lemmas.lemma2_inner_error(c, N, alpha, t / 2.0, y, move)
    start_distance = math.sqrt(y) + c.kappa * math.sqrt(move)
    jacobian = lemmas.lemma4_jacobian_error(c, N, alpha, c.kappa, start_distance)
    distance = lemmas.itd_hypergradient_distance(c, N, alpha, math.sqrt(y_next), jacobian)
    before = lemmas.delta_lemma5(c, N, alpha, error, y)
    after = lemmas.delta_lemma5(c, N, alpha, distance**2, y_next)
    bound = lemmas.lemma5_step(c, N, alpha, beta, before, c.kappa, gradient)
    assert after <= bound * ROUND


@many
@given(constants(max_kappa=1e4), starts, loops, fractions)
def test_theorem3_constants(c: Constants, start: Start, N: int, a: float) -> None:
    alpha = a / (2.0 * c.L)
    t = alpha * c.mu
    certificate = theorem3(c, start, N, alpha)
    assert certificate.holds
    beta = certificate.beta
    half = 0.5 + beta * c.L_Phi
    coefficient = 0.5 - beta * c.L_Phi - 8.0 / t * half * w_theorem3(c, N, alpha) * beta**2
    # δ_0 from the lemmas, with the errors as large as they allow
    y_distance = start.y_distance * math.sqrt(decay(t, N))
    jacobian = lemmas.lemma4_jacobian_error(c, N, alpha, c.kappa, start.y_distance)
    distance = lemmas.itd_hypergradient_distance(c, N, alpha, y_distance, jacobian)
    delta0 = lemmas.delta_lemma5(c, N, alpha, distance**2, y_distance**2)
    assert delta0 <= delta0_theorem3(c, N, alpha, start) * ROUND
    assert start.gap / beta / coefficient <= certificate.gap_term * ROUND
    assert 4.0 * half * delta0 / t / coefficient <= certificate.start_term * ROUND
    responses = 16.0 * c.M**2 / t * c.kappa**2 * decay(t, 2 * N)
    assert half * responses / coefficient <= floor_theorem3(c, N, alpha) * ROUND


@many
@given(constants(), st.integers(1, 8))
def test_corollary2_meets_its_condition(c: Constants, Q: int) -> None:
    certificate = corollary2(c, Start(1.0, 1.0), Q)
    assert certificate.holds, certificate.broken
    # the chain of its proof: left ≤ 1 − αμ/4 ≤ 1 − ημ
    condition = certificate.conditions[2]
    assert condition.left <= 1.0 - certificate.alpha * c.mu / 4.0 <= condition.right


@many
@given(constants(), st.integers(1, 8))
def test_corollary1_meets_its_condition(c: Constants, Q: int) -> None:
    certificate = corollary1(c, Start(1.0, 1.0), Q)
    assert certificate.holds, certificate.broken
    if certificate.N > 1:
        N, step = certificate.N - 1, 1.0 / c.L
        assert not condition_theorem1(c, N, Q, step, step, 1.0).holds
    assert certificate.beta == beta_theorem1(c, Q, 1.0 / c.L, 1.0)
