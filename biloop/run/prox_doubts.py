"""Whether what was given as a proximal map is one: of a convex r, for every step."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from biloop import vectors
from biloop.compilation import compiled
from biloop.oracles import proximal_map
from biloop.problem import Problem
from biloop.vectors import norm, subtract

_POINTS = 256  # on the line from 0 to _FAR times the point
_LONGER = 4.0  # steps are tried until the map moves the point by half of it ...
_TRIES = 30  # ... or so often
_FAR = 2 * _LONGER  # beyond all thresholds, of a step that may be so many times too long
_APART = 1.1  # times their distance: two points that no rounding moves so far
_DIFFERS = 0.02  # of a point: what neither rounding nor an iteration inside of the map explains


def has_no_value(problem: Problem, x: PyTree, y: PyTree) -> str:
    """A sentence if prox(x, y, α) is not finite where y is: x has left what it is made for."""
    if problem.kind != "proximal" or vectors.all_finite(proximal_map(problem, x, y, jnp.ones(()))):
        return ""
    return (
        "The proximal map is not finite at this x: usually a strength or a radius that x gives is "
        "below zero, or a lower bound above the upper one. Keep x inside, e.g. with L1(jnp.exp) or "
        "outer=Projected(step, Box(0.0, jnp.inf))."
    )


def no_proximal_map(problem: Problem, x: PyTree, y: PyTree) -> str:
    """Why prox(x, ·, α) is no proximal map, if so.

    Two points come no farther apart, ‖P(a) − P(b)‖ ≤ ‖a − b‖, and one map says what the others are:
    P_α(z) = P_{α/2}((z + P_α(z)) / 2).
    """
    if problem.kind != "proximal":
        return ""
    expands, differs = jax.device_get(_measured(problem, x, y))
    words = ""
    if expands > _APART:
        words = f"it moves two points apart, to {float(expands):.3g} times their distance"
    elif differs > _DIFFERS:
        words = (
            f"P_α(z) = P_α/2((z + P_α(z))/2) is missed by {float(differs):.2g} of z: is its effect "
            f"proportional to the step α?"
        )
    return words and f"prox is not the proximal map of a convex function: {words}."


@compiled(often="once")
def _measured(problem: Problem, x: PyTree, y: PyTree) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The largest expansion along a line, and how far the maps of two steps are from agreeing."""
    size = norm(y)
    z = vectors.where(size > 0, y, jax.tree.map(jnp.ones_like, y))
    size = norm(z)

    def apply(point: PyTree, step: Array) -> PyTree:
        return proximal_map(problem, x, point, step)

    def longer(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        step, tries, _ = carry
        short = norm(subtract(apply(z, step), z)) < 0.5 * size
        return jnp.where(short, _LONGER * step, step), tries + 1, short

    one = jnp.ones((), vectors.accumulator(y))
    start = 1e-6 * one, jnp.zeros((), jnp.int32), jnp.ones((), bool)
    step, _, _ = lax.while_loop(lambda c: c[2] & (c[1] < _TRIES), longer, start)

    def further(last: PyTree, t: Array) -> tuple[PyTree, Array]:
        here = apply(vectors.scaled(t, z), step)
        return here, norm(subtract(here, last))

    places = jnp.linspace(0.0, _FAR, _POINTS, dtype=one.dtype)
    _, gaps = lax.scan(further, apply(vectors.zeros_like(z), step), places)  # one after the other
    expands = jnp.max(gaps) / (_FAR * size / (_POINTS - 1))

    at = apply(z, step)
    half = apply(vectors.scaled(0.5, vectors.add_scaled(z, 1.0, at)), step / 2)
    return expands, norm(subtract(half, at)) / size
