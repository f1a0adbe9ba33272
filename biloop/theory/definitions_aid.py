"""The quantities that Theorems 1 and 2 on AID define: one function per definition."""

import math

from biloop.theory.checks import contraction, count, nonnegative, positive
from biloop.theory.constants import Constants, Start
from biloop.theory.powers import (
    decay,
    decay_complement,
    decay_complement_with_factor,
    weighted_geometric_sum,
)


def C_Q(constants: Constants, eta: float, Q: int) -> float:
    """How far an inner error moves the adjoint after Q steps: ‖v^Q − v*‖ ≤ C_Q ‖y^N − y*‖ + ...

    C_Q = Q(1−ημ)^{Q−1} ρMη/μ + [1 − (1−ημ)^Q (1+ηQμ)] ρM/μ² + (1 − (1−ημ)^Q) L/μ

    Theorem 1 and Lemma 1. The sum behind the bracket ends at q = Q−1; the printed form, kept
    here, adds q = Q.
    """
    c, Q = constants, count("Q", Q)
    t = contraction("eta", eta, c.mu)
    hessian = c.rho * c.M / c.mu
    return (
        Q * decay(t, Q - 1) * hessian * eta
        + weighted_geometric_sum(t, Q) * hessian / c.mu
        + decay_complement(t, Q) * c.kappa
    )


def r(constants: Constants, eta: float, Q: int) -> float:
    """C_Q² in units of the sensitivity of the adjoint equation.

    r = C_Q² / (ρM/μ + L)²

    Theorem 1 and Lemma 3.
    """
    c = constants
    return (C_Q(c, eta, Q) / (c.rho * c.M / c.mu + c.L)) ** 2


def coupling(constants: Constants, eta: float, Q: int) -> float:
    """The factor by which the adjoint amplifies the inner error in the condition of Theorem 1.

    1 + 4r (1 + 1/(ημ)) L²

    Theorem 1 and Lemma 3.
    """
    c = constants
    t = contraction("eta", eta, c.mu)
    return 1.0 + 4.0 * r(c, eta, Q) * (1.0 + 1.0 / t) * c.L**2


def w_theorem1(constants: Constants, N: int, Q: int, alpha: float, eta: float, lam: float) -> float:
    """How much a move of x adds to the error δ_k: δ_k ≤ (1−ημ) δ_{k−1} + w ‖x_k − x_{k−1}‖².

    w = (1+1/λ)(1−αμ)^N (1+ρ²M²/(L²μ²)) L²/μ²
        + 4(1+1/(ημ)) (L⁴/μ²)(1+ρ²M²/(L²μ²)) [4(1−ημ)^{2Q}/μ² + r(1−αμ)^N(1+1/λ)]

    Lemma 3.
    """
    c, lam = constants, positive("lam", lam)
    t = contraction("eta", eta, c.mu)
    shrink = (1.0 + 1.0 / lam) * decay(contraction("alpha", alpha, c.mu), count("N", N))
    bend = 1.0 + c.curvature_ratio**2
    adjoint = 4.0 * decay(t, 2 * Q) / c.mu**2 + r(c, eta, Q) * shrink
    return shrink * bend * c.kappa**2 + 4.0 * (1.0 + 1.0 / t) * c.L**2 * c.kappa**2 * bend * adjoint


def w_tilde_theorem1(constants: Constants, Q: int, eta: float, lam: float) -> float:
    """The upper bound of w from which Theorem 1 prescribes β.

    w̃ = (1−ημ)ημ/(3λrL²) (1+ρ²M²/(L²μ²)) L²/μ²
        + (1+1/(ημ)) (L²+ρ²M²/μ²) [16(1−ημ)^{2Q}/μ² + 4(1−ημ)ημ/(3λL²)] L²/μ²

    Theorem 1. w ≤ w̃ follows from its condition alone, through 1 + 4r(1+1/(ημ))L² ≥ 4rL²/(ημ);
    the paper's "r > 1" is neither true nor needed.
    """
    c, lam = constants, positive("lam", lam)
    t = contraction("eta", eta, c.mu)
    slack = (1.0 - t) * t / (3.0 * lam * c.L**2)
    bend = 1.0 + c.curvature_ratio**2
    adjoint = 16.0 * decay(t, 2 * Q) / c.mu**2 + 4.0 * slack
    return (
        slack / r(c, eta, Q) * bend * c.kappa**2
        + (1.0 + 1.0 / t) * c.L**2 * bend * adjoint * c.kappa**2
    )


