"""A quadratic that is a mean over samples, with everything in closed form."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from biloop.problem import Problem
from biloop.problems.inputs import Matrix
from biloop.problems.matrices import orthogonal
from biloop.problems.quadratics import Quadratic, quadratic


def sampled_quadratic(
    kappa: float,
    *,
    samples: int = 1024,
    noise: float = 1.0,
    p: int = 4,
    q: int = 6,
    seed: int = 0,
    dtype: str | None = None,
) -> Quadratic:
    """`quadratic(kappa, …)` as means over as many samples of g and of f, rank one each.

    g_i = ½(a_iᵀy)² − (a_iᵀy)(b_iᵀx + c_i)           mean a aᵀ = A,  mean a bᵀ = B,  mean a c = c
    f_j = ½(d_jᵀy − s_j)² − ½r_j² + ½(e_jᵀx)²        mean d dᵀ = D,  mean d s = Dt,  mean e eᵀ = E

    hold exactly: b_i and c_i are linear in a_i but for residuals of size `noise` that are
    orthogonal to all of them over the samples, and so are s_j and r_j = s_j − d_jᵀt. So constants,
    y*(x), Φ and ∇Φ are those of the quadratic, κ is what it is called, and with `noise` > 0 no
    sample is stationary where the mean is: directions on few rows have variance at the solution.

    Parameters
    ----------
    kappa, p, q, seed, dtype
        As for `quadratic`.
    samples : int
        Of g, and of f.
    noise : number
        The size of residuals; with 0 all samples agree at the solution.

    Returns
    -------
    Quadratic

    Examples
    --------
    >>> found = bl.problems.sampled_quadratic(10.0, samples=64)
    >>> found.problem.inner_data[0].shape[0]
    64
    """
    needed = p + q + 1
    if samples < needed:
        raise ValueError(f"samples must be at least p + q + 1 = {needed}, got {samples}.")
    if not 0 <= noise < np.inf:
        raise ValueError(f"noise must be a finite number of at least 0, got {noise}.")
    whole = quadratic(kappa, p=p, q=q, seed=seed, dtype=dtype)
    rng = np.random.default_rng([seed, 1])

    Z = _orthogonal_columns(rng, samples, needed)
    a = Z[:, :q] @ _root(whole.A)
    slopes = np.linalg.solve(whole.A, np.column_stack([whole.B, whole.c]))
    b_c = a @ slopes + noise * Z[:, q:]

    Z = _orthogonal_columns(rng, samples, needed)
    d, e, r = Z[:, :q] @ _root(whole.D), Z[:, q : q + p] @ _root(whole.E), noise * Z[:, -1]
    inner_data = (a, b_c[:, :p], b_c[:, p])
    outer_data = (d, d @ whole.t + r, r, e)

    def arrays(parts: tuple[Matrix, ...]) -> tuple[Array, ...]:
        return tuple(jnp.asarray(part, dtype or float) for part in parts)

    problem = Problem(_inner, _outer, arrays(inner_data), arrays(outer_data))
    return dataclasses.replace(whole, problem=problem)


def _orthogonal_columns(rng: np.random.Generator, n: int, columns: int) -> Matrix:
    """Z with ZᵀZ = n: columns of variance one without correlation, over just these samples."""
    Q, _ = np.linalg.qr(rng.normal(size=(n, columns)))
    return np.sqrt(n) * Q @ orthogonal(rng, columns)


def _root(matrix: Matrix) -> Matrix:
    """The symmetric square root of a definite matrix."""
    values, U = np.linalg.eigh(matrix)
    return (U * np.sqrt(values)) @ U.T


def _inner(x: Array, y: Array, a: Array, b: Array, c: Array) -> Array:
    u = a @ y
    return jnp.mean(0.5 * u**2 - u * (b @ x + c))


def _outer(x: Array, y: Array, d: Array, s: Array, r: Array, e: Array) -> Array:
    return 0.5 * jnp.mean((d @ y - s) ** 2 - r**2 + (e @ x) ** 2)
