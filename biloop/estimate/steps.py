"""Step sizes for a user who knows no constants."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from biloop.estimate.spectrum import settled
from biloop.problem import Problem, as_variable, check
from biloop.schedules import is_concrete

_PRODUCTS = 30  # in each of two places


class StepSizes(NamedTuple):
    """α and η for the two loops, and the L and μ they come from.

    L is an upper bound on the largest eigenvalue of ∇²_y g where it was looked at, which fails with
    probability 10⁻⁶; mu is the smallest Ritz value, an upper bound on the smallest eigenvalue.
    """

    inner: float | Float[Array, ""]
    linear: float | Float[Array, ""]
    L: float | Float[Array, ""]
    mu: float | Float[Array, ""]


def step_sizes(
    problem: Problem, x: PyTree, y: PyTree, *, products: int = _PRODUCTS, seed: int = 0
) -> StepSizes:
    """Stable step sizes of both loops at (x, y).

    α = η = 1/L,   L ≥ λ_max(∇²_y g) at y and ten gradient steps on

    The step size that Corollaries 1-6 take for α; a loop is stable up to 2/λ_max, so the curvature
    may double on the way before it is not. 2 × `products` products, 10 gradients, and `products`
    vectors of the size of y; also inside compiled code, where a Hessian that is not finite or not
    definite is not refused but shows in the numbers.
    """
    x, y = as_variable(x, "x"), as_variable(y, "y")
    check(problem, x, y)
    found = settled(problem, x, y, products, jax.random.key(seed))
    L, mu = found.L, jnp.maximum(found.mu, 0)
    sizes = StepSizes(1 / L, 1 / L, L, mu)
    return StepSizes(*map(float, sizes)) if is_concrete(L) else sizes
