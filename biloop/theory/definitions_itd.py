"""The quantities that Theorem 3 on ITD defines: one function per definition."""

import math

from biloop.theory.checks import contraction, count
from biloop.theory.constants import Constants, Start
from biloop.theory.powers import (
    decay,
    decay_complement,
    decay_complement_with_factor,
    one_minus_sqrt_one_minus,
)


def w_N(constants: Constants, N: int, alpha: float) -> float:
    """How far a bad start of the N-loop moves the Jacobian ∂y^N/∂x.

    w_N = α (ρ + αρL S)(1−αμ)^{N/2−1} S,   S = (1 − (1−αμ)^{N/2}) / (1 − √(1−αμ))

    Theorem 3 and Lemma 4.
    """
    c, N = constants, count("N", N)
    t = _strict_contraction(c, alpha)
    S = decay_complement(t, N / 2) / one_minus_sqrt_one_minus(t)
    return alpha * c.rho * (1.0 + alpha * c.L * S) * decay(t, N / 2 - 1) * S


def lambda_N(constants: Constants, N: int, alpha: float) -> float:
    """Weight with which Lemma 5 adds the inner error before the hypergradient error is taken off.

    λ_N = [4M²w_N² + 4(1−¼αμ) L²(1+αLN)²] / [1 − ¼αμ − (1−αμ)^N (1+½αμ)]

    Theorem 3 and Lemma 5.
    """
    return inner_weight(constants, N, alpha) + itd_sensitivity(constants, N, alpha)


def inner_weight(constants: Constants, N: int, alpha: float) -> float:
    """Weight of the inner error in the δ_k of Lemma 5, which as a difference cancels for large N.

    λ_N − 4L²(1+αLN)² = [4M²w_N² + 4L²(1+αLN)² (1−αμ)^N (1+½αμ)] / [1 − ¼αμ − (1−αμ)^N (1+½αμ)]

    Lemma 5.
    """
    c = constants
    t = _strict_contraction(c, alpha)
    memory = 4.0 * (c.M * w_N(c, N, alpha)) ** 2
    carried = itd_sensitivity(c, N, alpha) * decay(t, N) * (1.0 + t / 2.0)
    # for N = 1 it is αμ/4 + (αμ)²/2: the difference is taken between small parts, not near 1
    denominator = decay_complement_with_factor(t, N, t / 2.0) - t / 4.0
    return (memory + carried) / denominator


def itd_sensitivity(constants: Constants, N: int, alpha: float) -> float:
    """How far the final inner error moves the ITD hypergradient, squared, in a sum of four terms.

    4L²(1+αLN)²

    Lemma 5.
    """
    return 4.0 * (constants.L * (1.0 + alpha * constants.L * count("N", N))) ** 2


def w_theorem3(constants: Constants, N: int, alpha: float) -> float:
    """How much a step of x adds to the error that Lemma 5 follows.

    w = (1+2/(αμ)) (L²/μ²)(1−αμ)^N λ_N + 4M²w_N²L²/μ²

    Theorem 3 and Lemma 5.
    """
    c = constants
    t = _strict_contraction(c, alpha)
    inner = (1.0 + 2.0 / t) * decay(t, N) * lambda_N(c, N, alpha)
    return c.kappa**2 * (inner + 4.0 * (c.M * w_N(c, N, alpha)) ** 2)


def tau_theorem3(constants: Constants, N: int, alpha: float) -> float:
    """The factor of Δ_y in Theorem 3 as printed, with its hidden constants left out.

    τ = N²(1−αμ)^N + w_N² + λ_N (1−αμ)^N

    Theorem 3. Its first two terms lack L⁴α² and M²: no bound here uses it, see `delta0_theorem3`.
    """
    c = constants
    shrink = decay(_strict_contraction(c, alpha), N)
    return N**2 * shrink + w_N(c, N, alpha) ** 2 + lambda_N(c, N, alpha) * shrink


def delta0_theorem3(constants: Constants, N: int, alpha: float, start: Start) -> float:
    """What δ_0 of Lemma 5 is at most, with the constants of the proof.

    δ_0 ≤ [(λ_N − L²(1+αLN)²)(1−αμ)^N + 3M²w_N²] D² + 3(M²L²/μ²)(1−αμ)^{2N},   D = ‖y_0 − y*(x_0)‖

    Proof of Theorem 3. The hypergradient error at k = 0 is a sum of three terms, hence 3 × their
    squares, and 3L²(1+αLN)² − 4L²(1+αLN)² is what is left beside λ_N.
    """
    c = constants
    shrink = decay(_strict_contraction(c, alpha), N)
    inner = inner_weight(c, N, alpha) + 0.75 * itd_sensitivity(c, N, alpha)
    memory = 3.0 * (c.M * w_N(c, N, alpha)) ** 2
    jacobian = 3.0 * math.pow(c.M * c.kappa * shrink, 2)
    return (inner * shrink + memory) * start.y_distance**2 + jacobian


def floor_theorem3(constants: Constants, N: int, alpha: float) -> float:
    """What remains of the bound of Theorem 3 as K → ∞: N steps know ∂y*/∂x only to (1−αμ)^N.

    48 M²L²(1−αμ)^{2N} / (αμ³)

    Theorem 3, with the constant of its proof: 4 × (½ + βL_Φ ≤ ¾) × 16.
    """
    c = constants
    t = _strict_contraction(c, alpha)
    return 48.0 * math.pow(c.M * c.kappa * decay(t, N), 2) / t


def _strict_contraction(constants: Constants, alpha: float) -> float:
    t = contraction("alpha", alpha, constants.mu)
    if t == 1.0:
        raise ValueError(f"alpha must be less than 1/mu = {1.0 / constants.mu!r}, got {alpha!r}")
    return t
