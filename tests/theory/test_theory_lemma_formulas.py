"""The right-hand sides of the lemmas, term by term, as the paper prints them."""

import math

import numpy as np

from biloop.theory import (
    C_Q,
    Constants,
    lambda_N,
    lemmas,
    w_N,
    w_theorem1,
    w_theorem3,
)

C = Constants(L=1.3, mu=0.4, rho=0.7, M=0.9)
L, MU, RHO, M = C.L, C.mu, C.rho, C.M
N, Q, ALPHA, ETA, LAM, BETA = 3, 2, 0.3, 0.5, 0.8, 0.05
A, E = 1.0 - ALPHA * MU, 1.0 - ETA * MU


def same(value: float, expected: float) -> bool:
    return math.isclose(value, expected, rel_tol=1e-12)


def test_lipschitz_constants() -> None:
    assert same(lemmas.response_lipschitz(C), L / MU)
    assert same(lemmas.adjoint_lipschitz(C), (L / MU + M * RHO / MU**2) * (L / MU + 1))


def test_aid_hypergradient_error() -> None:
    expected = (3 * L**2 + 3 * RHO**2 * M**2 / MU**2) * 0.2 + 3 * L**2 * 0.5
    assert same(lemmas.aid_hypergradient_error(C, 0.2, 0.5), expected)


def test_lemma1() -> None:
    young = 1 + 1 / (ETA * MU)
    drift = (L / MU + M * RHO / MU**2) ** 2 * (L / MU + 1) ** 2
    expected = (
        (1 + ETA * MU) * E ** (2 * Q) * 0.5
        + 2 * young * C_Q(C, ETA, Q) ** 2 * 0.2
        + 2 * E ** (2 * Q) * young * drift * 0.1
    )
    assert same(lemmas.lemma1_adjoint_error(C, Q, ETA, 0.5, 0.2, 0.1), expected)


def test_adjoint_from_zero() -> None:
    expected = 2 * C_Q(C, ETA, Q) ** 2 * 0.2 + 2 * E ** (2 * Q) * M**2 / MU**2
    assert same(lemmas.adjoint_error_from_zero(C, Q, ETA, 0.2), expected)


def test_lemma2() -> None:
    assert same(lemmas.inner_contraction(C, N, ALPHA, 0.2), A**N * 0.2)
    expected = A**N * (1 + LAM) * 0.2 + A**N * (1 + 1 / LAM) * L**2 / MU**2 * 0.1
    assert same(lemmas.lemma2_inner_error(C, N, ALPHA, LAM, 0.2, 0.1), expected)


def test_lemma3() -> None:
    w = w_theorem1(C, N, Q, ALPHA, ETA, LAM)
    step = lemmas.lemma3_step(C, N, Q, ALPHA, ETA, LAM, 0.5, 0.1)
    assert same(step, E * 0.5 + w * 0.1)
    gradients = np.array([0.3, 0.7, 0.2, 0.9])
    beta = 1e-3
    growth = 6 * w * L**2 * beta**2
    q = E + growth
    bound = lemmas.lemma3_hypergradient_error(
        C, N, Q, ALPHA, ETA, LAM, beta, delta0=0.5, gradients=gradients
    )
    for k in range(4):
        discounted = sum(q**j * gradients[k - 1 - j] for j in range(k))
        assert same(bound[k], 3 * L**2 * q**k * 0.5 + growth * discounted)


def test_lemma4() -> None:
    expected = A**N * 1.7 + w_N(C, N, ALPHA) * 0.6
    assert same(lemmas.lemma4_jacobian_error(C, N, ALPHA, 1.7, 0.6), expected)


def test_lemma5() -> None:
    expected = L * (1 + ALPHA * L * N) * 0.6 + M * 0.4
    assert same(lemmas.itd_hypergradient_distance(C, N, ALPHA, 0.6, 0.4), expected)
    weight = lambda_N(C, N, ALPHA) - 4 * L**2 * (1 + ALPHA * L * N) ** 2
    assert same(lemmas.delta_lemma5(C, N, ALPHA, 0.4, 0.2), 0.4 + weight * 0.2)
    w, q = w_theorem3(C, N, ALPHA), 1 - ALPHA * MU / 4
    expected = 4 * M**2 * 1.7**2 * A ** (2 * N) + q * 0.5 + 2 * w * BETA**2 * 0.3
    assert same(lemmas.lemma5_step(C, N, ALPHA, BETA, 0.5, 1.7, 0.3), expected)

    gradients, responses = np.array([0.3, 0.7, 0.2, 0.9]), np.array([1.7, 1.1, 0.6, 2.0])
    given = gradients.copy()
    bound = lemmas.lemma5_error(C, N, ALPHA, BETA, 0.5, responses, gradients)
    assert np.array_equal(given, gradients)
    for k in range(4):
        J = sum(q**j * 4 * M**2 * responses[k - j] ** 2 for j in range(k))
        moves = sum(q ** (k - 1 - j) * gradients[j] for j in range(k))
        assert same(bound[k], q**k * 0.5 + J * A ** (2 * N) + 2 * w * BETA**2 * moves)


def test_descent() -> None:
    half, smooth = BETA / 2, BETA**2 * C.L_Phi
    expected = 2.0 - (half - smooth) * 0.3 + (half + smooth) * 0.4
    assert same(lemmas.descent(C, BETA, 2.0, 0.3, 0.4), expected)


def test_arrays_and_floats_agree() -> None:
    errors = np.array([0.2, 0.5])
    both = lemmas.lemma2_inner_error(C, N, ALPHA, LAM, errors, errors)
    for i, each in enumerate(errors):
        one = lemmas.lemma2_inner_error(C, N, ALPHA, LAM, float(each), float(each))
        assert same(both[i], one)