def delta_theorem1(constants: Constants, y_error: float, v_error: float) -> float:
    """The error Theorem 1 follows through a run, from the norms ‖y_k^N − y_k*‖ and ‖v_k^Q − v_k*‖.

    δ_k = (1+ρ²M²/(L²μ²)) ‖y_k^N − y_k*‖² + ‖v_k^Q − v_k*‖²

    Lemma 3.
    """
    return (1.0 + constants.curvature_ratio**2) * y_error**2 + v_error**2


def delta0_theorem1(constants: Constants, start: Start) -> float:
    """What δ_0 is at most, before anything is computed.

    δ_0 ≤ (1+ρ²M²/(L²μ²)) D² + (3M/μ + 2LD/μ + ‖v_0‖)²,   D = ‖y_0 − y*(x_0)‖

    End of the proof of Theorem 1, which has y_0 = v_0 = 0; its argument gives this form for any
    start.
    """
    c, D = constants, start.y_distance
    return delta_theorem1(c, D, 3.0 * c.M / c.mu + 2.0 * c.kappa * D + start.v_norm)


def hypergradient_sensitivity(constants: Constants, eta: float, Q: int) -> float:
    """How far an inner error moves the hypergradient when the adjoint starts from zero.

    L² + ρ²M²/μ² + 2L²C_Q²

    Theorem 2, where it enters τ, w and δ_0.
    """
    c = constants
    return c.L**2 * (1.0 + c.curvature_ratio**2 + 2.0 * C_Q(c, eta, Q) ** 2)


def w_theorem2(constants: Constants, N: int, Q: int, alpha: float, eta: float, lam: float) -> float:
    """How much a step of x adds to the hypergradient error.

    w = 6(1−αμ)^N (L² + ρ²M²/μ² + 2L²C_Q²)(1+1/λ) L²/μ²

    Theorem 2.
    """
    c, lam = constants, positive("lam", lam)
    shrink = decay(contraction("alpha", alpha, c.mu), count("N", N))
    sensitivity = hypergradient_sensitivity(c, eta, Q)
    return 6.0 * shrink * sensitivity * (1.0 + 1.0 / lam) * c.kappa**2


def tau_theorem2(
    constants: Constants, N: int, Q: int, alpha: float, eta: float, lam: float, beta: float
) -> float:
    """Rate at which the inner error shrinks from one k to the next.

    τ = (1−αμ)^N (1 + λ + 6(1+1/λ)(L² + ρ²M²/μ² + 2L²C_Q²) L²β²/μ²) = (1−αμ)^N (1+λ) + wβ²

    Theorem 2.
    """
    c, beta = constants, nonnegative("beta", beta)
    shrink = decay(contraction("alpha", alpha, c.mu), count("N", N))
    return shrink * (1.0 + lam) + w_theorem2(c, N, Q, alpha, eta, lam) * beta**2


def one_minus_tau_theorem2(
    constants: Constants, N: int, Q: int, alpha: float, eta: float, lam: float, beta: float
) -> float:
    """1 − τ, which for N = 1 is of the order of αμ and would cancel.

    1 − τ = [1 − (1−αμ)^N (1+λ)] − wβ²

    Theorem 2.
    """
    c, beta = constants, nonnegative("beta", beta)
    t = contraction("alpha", alpha, c.mu)
    contracted = decay_complement_with_factor(t, count("N", N), positive("lam", lam))
    return contracted - w_theorem2(c, N, Q, alpha, eta, lam) * beta**2


def delta0_theorem2(
    constants: Constants, N: int, Q: int, alpha: float, eta: float, start: Start
) -> float:
    """The initial distance of Theorem 2.

    δ_0 = 3 (L² + ρ²M²/μ² + 2L²C_Q²)(1−αμ)^N ‖y_0* − y_0‖²

    Theorem 2.
    """
    c = constants
    shrink = decay(contraction("alpha", alpha, c.mu), count("N", N))
    return 3.0 * hypergradient_sensitivity(c, eta, Q) * shrink * start.y_distance**2


def floor_theorem2(constants: Constants, Q: int, eta: float) -> float:
    """What remains of the bound of Theorem 2 as K → ∞, because v starts from zero at every k.

    (27L²M²/μ²)(1−ημ)^{2Q}

    Theorem 2. Its proof gives 18 in place of 27: 24 (½ + βL_Φ)(1 + wβ²/(1−τ)) ≤ 24 (½ + ¼).
    """
    c = constants
    rate = decay(contraction("eta", eta, c.mu), count("Q", Q))
    return 27.0 * math.pow(c.kappa * c.M * rate, 2)
