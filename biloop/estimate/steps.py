"""Step sizes for a user who knows no constants."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from biloop.estimate.spectrum import along
from biloop.problem import Problem, check, refuse_kind
from biloop.problem.variables import as_variable
from biloop.schedules.arguments import as_count, as_seed, is_concrete


class StepSizes(NamedTuple):
    """α and η for the two loops, and the L and μ they come from.

    L is an upper bound on the largest eigenvalue of ∇²_y g where it was looked at, which fails with
    probability 10⁻⁶; mu is the smallest Ritz value, an upper bound on the smallest eigenvalue.
    `at` says where L was met: after so many steps from y towards y*(x).
    """

    inner: float | Float[Array, ""]
    linear: float | Float[Array, ""]
    L: float | Float[Array, ""]
    mu: float | Float[Array, ""]
    at: int | Int[Array, ""] = 0


def step_sizes(
    problem: Problem, x: PyTree, y: PyTree, *, products: int = 30, seed: int = 0
) -> StepSizes:
    """Stable step sizes of both loops at (x, y).

    α = η = 1/L,   L ≥ λ_max(∇²_y g) at y and on the way from there to y*(x)

    The step size that Corollaries 1-6 take for α; a loop is stable up to 2/λ_max, so the curvature
    may double elsewhere before it is not. The way is that of Newton's method with a line search, at
    most six steps, fewer if ‖∇_y g‖ has fallen to a hundredth: `products` products in each place,
    ten and a gradient for each step, and `products` vectors of the size of y. Also inside compiled
    code, where a Hessian that is not finite or not definite is not refused but shows in the
    numbers.

    Parameters
    ----------
    problem : Problem
    x, y : pytrees
        Where to look first.
    products : int
        In each place.
    seed : int
        Of the random vector.

    Returns
    -------
    StepSizes
        `inner`, `linear`, `L` and `mu`.

    Examples
    --------
    >>> found = bl.estimate.step_sizes(problem, x0, y0)
    >>> X_train, t_train = problem.inner_data
    >>> largest = jnp.linalg.eigvalsh(X_train.T @ X_train / 24)[-1] + 1
    >>> print(f"{found.inner * largest:.2f}")
    1.00
    """
    x, y = as_variable(x, "x"), as_variable(y, "y")
    check(problem, x, y)
    refuse_kind(
        problem,
        ("minimum",),
        "step_sizes",
        "FISTA('auto', …) finds its own; an equilibrium has bl.estimate.contraction.",
    )
    products = as_count("products")(products)
    found = along(problem, x, y, products, jax.random.key(as_seed("seed")(seed)))
    L, mu = found.L, found.mu
    if not is_concrete(L):
        return StepSizes(1 / L, 1 / L, L, jnp.maximum(mu, 0), found.at)
    L = float(L)
    return StepSizes(1 / L, 1 / L, L, max(float(mu), 0.0), int(found.at))
