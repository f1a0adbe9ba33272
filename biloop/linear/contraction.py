"""Whether T contracts at y, so that fixed-point iterations converge: the radius of ∂T/∂y."""

import jax
from jaxtyping import Array, Float, PyTree

from biloop.compilation import compiled
from biloop.linear.lanczos import direction
from biloop.oracles import growth
from biloop.problem import Problem, check, refuse_kind
from biloop.problem.variables import as_variable
from biloop.schedules.arguments import as_count, as_seed, positive

PRODUCTS = 120


def contraction(
    problem: Problem,
    x: PyTree,
    y: PyTree,
    *,
    damping: float = 1.0,
    products: int = PRODUCTS,
    seed: int = 0,
) -> Float[Array, ""]:
    """The spectral radius of ∂T/∂y at (x, y), of an equilibrium y = T(x, y).

    By powers of ∂T/∂y on a random vector: an estimate, good where `products` of them bring out the
    largest eigenvalue. Below 1 the fixed-point iteration converges from close by, its error by this
    factor in each step, and so does that for the adjoint; at 1 or more neither does. With `damping`
    it is that of the iteration y ← y − damping · (y − T(x, y)).

    Parameters
    ----------
    problem : Problem
        Of `Problem.fixed_point`.
    x, y : pytrees
        Where, best y ≈ y*(x).
    damping : number
        Of the iteration.
    products : int
        Powers.
    seed : int
        Of the random vector.

    Examples
    --------
    >>> problem = bl.Problem.fixed_point(lambda x, y: x - 2 * y, lambda x, y: jnp.sum(y))
    >>> bl.estimate.contraction(problem, jnp.ones(3), jnp.ones(3), damping=0.25).item()
    0.25
    """
    x, y = as_variable(x, "x"), as_variable(y, "y")
    check(problem, x, y)
    refuse_kind(problem, ("equilibrium",), "contraction", "A minimum has bl.estimate.step_sizes.")
    size, seed = positive("damping")(damping), as_seed("seed")(seed)
    return _contraction(problem, x, y, size, as_count("products", 2)(products), seed)


@compiled(often="once")
def _contraction(
    problem: Problem, x: PyTree, y: PyTree, damping: Array, products: int, seed: int
) -> Array:
    v = direction(jax.random.key(seed), y)
    v = jax.tree.map(lambda v, y: v.astype(y.dtype), v, y)
    return growth(problem, x, y, v, damping, products)
