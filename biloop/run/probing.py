"""What is seen around a y: gradients, a curvature, rounding, and kinks of g.

A few evaluations between chunks and at the end of a run, outside of its cost.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from biloop import vectors
from biloop.compilation import compiled
from biloop.inner.kinks import across, has_no_kinks
from biloop.oracles import (
    curved_by,
    inner_gradient,
    natural_step,
    outer_gradients,
    residual,
)
from biloop.problem import Problem
from biloop.vectors import norm

_SHORT = 1e-3  # of y: where a curvature is measured
_STAYS = 0.7  # of a jump over eight times the length; a change of a smooth gradient would be 0.125


class Around(NamedTuple):
    """‖∇_y g‖ at (x, y), or ‖F‖; a curvature there, the rounding of the first, and ‖∇_y f‖."""

    gradient: Float[Array, ""]
    curvature: Float[Array, ""]
    rounding: Float[Array, ""]
    outer_gradient: Float[Array, ""]


@compiled(often="once")
def around(problem: Problem, x: PyTree, y: PyTree) -> Around:
    """Two gradients of g, one of f."""
    _, _, f_y = outer_gradients(problem, x, y)
    if problem.kind != "minimum":
        step = natural_step(problem, x, y)
        size, curved = norm(residual(problem, x, y, step)), curved_by(problem, x, y, step, y)
        return Around(size, curved, vectors.eps(y) * curved, norm(f_y))
    short = _short(y)

    def evaluate(carry: tuple[PyTree, Array], _: None) -> tuple[tuple[PyTree, Array], tuple]:
        """∇g at y, then over a short step: in a loop, as what it is made of compiles slowly."""
        d, t = carry
        seen = inner_gradient(problem, x, vectors.add_scaled(y, -t, d))
        size, along = norm(seen), vectors.inner_product(vectors.subtract(d, seen), d)
        return (seen, short / _positive(size)), (size, along / (short * _positive(norm(d))))

    start = vectors.zeros_like(y), jnp.zeros_like(short)
    _, ((size, _), (_, curvature)) = lax.scan(evaluate, start, length=2)
    return Around(size, curvature, vectors.eps(y) * jnp.abs(curvature) * norm(y), norm(f_y))


def _short(y: PyTree) -> Float[Array, ""]:
    return _SHORT * _positive(norm(y))


def _positive(size: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.where(size > 0, size, jnp.ones_like(size))


@compiled(often="once")
def jump_at(problem: Problem, x: PyTree, y: PyTree) -> Float[Array, ""]:
    """How much ∇_y g changes at y itself, where a loop may stand on a kink and see ∇_y g = 0."""
    return across(problem, x, y, vectors.zeros_like(y))


@compiled(often="once")
def distance(a: PyTree, b: PyTree) -> Float[Array, ""]:
    """‖a − b‖, as one program: leaf by leaf it would be many."""
    return norm(vectors.subtract(a, b))


class _Search(NamedTuple):
    """∇_y g at y, and the two ends of the search along it with what it is there."""

    d: PyTree
    low: Float[Array, ""]
    high: Float[Array, ""]
    at_low: PyTree
    at_high: PyTree


@compiled(often="once")
def jump(problem: Problem, x: PyTree, y: PyTree, here: Around) -> Float[Array, ""]:
    """How much ∇_y g changes at a single point close to y: 0 where g is smooth, or has a prox.

    `here` is what is `around`. Looked for by bisection, some 20 gradients, from y + 0.8 s to
    y − 2 s where s is the step to the minimum if g were a parabola along ∇_y g: always on into the
    half over which ∇_y g changes more. Where it is continuous, the change goes with the length.
    """
    if problem.kind != "minimum" or has_no_kinks(problem, x, y):
        return jnp.zeros((), vectors.accumulator(y))
    halvings = 20 if vectors.eps(y) < 1e-10 else 12

    def evaluate(search: _Search, i: Array) -> tuple[_Search, Array]:
        """∇g at y; at both ends; then in the middle, again and again."""
        d, low, high, at_low, at_high = search
        middle = (low + high) / 2
        t = jnp.where(i < 3, jnp.stack([jnp.zeros_like(low), low, high])[jnp.minimum(i, 2)], middle)
        seen = inner_gradient(problem, x, vectors.add_scaled(y, -t, d))
        below, above = norm(vectors.subtract(seen, at_low)), norm(vectors.subtract(at_high, seen))
        inside, right = i > 2, above > below
        d = vectors.where(i == 0, seen, d)
        low = jnp.where(inside & right, middle, low)
        high = jnp.where(inside & ~right, middle, high)
        at_low = vectors.where((i == 1) | (inside & right), seen, at_low)
        at_high = vectors.where((i == 2) | (inside & ~right), seen, at_high)
        return _Search(d, low, high, at_low, at_high), jnp.maximum(below, above)

    natural = jnp.where(here.curvature > 0, 1 / _positive(here.curvature), norm(y))
    far = 2 * jnp.maximum(natural, _short(y) / _positive(here.gradient))
    nothing = vectors.zeros_like(y)
    start = _Search(nothing, -0.4 * far, far, nothing, nothing)
    end, changes = lax.scan(evaluate, start, jnp.arange(3 + halvings))
    # Points must differ by more than their rounding, and a jump must not shrink with the length.
    apart = (end.high - end.low) * here.gradient > 30 * vectors.eps(y) * norm(y)
    stays = changes[-1] > _STAYS * changes[-4]
    return jnp.where(apart & stays, changes[-1], jnp.zeros_like(changes[-1]))
