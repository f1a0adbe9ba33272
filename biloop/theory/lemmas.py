"""Right-hand sides of the lemmas, so that a run can be audited step by step.

All errors are squared norms unless the name says `distance` or `norm`. Arguments that come from a
run may be floats or arrays over k; the answer has their shape. The left-hand side is always the
quantity of the current step.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from biloop.theory.checks import contraction, count, positive
from biloop.theory.constants import Constants
from biloop.theory.definitions_aid import C_Q, w_theorem1
from biloop.theory.definitions_itd import inner_weight, w_N, w_theorem3
from biloop.theory.powers import decay

Real = TypeVar("Real", float, NDArray[np.float64])


def response_lipschitz(constants: Constants) -> float:
    """Lipschitz constant of y*, and bound of ‖∂y*/∂x‖.

    ‖y*(x) − y*(x')‖ ≤ (L/μ) ‖x − x'‖

    Lemma 2.2 of Ghadimi and Wang, used in Lemma 2.
    """
    return constants.kappa


def adjoint_lipschitz(constants: Constants) -> float:
    """Lipschitz constant of v* as a function of x.

    ‖v*_k − v*_{k−1}‖ ≤ (L/μ + Mρ/μ²)(L/μ + 1) ‖x_k − x_{k−1}‖

    Proof of Lemma 1.
    """
    c = constants
    return (c.kappa + c.M * c.rho / c.mu**2) * (c.kappa + 1.0)


def aid_hypergradient_error(constants: Constants, y_error: Real, v_error: Real) -> Real:
    """Bound of ‖∇̂Φ(x_k) − ∇Φ(x_k)‖² for AID by the errors of its two loops.

    (3L² + 3ρ²M²/μ²) ‖y_k* − y_k^N‖² + 3L² ‖v_k* − v_k^Q‖²

    Step 1 of the sketch; proof of Lemma 3.
    """
    c = constants
    return 3.0 * c.L**2 * ((1.0 + c.curvature_ratio**2) * y_error + v_error)


def lemma1_adjoint_error(
    constants: Constants, Q: int, eta: float, previous_v_error: Real, y_error: Real, x_move: Real
) -> Real:
    """Bound of ‖v_k^Q − v_k*‖² with v warm-started.

    (1+ημ)(1−ημ)^{2Q} ‖v_{k−1}^Q − v_{k−1}*‖² + 2(1+1/(ημ)) C_Q² ‖y_k* − y_k^N‖²
    + 2(1−ημ)^{2Q} (1+1/(ημ)) (L/μ + Mρ/μ²)² (L/μ+1)² ‖x_k − x_{k−1}‖²

    Lemma 1; needs η ≤ 1/L.
    """
    c = constants
    t = contraction("eta", eta, c.mu)
    shrink, young = decay(t, 2 * count("Q", Q)), 1.0 + 1.0 / t
    return (
        (1.0 + t) * shrink * previous_v_error
        + 2.0 * young * C_Q(c, eta, Q) ** 2 * y_error
        + 2.0 * shrink * young * adjoint_lipschitz(c) ** 2 * x_move
    )


def adjoint_error_from_zero(constants: Constants, Q: int, eta: float, y_error: Real) -> Real:
    """Bound of ‖v_k^Q − v_k*‖² with v_k^0 = 0.

    2C_Q² ‖y_k* − y_k^N‖² + 2(1−ημ)^{2Q} M²/μ²

    Proof of Theorem 2; needs η ≤ 1/L.
    """
    c = constants
    shrink = decay(contraction("eta", eta, c.mu), 2 * count("Q", Q))
    return 2.0 * C_Q(c, eta, Q) ** 2 * y_error + 2.0 * shrink * (c.M / c.mu) ** 2


def inner_contraction(constants: Constants, N: int, alpha: float, start_error: Real) -> Real:
    """Bound of ‖y_k^N − y_k*‖² by the error at the start of the N-loop.

    (1−αμ)^N ‖y_k^0 − y_k*‖²

    Proof of Lemma 2; needs α ≤ 1/L, and is loose: gradient descent gives (1−αμ)^{2N}.
    """
    return decay(contraction("alpha", alpha, constants.mu), count("N", N)) * start_error


def lemma2_inner_error(
    constants: Constants, N: int, alpha: float, lam: float, previous_y_error: Real, x_move: Real
) -> Real:
    """Bound of ‖y_k^N − y_k*‖² with y warm-started.

    (1−αμ)^N (1+λ) ‖y_{k−1}^N − y_{k−1}*‖² + (1−αμ)^N (1+1/λ)(L²/μ²) ‖x_k − x_{k−1}‖²

    Lemma 2, for any λ > 0; needs α ≤ 1/L.
    """
    c, lam = constants, positive("lam", lam)
    shrink = decay(contraction("alpha", alpha, c.mu), count("N", N))
    return (
        shrink * (1.0 + lam) * previous_y_error + shrink * (1.0 + 1.0 / lam) * c.kappa**2 * x_move
    )


def lemma3_step(
    constants: Constants,
    N: int,
    Q: int,
    alpha: float,
    eta: float,
    lam: float,
    previous_delta: Real,
    x_move: Real,
) -> Real:
    """Bound of δ_k = (1+ρ²M²/(L²μ²)) ‖y_k^N − y_k*‖² + ‖v_k^Q − v_k*‖², for any move of x.

    (1−ημ) δ_{k−1} + w ‖x_k − x_{k−1}‖²

    Proof of Lemma 3; needs the condition of Theorem 1.
    """
    t = contraction("eta", eta, constants.mu)
    w = w_theorem1(constants, N, Q, alpha, eta, lam)
    return (1.0 - t) * previous_delta + w * x_move


def lemma3_hypergradient_error(
    constants: Constants,
    N: int,
    Q: int,
    alpha: float,
    eta: float,
    lam: float,
    beta: float,
    delta0: float,
    gradients: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Bound of ‖∇̂Φ(x_k) − ∇Φ(x_k)‖² for every k, from δ_0 and ‖∇Φ(x_0)‖², ‖∇Φ(x_1)‖², ...

    3L² q^k δ_0 + 6wL²β² Σ_{j<k} q^j ‖∇Φ(x_{k−1−j})‖²,   q = 1 − ημ + 6wL²β²

    Lemma 3; needs the condition of Theorem 1.
    """
    c = constants
    growth = 6.0 * w_theorem1(c, N, Q, alpha, eta, lam) * (c.L * beta) ** 2
    rate = 1.0 - contraction("eta", eta, c.mu) + growth
    return _discounted(rate, 3.0 * c.L**2 * delta0, growth * gradients)


def lemma4_jacobian_error(
    constants: Constants, N: int, alpha: float, response_norm: Real, start_distance: Real
) -> Real:
    """Bound of ‖∂y_k^N/∂x_k − ∂y*(x_k)/∂x_k‖.

    (1−αμ)^N ‖∂y*(x_k)/∂x_k‖ + w_N ‖y_k^0 − y*(x_k)‖

    Lemma 4; needs α ≤ 1/L.
    """
    c = constants
    shrink = decay(contraction("alpha", alpha, c.mu), count("N", N))
    return shrink * response_norm + w_N(c, N, alpha) * start_distance


def itd_hypergradient_distance(
    constants: Constants, N: int, alpha: float, y_distance: Real, jacobian_distance: Real
) -> Real:
    """Bound of ‖∇̂Φ(x_k) − ∇Φ(x_k)‖ for ITD, not squared.

    L(1+αLN) ‖y_k^N − y*(x_k)‖ + M ‖∂y_k^N/∂x_k − ∂y*(x_k)/∂x_k‖

    Proof of Lemma 5; needs α ≤ 1/L.
    """
    c = constants
    return c.L * (1.0 + alpha * c.L * count("N", N)) * y_distance + c.M * jacobian_distance


def delta_lemma5(
    constants: Constants, N: int, alpha: float, hypergradient_error: Real, y_error: Real
) -> Real:
    """The error Lemma 5 follows through a run, from squared norms.

    δ_k = ‖∇̂Φ(x_k) − ∇Φ(x_k)‖² + (λ_N − 4L²(1+αLN)²) ‖y_k^N − y*(x_k)‖²

    Lemma 5.
    """
    return hypergradient_error + inner_weight(constants, N, alpha) * y_error


def lemma5_step(
    constants: Constants,
    N: int,
    alpha: float,
    beta: float,
    previous_delta: Real,
    response_norm: Real,
    previous_gradient: Real,
) -> Real:
    """Bound of δ_k by the step before.

    4M² ‖∂y*(x_k)/∂x_k‖² (1−αμ)^{2N} + (1−¼αμ) δ_{k−1} + 2wβ² ‖∇Φ(x_{k−1})‖²

    Proof of Lemma 5; needs α ≤ 1/(2L) and β² ≤ (1−¼αμ)/(2w).
    """
    c = constants
    t = contraction("alpha", alpha, c.mu)
    shrink = 4.0 * (c.M * decay(t, count("N", N))) ** 2
    growth = 2.0 * w_theorem3(c, N, alpha) * beta**2
    return shrink * response_norm**2 + (1.0 - t / 4.0) * previous_delta + growth * previous_gradient


def lemma5_error(
    constants: Constants,
    N: int,
    alpha: float,
    beta: float,
    delta0: float,
    response_norms: NDArray[np.float64],
    gradients: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Bound of δ_k for every k, from δ_0, ‖∂y*(x_k)/∂x_k‖ and ‖∇Φ(x_k)‖² along the run.

    q^k δ_0 + (1−αμ)^{2N} J_k + 2wβ² Σ_{j<k} q^{k−1−j} ‖∇Φ(x_j)‖²,   q = 1 − ¼αμ,
    J_k = Σ_{j<k} q^j 4M² ‖∂y*(x_{k−j})/∂x_{k−j}‖²

    Lemma 5; needs α ≤ 1/(2L) and β² ≤ (1−¼αμ)/(2w).
    """
    c = constants
    t = contraction("alpha", alpha, c.mu)
    shrink = 4.0 * (c.M * decay(t, count("N", N))) ** 2
    source = 2.0 * w_theorem3(c, N, alpha) * beta**2 * gradients
    source[:-1] += shrink * response_norms[1:] ** 2
    return _discounted(1.0 - t / 4.0, delta0, source)


def descent(
    constants: Constants, beta: float, value: Real, gradient: Real, hypergradient_error: Real
) -> Real:
    """Bound of Φ(x_{k+1}) after x_{k+1} = x_k − β∇̂Φ(x_k).

    Φ(x_k) − (β/2 − β²L_Φ) ‖∇Φ(x_k)‖² + (β/2 + β²L_Φ) ‖∇Φ(x_k) − ∇̂Φ(x_k)‖²

    The first display of the proofs of Theorems 1, 2 and 3.
    """
    smooth = beta**2 * constants.L_Phi
    return value - (beta / 2 - smooth) * gradient + (beta / 2 + smooth) * hypergradient_error


def _discounted(rate: float, first: float, source: NDArray[np.float64]) -> NDArray[np.float64]:
    # a_0 = first, a_k = rate a_{k−1} + source_{k−1}: the telescoped sums of Lemmas 3 and 5
    bound = np.empty_like(source)
    bound[0] = first
    for k in range(1, len(source)):
        bound[k] = rate * bound[k - 1] + source[k - 1]
    return bound
