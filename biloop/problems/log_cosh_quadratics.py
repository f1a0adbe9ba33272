"""Random problems with all four constants chosen: ρ > 0 and a bounded ∇_y f."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from numpy.typing import NDArray

from biloop.problem import Problem
from biloop.problems.matrices import definite, norm, orthogonal
from biloop.theory import Constants

Matrix = NDArray[np.floating]

# The largest value of |(log cosh)‴| = 2 tanh sech², where tanh² = 1/3.
THIRD_DERIVATIVE = 4 / np.sqrt(27)


@dataclass(frozen=True, eq=False)
class LogCosh:
    """Quadratics with log cosh terms, with constants known by construction.

    g(x, y) = ½yᵀAy + xᵀBy + hᵀy + s Σ_i log cosh(w_iᵀz),    z = (x, y), W = [P Q] with rows w_i
    f(x, y) = ½γ‖x − e‖² + m Σ_j log cosh(u_jᵀz + o_j),       U = [F D] with rows u_j

    The second derivative of log cosh lies in (0, 1], is 1 at 0 and tends to 0 at infinity; its
    third lies in [−4/√27, 4/√27]. With K the Hessian of the quadratic part of g,

    L  = λ_max(K + sWᵀW) ≥ ‖K‖                     exact for g, attained at z = 0
    L  ≥ γ + m‖U‖²                                 for f
    μ  = λ_min(A)                                  exact: the infimum, far out where g bends no more
    ρ  = (4/√27) s max‖w_i‖ ‖Q‖ max(‖P‖, ‖Q‖)      upper bound
    M  = m √n ‖D‖ for n terms                      upper bound

    No closed form exists for y*; `biloop.Exact` gives ∇Φ. Φ ≥ 0, so Φ(x_0) bounds Φ(x_0) − min Φ.
    """

    constants: Constants
    problem: Problem
    x0: Float[Array, " p"]
    y0: Float[Array, " q"]


def log_cosh(
    kappa: float,
    *,
    L: float = 1.0,
    rho: float = 0.1,
    M: float = 1.0,
    p: int = 3,
    q: int = 4,
    terms: int = 3,
    seed: int = 0,
    dtype: str | None = None,
) -> LogCosh:
    """A random instance with these constants: κ = L/μ, and L, ρ, M as named; p = dim x, q = dim y.

    All can be chosen because scaling W by a with s by 1/a² keeps L and scales ρ by a, and scaling U
    by a with m by 1/a² keeps L and scales M by 1/a.

    Parameters
    ----------
    kappa, L, p, q, seed, dtype
        As for `quadratic`.
    rho, M : numbers
        The other constants.
    terms : int
        Of g and of f that bend.

    Returns
    -------
    LogCosh
        `problem`, `x0`, `y0` and `constants`.

    Examples
    --------
    >>> print(f"{bl.problems.log_cosh(10.0, rho=0.2).constants.rho:.3f}")
    0.200
    """
    if not 1 < kappa < np.inf:
        raise ValueError(f"kappa must be finite and greater than 1, got {kappa}.")
    for name, value in (("L", L), ("rho", rho), ("M", M)):
        if not 0 < value < np.inf:
            raise ValueError(f"{name} must be a finite number greater than 0, got {value}.")
    for name, count in (("p", p), ("q", q), ("terms", terms)):
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}.")
    rng = np.random.default_rng(seed)
    mu = L / kappa

    A, B = _quadratic_part(rng, p, q, L, mu)
    K = np.block([[np.zeros((p, p)), B], [B.T, A]])
    W = rng.normal(size=(q, p + q))
    # K + sWᵀW ≼ L with equality  ⟺  s λ_max(W (L − K)⁻¹ Wᵀ) = 1.
    s = 1 / norm(W @ np.linalg.solve(L * np.eye(p + q) - K, W.T))
    P, Q = norm(W[:, :p]), norm(W[:, p:])
    bend = THIRD_DERIVATIVE * s * np.linalg.norm(W, axis=1).max() * Q * max(P, Q)
    W, s = W * (rho / bend), s * (bend / rho) ** 2

    gamma = 0.1 * L
    U = rng.normal(size=(terms, p + q))
    slope = np.sqrt(terms) * norm(U[:, p:])
    # m‖aU‖² = L − γ and m a · slope = M.
    a = (L - gamma) * slope / (M * norm(U) ** 2)
    m = M / (a * slope)

    def arrays(values: dict[str, Matrix | float]) -> tuple[PyTree]:
        return ({name: jnp.asarray(v, dtype or float) for name, v in values.items()},)

    inner = {"A": A, "B": B, "h": 0.5 * L * rng.normal(size=q), "W": W, "s": s}
    outer = {"gamma": gamma, "e": rng.normal(size=p), "U": a * U, "m": m}
    outer["o"] = rng.normal(size=terms)
    return LogCosh(
        constants=Constants(L, mu, rho, M),
        problem=Problem(_inner, _outer, inner_data=arrays(inner), outer_data=arrays(outer)),
        x0=jnp.asarray(rng.normal(size=p), dtype or float),
        y0=jnp.zeros(q, dtype or float),
    )


def _quadratic_part(
    rng: np.random.Generator, p: int, q: int, L: float, mu: float
) -> tuple[Matrix, Matrix]:
    """A from μ to μ + 0.4(L − μ), and B with ‖K‖ < L: half of what L leaves (see `quadratic`)."""
    V, spectrum = definite(rng, q, mu, mu + 0.4 * (L - mu))
    B = orthogonal(rng, max(p, q))[:p, :q]
    B *= 0.5 * np.sqrt(L) / norm((V / np.sqrt(L - spectrum)) @ V.T @ B.T)
    return (V * spectrum) @ V.T, B


def _inner(x: Array, y: Array, d: PyTree) -> Array:
    bends = d["W"] @ jnp.concatenate([x, y])
    linear = x @ (d["B"] @ y) + d["h"] @ y
    return 0.5 * y @ (d["A"] @ y) + linear + d["s"] * jnp.sum(_log_cosh(bends))


def _outer(x: Array, y: Array, d: PyTree) -> Array:
    bends = d["U"] @ jnp.concatenate([x, y]) + d["o"]
    pull = 0.5 * d["gamma"] * jnp.sum((x - d["e"]) ** 2)
    return pull + d["m"] * jnp.sum(_log_cosh(bends))


def _log_cosh(u: Array) -> Array:
    """log cosh u = log(eᵘ + e⁻ᵘ) − log 2, without overflow."""
    return jnp.logaddexp(u, -u) - jnp.log(jnp.asarray(2.0, u.dtype))
