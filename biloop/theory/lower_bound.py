"""Theorem 4: the instance on which ITD stays away from stationarity, in closed form.

f(x, y) = ½ xᵀZx + M 1ᵀy,   g(x, y) = ½ yᵀZy − L xᵀy + 1ᵀy,   Z = diag(L, μ)

What is true of it, for 0 < α ≤ 1/L and 0 < β ≤ 1/L:

- ∇Φ(x_K) = LM (I−αZ)^N Z⁻¹1 + (I−βZ)^K (Z x_0 + LM Z_N 1), whatever y_0 is. So ‖∇Φ(x_K)‖² tends
  to `floor` from every start and for every N, not only N = O(1).
- It is at least `floor` for every K ≥ 0 if x_0 ≥ `itd_limit` in each coordinate; x_0 = 1 is such
  a start. From below that point single iterates can fall far below the floor.
- AID that starts v from zero has the same floor with N, α replaced by Q, η. AID that warm-starts
  v has none.
- The instance has L and M only up to constants: see `joint_smoothness` and `outer_gradient_norm`.
"""

import math

import numpy as np
from numpy.typing import NDArray

from biloop.theory.checks import contraction, count, positive
from biloop.theory.constants import Constants

Vector = NDArray[np.float64]


def spectrum(constants: Constants) -> Vector:
    """The diagonal of Z_x = Z_y = Z = diag(L, μ). Theorem 4."""
    return np.array([constants.L, constants.mu])


def response(constants: Constants, x: Vector) -> Vector:
    """The inner minimizer.

    y*(x) = Z⁻¹(Lx − 1)

    Theorem 4.
    """
    return (constants.L * x - 1.0) / spectrum(constants)


def outer_value(constants: Constants, x: Vector) -> float:
    """The objective.

    Φ(x) = ½ xᵀZx + M 1ᵀy*(x)

    Theorem 4.
    """
    z = spectrum(constants)
    return float(0.5 * x @ (z * x) + constants.M * response(constants, x).sum())


def outer_gradient(constants: Constants, x: Vector) -> Vector:
    """The hypergradient.

    ∇Φ(x) = Zx + LM Z⁻¹1

    Theorem 4.
    """
    z = spectrum(constants)
    return z * x + constants.L * constants.M / z


def truncated_inverse(constants: Constants, steps: int, step_size: float) -> Vector:
    """The diagonal of what N inner steps know of Z⁻¹.

    Z_N = α Σ_{t<N} (I−αZ)^t = (I − (I−αZ)^N) Z⁻¹

    Theorem 4. With steps = Q and step size η it is what Q steps of the linear solver from zero
    know of it.
    """
    z = spectrum(constants)
    t = step_size * z
    _within(constants, "step_size", step_size)
    return -np.expm1(_log_power(t, count("steps", steps, 0))) / z


def itd_hypergradient(constants: Constants, x: Vector, N: int, alpha: float) -> Vector:
    """The ITD estimate, which does not depend on y.

    ∇̂Φ(x) = Zx + LM Z_N 1

    Theorem 4. It is also AID with v^0 = 0 when N, α are read as Q, η.
    """
    c = constants
    return spectrum(c) * x + c.L * c.M * truncated_inverse(c, N, alpha)


def itd_iterate(
    constants: Constants, x0: Vector, K: int, N: int, alpha: float, beta: float
) -> Vector:
    """The outer iterate after K steps.

    x_K = (I−βZ)^K x_0 − LM Z⁻¹ (I − (I−βZ)^K) Z_N 1

    Theorem 4, where x_0 = 1.
    """
    limit = itd_limit(constants, N, alpha)
    return limit + _power(constants, "beta", beta, count("K", K, 0)) * (x0 - limit)


def itd_limit(constants: Constants, N: int, alpha: float) -> Vector:
    """Where ITD ends, from every start.

    x_∞ = −LM Z⁻¹ Z_N 1

    Theorem 4. From x_0 ≥ x_∞ coordinate by coordinate the floor bounds every iterate from below.
    """
    c = constants
    return -c.L * c.M * truncated_inverse(c, N, alpha) / spectrum(c)


