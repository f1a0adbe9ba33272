"""Theorem 2: AID with v started from zero. Corollary 3 (N-Q-loop) and Corollary 4 (Q-loop)."""

import math
from dataclasses import replace

from biloop.theory.certificate import Certificate, Condition, settle
from biloop.theory.checks import contraction, count, positive
from biloop.theory.constants import Constants, Start
from biloop.theory.definitions_aid import (
    delta0_theorem2,
    floor_theorem2,
    one_minus_tau_theorem2,
    w_theorem2,
)
from biloop.theory.powers import decay_complement_with_factor, steps_to_decay


def condition_theorem2(
    constants: Constants, N: int, Q: int, alpha: float, eta: float, lam: float, beta: float
) -> Condition:
    """The condition on the outer step size.

    βL_Φ + wβ² (½ + βL_Φ) / (1−τ) ≤ ¼

    Theorem 2. The left side is ∞ when τ ≥ 1.
    """
    c = constants
    smooth = beta * c.L_Phi
    gap = one_minus_tau_theorem2(c, N, Q, alpha, eta, lam, beta)
    w = w_theorem2(c, N, Q, alpha, eta, lam)
    left = smooth + w * beta**2 * (0.5 + smooth) / gap if gap > 0.0 else math.inf
    return Condition("βL_Φ + wβ²(½+βL_Φ)/(1−τ) ≤ ¼", left, 0.25)


def largest_beta_theorem2(
    constants: Constants, N: int, Q: int, alpha: float, eta: float, lam: float
) -> float:
    """Largest β for which the condition of Theorem 2 holds; 0 when (1−αμ)^N (1+λ) ≥ 1.

    ¾wβ² + (1−c) L_Φ β − ¼(1−c) = 0,   c = (1−αμ)^N (1+λ)

    Theorem 2: τ = c + wβ² there, and the condition multiplied by 1−τ is this quadratic, whose
    cubic terms cancel. At its root wβ² < (1−c)/3, so that τ < 1 comes for free.
    """
    c = constants
    t = contraction("alpha", alpha, c.mu)
    room = decay_complement_with_factor(t, count("N", N), positive("lam", lam))
    if room <= 0.0:
        return 0.0
    linear = room * c.L_Phi
    w = w_theorem2(c, N, Q, alpha, eta, lam)
    # the root written 2c/(b + √(b² + 4ac)): the textbook form cancels when w is small
    beta = 0.5 * room / (linear + math.hypot(linear, math.sqrt(0.75 * w * room)))
    return settle(lambda beta: condition_theorem2(c, N, Q, alpha, eta, lam, beta), beta)


def smallest_Q_theorem2(constants: Constants, eta: float, target: float) -> int:
    """Smallest Q for which the floor of Theorem 2 is at most `target`.

    (27L²M²/μ²)(1−ημ)^{2Q} ≤ target

    Theorem 2. It is ½κ ln(27κ²M²/target): the Θ(κ ln(κ/ε)) of Corollaries 3 and 4, not Table 1's
    Θ(κ ln κ).
    """
    c = constants
    t = contraction("eta", eta, c.mu)
    full = 27.0 * (c.kappa * c.M) ** 2
    if full == 0.0:
        return 1
    Q = steps_to_decay(t, math.sqrt(positive("target", target) / full))
    return Q if floor_theorem2(c, Q, eta) <= target else Q + 1


def theorem2(
    constants: Constants,
    start: Start,
    N: int,
    Q: int,
    alpha: float,
    eta: float,
    lam: float,
    beta: float | None = None,
) -> Certificate:
    """Theorem 2 for any N and Q, with v_k^0 = 0. β is the largest allowed unless given.

    (1/K) Σ ‖∇Φ(x_k)‖² ≤ 4Δ_Φ/(βK) + 3δ_0/((1−τ)K) + (27L²M²/μ²)(1−ημ)^{2Q}

    The proof also needs α ≤ 1/L and η ≤ 1/L, unstated.
    """
    c = constants
    if beta is None:
        beta = largest_beta_theorem2(c, N, Q, alpha, eta, lam)
    else:
        beta = positive("beta", beta)
    gap = one_minus_tau_theorem2(c, N, Q, alpha, eta, lam, beta)
    delta0 = delta0_theorem2(c, N, Q, alpha, eta, start)
    return Certificate(
        statement="Theorem 2",
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
            # τ itself may round to 1 for N = 1 and large κ; 1−τ does not
            Condition("0 < 1−τ", 0.0, gap, strict=True),
            condition_theorem2(c, N, Q, alpha, eta, lam, beta),
        ),
        gap_term=4.0 * start.gap / beta if beta > 0.0 else math.inf,
        start_term=3.0 * delta0 / gap if gap > 0.0 else math.inf,
        floor=floor_theorem2(c, Q, eta),
    )


def corollary3(
    constants: Constants, start: Start, eps: float, N: int | None = None, Q: int | None = None
) -> Certificate:
    """The N-Q-loop: N = Θ(κ ln κ), Q = Θ(κ ln(κ/ε)).

    η = α = 1/L,  λ = 1,  N = ⌈2κ ln κ⌉,  Q the smallest with floor ≤ ε/2,  β the largest

    Corollary 3: κ³/K + ε, Gc = MV = κ⁴/ε. The constants of N and Q are ours; the paper leaves
    them open.
    """
    c = constants
    step = 1.0 / c.L
    if N is None:
        N = max(1, math.ceil(2.0 * c.kappa * math.log(c.kappa)))
    if Q is None:
        Q = smallest_Q_theorem2(c, step, positive("eps", eps) / 2.0)
    return replace(theorem2(c, start, N, Q, step, step, 1.0), statement="Corollary 3")


def corollary4(constants: Constants, start: Start, eps: float, Q: int | None = None) -> Certificate:
    """The Q-loop: N = 1, Q = Θ(κ ln(κ/ε)).

    η = α = 1/L,  λ = αμ/2,  Q the smallest with floor ≤ ε/2,  β the largest

    Corollary 4: κ⁵/K + κ⁴/K + ε, Gc = κ⁵/ε, MV = κ⁶/ε.
    """
    c = constants
    step = 1.0 / c.L
    if Q is None:
        Q = smallest_Q_theorem2(c, step, positive("eps", eps) / 2.0)
    certificate = theorem2(c, start, 1, Q, step, step, step * c.mu / 2.0)
    return replace(certificate, statement="Corollary 4")
