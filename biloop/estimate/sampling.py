"""What Lanczos cannot tell: ρ and M, from points and directions that were tried."""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from biloop.compilation import compiled
from biloop.estimate.descent import minimise
from biloop.linear.lanczos import direction
from biloop.oracles import linearise, outer_gradients
from biloop.problem import Problem
from biloop.vectors import add_scaled, eps, norm, subtract

_ROUNDS = 8
_PRODUCTS = 30  # for the direction of each step


class Point(NamedTuple):
    """A place that was looked at, with ‖∇_y g‖ and ‖∇_y f‖ there."""

    x: PyTree
    y: PyTree
    residual: float
    outer_gradient: float


def minimised_points(
    problem: Problem,
    x: PyTree,
    y: PyTree,
    *,
    samples: int,
    radius: float,
    steps: int,
    key: PRNGKeyArray,
) -> Iterator[Point]:
    """(x′, y ≈ y*(x′)) for x′ = x and for `samples` random x′ at the distance `radius` from x.

    Newton's method with a line search, at most `steps` steps each, from one minimiser to the next.
    """
    for i in range(samples + 1):
        there = x
        if i > 0:
            there = add_scaled(x, radius, _cast(direction(jax.random.fold_in(key, i), x), x))
        y, residual, f_y = _measured(problem, there, y, steps)
        if not jnp.isfinite(residual):
            raise ValueError(
                f"The inner problem cannot be minimised at a distance of {radius:.4g} from x: "
                f"‖∇_y g‖ is {float(residual)} there. Give a smaller radius, or a y closer to the "
                f"minimiser."
            )
        yield Point(there, y, float(residual), float(f_y))


@compiled(often="once")
def _measured(
    problem: Problem, x: PyTree, y: PyTree, steps: int
) -> tuple[PyTree, Float[Array, ""], Float[Array, ""]]:
    found = minimise(problem, x, y, steps, _PRODUCTS)
    _, _, f_y = outer_gradients(problem, x, found.y)
    return found.y, found.size, norm(f_y)


def hessian_change(
    problem: Problem, x: PyTree, y: PyTree, L: Float[Array, ""], key: PRNGKeyArray
) -> Float[Array, ""]:
    """A lower bound on ρ of Assumption 3, from random directions on."""
    d_key, v_key = jax.random.split(key)
    d, v = (_cast(direction(key, a), a) for key, a in ((d_key, (x, y)), (v_key, y)))
    return _hessian_change(problem, x, y, L, d, v)


@compiled(often="once")
def _hessian_change(
    problem: Problem, x: PyTree, y: PyTree, L: Float[Array, ""], d: PyTree, v: PyTree
) -> Float[Array, ""]:
    """A lower bound on ρ of Assumption 3, found by going where the Hessian changes fastest.

    max over rounds of  ‖(B(z + td) − B(z)) v‖ / (t‖d‖‖v‖)  for B = ∇²_y g and for B = ∇_x∇_y g

    By definition ρ is at least that, for every t, d and v. The next d and v are the change itself,
    as in the power method for the third derivative. What rounding can add is taken off.
    """
    hessian, cross = linearise(problem, x, y)
    z = (x, y)
    accuracy = eps(z)
    t = accuracy**0.25 * (1 + norm(z))
    noise = 16 * accuracy * L.astype(t.dtype)

    def body(_: int, state: tuple[PyTree, PyTree, Array]) -> tuple[PyTree, PyTree, Array]:
        d, v, best = state
        there = add_scaled(z, t, d)
        moved_hessian, moved_cross = linearise(problem, *there)
        change = (
            subtract(moved_cross(v), cross(v)),
            subtract(moved_hessian(v), hessian(v)),
        )
        largest = jnp.maximum(norm(change[0]), norm(change[1]))
        moved = norm(subtract(there, z)) * norm(v)
        best = jnp.maximum(best, (largest - noise) / moved)
        return _unit(change, d), _unit(change[1], v), best

    return lax.fori_loop(0, _ROUNDS, body, (d, v, jnp.zeros_like(t)))[2]


def _unit(a: PyTree, otherwise: PyTree) -> PyTree:
    """a/‖a‖, or the other vector where a is zero."""
    length = norm(a)
    return jax.tree.map(
        lambda a, o: jnp.where(length > 0, a / jnp.where(length > 0, length, 1).astype(a.dtype), o),
        a,
        otherwise,
    )


def _cast(a: PyTree, like: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: a.astype(b.dtype), a, like)
