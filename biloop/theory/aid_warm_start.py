"""Theorem 1: AID that warm-starts both y and v. Corollary 1 (N-loop) and Corollary 2 (No-loop)."""

import math
from dataclasses import replace

from biloop.theory.certificate import Certificate, Condition
from biloop.theory.checks import contraction, count, positive
from biloop.theory.constants import Constants, Start
from biloop.theory.definitions_aid import coupling, delta0_theorem1, w_tilde_theorem1
from biloop.theory.powers import decay, steps_to_decay


def condition_theorem1(
    constants: Constants, N: int, Q: int, alpha: float, eta: float, lam: float
) -> Condition:
    """The condition that ties the two loops: the inner error, amplified, still contracts.

    (1+λ)(1−αμ)^N (1 + 4r(1+1/(ημ))L²) ≤ 1−ημ

    Theorem 1 and Lemma 3.
    """
    shrink = decay(contraction("alpha", alpha, constants.mu), count("N", N))
    return Condition(
        "(1+λ)(1−αμ)^N (1+4r(1+1/(ημ))L²) ≤ 1−ημ",
        (1.0 + positive("lam", lam)) * shrink * coupling(constants, eta, Q),
        1.0 - contraction("eta", eta, constants.mu),
    )


def smallest_N_theorem1(constants: Constants, Q: int, alpha: float, eta: float, lam: float) -> int:
    """Smallest N for which the condition of Theorem 1 holds.

    (1−αμ)^N ≤ (1−ημ) / [(1+λ)(1 + 4r(1+1/(ημ))L²)]

    Theorem 1. It is Θ(κ ln κ) for α = η = 1/L and λ = 1, which is the N of Corollary 1.
    """
    t = contraction("alpha", alpha, constants.mu)
    room = 1.0 - contraction("eta", eta, constants.mu)
    N = steps_to_decay(t, room / ((1.0 + positive("lam", lam)) * coupling(constants, eta, Q)))
    # the quotient above is rounded differently from the two sides: the condition decides
    if not condition_theorem1(constants, N, Q, alpha, eta, lam).holds:
        return N + 1
    if N > 1 and condition_theorem1(constants, N - 1, Q, alpha, eta, lam).holds:
        return N - 1
    return N


def beta_theorem1(constants: Constants, Q: int, eta: float, lam: float) -> float:
    """The outer step size that Theorem 1 prescribes.

    β = min{ 1/(12L_Φ), √(ημ / (18L²w̃)) }

    Theorem 1.
    """
    return min(*_beta_limits(constants, Q, eta, lam))


def theorem1(
    constants: Constants,
    start: Start,
    N: int,
    Q: int,
    alpha: float,
    eta: float,
    lam: float,
    beta: float | None = None,
) -> Certificate:
    """Theorem 1 for any N and Q, with y and v warm-started. β is the prescribed one unless given.

    (1/K) Σ ‖∇Φ(x_k)‖² ≤ 8Δ_Φ/(βK) + 21L²δ_0/(ημK)

    The statement prescribes β with equality; its proof needs only ≤, and also α ≤ 1/L and η ≤
    1/L, unstated.
    """
    c = constants
    t = contraction("eta", eta, c.mu)
    smooth_limit, error_limit = _beta_limits(c, Q, eta, lam)
    beta = min(smooth_limit, error_limit) if beta is None else positive("beta", beta)
    return Certificate(
        statement="Theorem 1",
        constants=c,
        start=start,
        N=N,
        Q=Q,
        alpha=alpha,
        eta=eta,
        lam=lam,
        beta=beta,
        conditions=(
            Condition("α ≤ 1/L", alpha, 1.0 / c.L),
            Condition("η ≤ 1/L", eta, 1.0 / c.L),
            condition_theorem1(c, N, Q, alpha, eta, lam),
            Condition("β ≤ 1/(12L_Φ)", beta, smooth_limit),
            Condition("β ≤ √(ημ/(18L²w̃))", beta, error_limit),
        ),
        gap_term=8.0 * start.gap / beta,
        start_term=21.0 * c.L**2 * delta0_theorem1(c, start) / t,
        floor=0.0,
    )


def corollary1(constants: Constants, start: Start, Q: int = 1, N: int | None = None) -> Certificate:
    """The N-loop: N = Θ(κ ln κ), Q = Θ(1). N is the smallest that Theorem 1 accepts unless given.

    η = α = 1/L,  λ = 1,  β of Theorem 1

    Corollary 1: κ⁴/K, Gc = κ⁵/ε, MV = κ⁴/ε.
    """
    step = 1.0 / constants.L
    if N is None:
        N = smallest_N_theorem1(constants, Q, step, step, 1.0)
    return _named("Corollary 1", theorem1(constants, start, N, Q, step, step, 1.0))


def corollary2(constants: Constants, start: Start, Q: int = 1) -> Certificate:
    """The No-loop: N = 1, Q = Θ(1).

    α = 1/L,  λ = αμ/2,  η = min{ αμ²/(128Q²L²), α/4, 1/(μQ) },  β of Theorem 1

    Corollary 2: κ⁶/K, Gc = MV = κ⁶/ε. The first of the three is always the least, for μ ≤ L.
    """
    c, Q = constants, count("Q", Q)
    alpha = 1.0 / c.L
    eta = min(alpha / (128.0 * (Q * c.kappa) ** 2), alpha / 4.0, 1.0 / (c.mu * Q))
    return _named("Corollary 2", theorem1(c, start, 1, Q, alpha, eta, alpha * c.mu / 2.0))


def _beta_limits(c: Constants, Q: int, eta: float, lam: float) -> tuple[float, float]:
    w = w_tilde_theorem1(c, Q, eta, lam)
    t = contraction("eta", eta, c.mu)
    return 1.0 / (12.0 * c.L_Phi), math.sqrt(t / (18.0 * w)) / c.L if w > 0.0 else math.inf


def _named(statement: str, certificate: Certificate) -> Certificate:
    return replace(certificate, statement=statement)