def gradient_along_itd(
    constants: Constants, x0: Vector, K: int, N: int, alpha: float, beta: float
) -> Vector:
    """The true hypergradient at x_K, as a sum that does not cancel near the limit.

    ∇Φ(x_K) = LM (I−αZ)^N Z⁻¹1 + (I−βZ)^K (Zx_0 + LM Z_N 1)

    Theorem 4, where the second part is split in two.
    """
    vanishing = itd_hypergradient(constants, x0, N, alpha)
    return _residual(constants, N, alpha) + _power(constants, "beta", beta, K) * vanishing


def floor(constants: Constants, N: int, alpha: float) -> float:
    """What ‖∇Φ(x_K)‖² tends to, and from x_0 ≥ x_∞ never falls below.

    L²M² ‖(I−αZ)^N Z⁻¹ 1‖² = M²(1−αL)^{2N} + M²κ²(1−αμ)^{2N}

    Theorem 4.
    """
    return float(np.sum(_residual(constants, N, alpha) ** 2))


def floor_order(constants: Constants, N: int, alpha: float) -> float:
    """The order to which Theorem 4 rounds the floor, which lies between it and twice it.

    (L²M²/μ²)(1−αμ)^{2N}

    Theorem 4.
    """
    c = constants
    t = contraction("alpha", alpha, c.mu)
    return (c.kappa * c.M) ** 2 * float(np.exp(2.0 * _log_power(np.array([t]), N))[0])


def stays_above_floor(constants: Constants, x0: Vector, N: int, alpha: float) -> bool:
    """Whether the floor holds for every K from this start.

    x_0 ≥ x_∞ in each coordinate

    Theorem 4, whose proof drops cross terms that are nonnegative only then. Sufficient: in a
    coordinate that starts below x_∞ the gradient passes through zero on its way, unless it starts
    too close.
    """
    return bool(np.all(itd_hypergradient(constants, x0, N, alpha) >= 0.0))


def joint_smoothness(constants: Constants) -> float:
    """The joint Lipschitz constant of ∇g on the instance, which is not L.

    ‖∇²g‖ = L (1+√5)/2 = 1.618 L

    Theorem 4 claims Assumption 2 with L.
    """
    return constants.L * (1.0 + math.sqrt(5.0)) / 2.0


def outer_gradient_norm(constants: Constants) -> float:
    """‖∇_y f‖ on the instance, which is not M.

    ‖M 1‖ = √2 M

    Theorem 4 claims Assumption 4 with M.
    """
    return math.sqrt(2.0) * constants.M


def admissible_instance(constants: Constants) -> Constants:
    """What to build the instance from so that it satisfies the assumptions with the given L and M.

    L' = 2L/(1+√5),  M' = M/√2,  ρ = 0

    Repairs Theorem 4 at the price of a constant; needs μ ≤ L'.
    """
    c = constants
    return Constants(2.0 * c.L / (1.0 + math.sqrt(5.0)), c.mu, 0.0, c.M / math.sqrt(2.0))


def _residual(constants: Constants, N: int, alpha: float) -> Vector:
    z = spectrum(constants)
    return constants.L * constants.M * _power(constants, "alpha", alpha, N) / z


def _power(constants: Constants, name: str, step_size: float, n: int) -> Vector:
    _within(constants, name, step_size)
    return np.exp(_log_power(step_size * spectrum(constants), count("steps", n, 0)))


def _log_power(t: Vector, n: int) -> Vector:
    with np.errstate(divide="ignore"):
        return n * np.log1p(-t) if n > 0 else np.zeros_like(t)


def _within(constants: Constants, name: str, step_size: float) -> None:
    if positive(name, step_size) * constants.L > 1.0:
        raise ValueError(f"{name} must be at most 1/L = {1.0 / constants.L!r}, got {step_size!r}")
