"""What Lanczos cannot tell: ρ and M, from points and directions that were tried."""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from biloop.compilation import compiled
from biloop.inner.descents import Nesterov
from biloop.linear.lanczos import direction
from biloop.oracles import inner_gradient, linearise, outer_gradients
from biloop.problem import Problem
from biloop.vectors import add_scaled, eps, norm, subtract

_ROUNDS = 8


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
    L: float,
    mu: float,
    *,
    samples: int,
    radius: float,
    steps: int,
    key: PRNGKeyArray,
) -> Iterator[Point]:
    """(x′, y ≈ y*(x′)) for x′ = x and for `samples` random x′ at the distance `radius` from x.

    Nesterov's method with the L and μ found so far, at most `steps` steps each.
    """
    inner = Nesterov.tuned(L, max(mu, 1e-6 * L), steps, tolerance=100 * eps(y) * L)
    for i in range(samples + 1):
        there = x
        if i > 0:
            there = add_scaled(x, radius, _cast(direction(jax.random.fold_in(key, i), x), x))
        y, residual, f_y = _look(problem, inner, there, y)
        if not jnp.isfinite(residual):
            raise ValueError(
                f"The inner problem cannot be minimised at a distance of {radius:.4g} from x: "
                f"‖∇_y g‖ is {float(residual)} after {steps} steps of size {1 / L:.4g}. Give a "
                f"smaller radius, a y closer to the minimiser, or a larger L."
            )
        yield Point(there, y, float(residual), float(f_y))


@compiled
def _look(
    problem: Problem, inner: Nesterov, x: PyTree, y: PyTree
) -> tuple[PyTree, Float[Array, ""], Float[Array, ""]]:
    y, _ = inner(problem, x, y, 0)
    _, _, f_y = outer_gradients(problem, x, y)
    return y, norm(inner_gradient(problem, x, y)), norm(f_y)


@compiled
def hessian_change(
    problem: Problem, x: PyTree, y: PyTree, L: Float[Array, ""], key: PRNGKeyArray
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

    d_key, v_key = jax.random.split(key)
    start = (_cast(direction(d_key, z), z), _cast(direction(v_key, y), y), jnp.zeros_like(t))
    return lax.fori_loop(0, _ROUNDS, body, start)[2]


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
