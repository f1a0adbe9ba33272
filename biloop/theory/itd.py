"""Theorem 3: ITD with warm start. Corollary 5 (N-N-loop) and Corollary 6 (No-loop)."""

import math
from dataclasses import replace

from biloop.theory.certificate import Certificate, Condition, settle
from biloop.theory.checks import contraction, count, positive
from biloop.theory.constants import Constants, Start
from biloop.theory.definitions_itd import delta0_theorem3, floor_theorem3, w_theorem3
from biloop.theory.powers import steps_to_decay


def condition_theorem3(constants: Constants, N: int, alpha: float, beta: float) -> Condition:
    """The condition on the outer step size.

    βL_Φ + (8/(αμ)) (½ + βL_Φ) wβ² ≤ ¼

    Theorem 3, printed with <. The proof needs only ≤, and the step size of Corollaries 5 and 6
    can reach it.
    """
    c = constants
    smooth = beta * c.L_Phi
    error = 8.0 / contraction("alpha", alpha, c.mu) * w_theorem3(c, N, alpha) * beta**2
    return Condition("βL_Φ + 8/(αμ)(½+βL_Φ)wβ² ≤ ¼", smooth + (0.5 + smooth) * error, 0.25)


def beta_recursion_limit(constants: Constants, N: int, alpha: float) -> float:
    """Largest β for which Lemma 5's error contracts.

    β² ≤ (1 − ¼αμ) / (2w)

    Theorem 3 and Lemma 5.
    """
    w = w_theorem3(constants, N, alpha)
    quarter = contraction("alpha", alpha, constants.mu) / 4.0
    return math.sqrt((1.0 - quarter) / (2.0 * w)) if w > 0.0 else math.inf


def largest_beta_theorem3(constants: Constants, N: int, alpha: float) -> float:
    """Largest β for which both conditions of Theorem 3 hold.

    8s u³ + 4s u² + u = ¼,   u = βL_Φ,  s = w/(αμL_Φ²),   and β ≤ √((1−¼αμ)/(2w))

    Theorem 3. The cubic is convex and increasing for u > 0, so that Newton's method started at u
    = ¼, above the root, falls monotonically onto it.
    """
    c = constants
    s = w_theorem3(c, N, alpha) / (contraction("alpha", alpha, c.mu) * c.L_Phi**2)
    u, previous = 0.25, math.inf
    while u < previous:
        previous = u
        value = ((8.0 * s * u + 4.0 * s) * u + 1.0) * u - 0.25
        u -= value / ((24.0 * s * u + 8.0 * s) * u + 1.0)
    beta = min(previous / c.L_Phi, beta_recursion_limit(c, N, alpha))
    return settle(lambda beta: condition_theorem3(c, N, alpha, beta), beta)


def beta_corollary5(constants: Constants, N: int, alpha: float) -> float:
    """The outer step size of Corollaries 5 and 6.

    β = min{ √(αμ/(40w)), √((1−¼αμ)/(2w)), 1/(8L_Φ) }

    Corollaries 5 and 6. The second is never the least: αμ/40 ≤ (1−¼αμ)/2.
    """
    c = constants
    w = w_theorem3(c, N, alpha)
    t = contraction("alpha", alpha, c.mu)
    error_limit = math.sqrt(t / (40.0 * w)) if w > 0.0 else math.inf
    return min(error_limit, beta_recursion_limit(c, N, alpha), 1.0 / (8.0 * c.L_Phi))


def smallest_N_theorem3(constants: Constants, alpha: float, target: float) -> int:
    """Smallest N for which the floor of Theorem 3 is at most `target`.

    48 M²L²(1−αμ)^{2N} / (αμ³) ≤ target

    Theorem 3. For α = 1/(2L) it is about κ ln(96κ³M²/target): Θ(κ ln(κ/ε)) with a constant of 3
    before ln κ.
    """
    c = constants
    t = contraction("alpha", alpha, c.mu)
    full = 48.0 * (c.kappa * c.M) ** 2 / t
    if full == 0.0:
        return 1
    N = steps_to_decay(t, math.sqrt(positive("target", target) / full))
    return N if floor_theorem3(c, N, alpha) <= target else N + 1


def theorem3(
    constants: Constants, start: Start, N: int, alpha: float, beta: float | None = None
) -> Certificate:
    """Theorem 3 for any N, with the constants of its proof. β is the largest allowed unless given.

    (1/K) Σ ‖∇Φ(x_k)‖² ≤ 4Δ_Φ/(βK) + 12δ_0/(αμK) + 48M²L²(1−αμ)^{2N}/(αμ³)

    The statement hides constants in O(·). They follow from its last display with coefficient ½ −
    ¼ on the left, ½ + βL_Φ ≤ ¾ on the right, Σ J_k ≤ (16M²/(αμ)) K L²/μ², and δ_0 of
    `delta0_theorem3`.
    """
    c = constants
    t = contraction("alpha", alpha, c.mu)
    beta = largest_beta_theorem3(c, N, alpha) if beta is None else positive("beta", beta)
    return Certificate(
        statement="Theorem 3",
        constants=c,
        start=start,
        N=N,
        Q=None,
        alpha=alpha,
        eta=None,
        lam=None,
        beta=beta,
        conditions=(
            Condition("α ≤ 1/(2L)", alpha, 1.0 / (2.0 * c.L)),
            Condition("β ≤ √((1−¼αμ)/(2w))", beta, beta_recursion_limit(c, N, alpha)),
            condition_theorem3(c, N, alpha, beta),
        ),
        gap_term=4.0 * start.gap / beta,
        start_term=12.0 * delta0_theorem3(c, N, alpha, start) / t,
        floor=floor_theorem3(c, N, alpha),
    )


def corollary5(constants: Constants, start: Start, eps: float, N: int | None = None) -> Certificate:
    """The N-N-loop: N = Θ(κ ln(κ/ε)), twice the smallest whose floor is at most ε/2 unless given.

    α = 1/(2L),  β = min{ √(αμ/(40w)), √((1−¼αμ)/(2w)), 1/(8L_Φ) }

    Corollary 5: κ³/K + ε, Gc = MV = κ⁴/ε. The smallest N alone leaves κ^3.5/K, through the term
    36M²w_N²‖y_0 − y*‖²/(αμK) with w_N² ~ κ⁴(1−αμ)^N; twice that N makes it κ²/K.
    """
    alpha = 1.0 / (2.0 * constants.L)
    if N is None:
        N = 2 * smallest_N_theorem3(constants, alpha, positive("eps", eps) / 2.0)
    beta = beta_corollary5(constants, N, alpha)
    return replace(theorem3(constants, start, N, alpha, beta), statement="Corollary 5")


def corollary6(constants: Constants, start: Start, N: int = 1) -> Certificate:
    """The No-loop: N = Θ(1).

    α = 1/(2NL),  β as in Corollary 5

    Corollary 6: κ³/K + M²L²/(αμ³), so that no ε below the floor can be certified.
    """
    alpha = 1.0 / (2.0 * count("N", N) * constants.L)
    beta = beta_corollary5(constants, N, alpha)
    return replace(theorem3(constants, start, N, alpha, beta), statement="Corollary 6")
