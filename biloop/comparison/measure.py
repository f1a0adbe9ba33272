"""∇Φ(x) at many points side by side: the truth that runs are judged by, and no part of their cost.

Where y is small, `Exact`. Otherwise both systems are solved a little further in each round,

    H d = ∇_y g(x, y) to 3 %,  y ← y − s d
    H v = ∇_y f(x, y) to 3 % of what is left

until h = ∇_x f − ∇_x∇_y g v changes by less than 10 % of ‖h‖. Each round leaves a fraction of the
error, so that h is then good to a few per cent (docs/compare.md has measurements). The first line
is an inexact Newton method: Dembo, Eisenstat and Steihaug (1982).
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from biloop import vectors
from biloop.compilation import compiled
from biloop.linear import CG
from biloop.methods import Exact, Warm
from biloop.oracles import inner_gradient, linearise, outer_gradients
from biloop.problem import Problem
from biloop.results import FIRST_FAILURE
from biloop.schedules import Adaptive
from biloop.vectors import add_scaled, norm, subtract

SMALL = 64  # the largest dimension of y for dense algebra
CHANGE = 0.1  # of h in the last round
_SHARE = 0.03
_ROUNDS = 12
_PRODUCTS = 500  # for one system in one round
_LOST = 1e3  # times the gradient at the start: how far off a diverged run is does not matter


class Truth(NamedTuple):
    """∇Φ(x), its squared norm, Φ(x), y ≈ y*(x) and the adjoint. NaN where it was not found."""

    h: PyTree
    norm2: Float[Array, ""]
    value: Float[Array, ""]
    y: PyTree
    v: PyTree


def is_small(y: PyTree) -> bool:
    """Whether dense algebra is used for this y."""
    return vectors.size(y) <= SMALL


def accuracy(y: PyTree) -> str:
    """How well ‖∇Φ‖ is measured, in words."""
    return "exactly, to rounding" if is_small(y) else "to a few per cent"


@compiled
def measure(
    problem: Problem, x: PyTree, y: PyTree, v: PyTree, start: Float[Array, ""], level: float | Array
) -> Truth:
    """The truth at each of the x along the leading axis, looked for from y and v there.

    `start` is ‖∇Φ‖ where the runs began (∞ if it is not known); norms below `level` need only be
    known to be below it.
    """
    find = _exact if is_small(jax.tree.map(lambda a: a[0], y)) else _iterative
    return jax.vmap(partial(find, problem, start=start, level=level))(x, y, v)


def _exact(
    problem: Problem,
    x: PyTree,
    y: PyTree,
    v: PyTree,
    *,
    start: Float[Array, ""],
    level: float | Array,
) -> Truth:
    h, warm, info = Exact()(problem, x, Warm(y, v), 0)
    return _or_nan(info.result < FIRST_FAILURE, Truth(h, norm(h) ** 2, info.value, warm.y, warm.v))


class _Round(NamedTuple):
    truth: Truth
    change: Float[Array, ""]  # ‖h − h of the round before‖
    gradient: Float[Array, ""]  # ‖∇_y g‖ before the round
    residual: Float[Array, ""]  # ‖Hv − ∇_y f‖ after it
    advancing: Array  # whether both residuals fell as they should
    failed: Array
    rounds: Int[Array, ""]


def _iterative(
    problem: Problem,
    x: PyTree,
    y: PyTree,
    v: PyTree,
    *,
    start: Float[Array, ""],
    level: float | Array,
) -> Truth:
    solve = CG(Adaptive(_SHARE, _PRODUCTS))

    def body(last: _Round) -> _Round:
        d = inner_gradient(problem, x, last.truth.y)
        hessian, _ = linearise(problem, x, last.truth.y)
        direction, newton = solve(hessian, d, vectors.zeros_like(d), 1)
        y = _shorten(problem, x, last.truth.y, direction, norm(d))

        value, f_x, f_y = outer_gradients(problem, x, y)
        hessian, cross = linearise(problem, x, y)
        v, linear = solve(hessian, f_y, last.truth.v, 1)
        h = subtract(f_x, cross(v))
        # At rounding nothing falls any more, which is as good.
        rounding = 100 * vectors.eps(y)
        advancing = (norm(d) <= 0.5 * last.gradient) | (norm(d) <= rounding * norm(f_y))
        advancing &= (linear.residual <= 0.5 * last.residual) | (
            linear.residual <= rounding * norm(f_y)
        )
        return _Round(
            Truth(h, norm(h) ** 2, value, y, v),
            norm(subtract(h, last.truth.h)),
            norm(d),
            linear.residual,
            advancing,
            (newton.result >= FIRST_FAILURE) | (linear.result >= FIRST_FAILURE),
            last.rounds + 1,
        )

    def unfinished(now: _Round) -> Array:
        size = norm(now.truth.h)
        settled = (now.change <= CHANGE * jnp.maximum(size, level)) & now.advancing
        hopeless = now.failed | ~jnp.isfinite(size) | ((now.rounds > 0) & (size > _LOST * start))
        return (now.rounds < _ROUNDS) & ~settled & ~hopeless

    nothing = vectors.zeros_like(x)
    far = jnp.full_like(norm(x), jnp.inf)
    begin = Truth(nothing, far, far, y, v)
    first = _Round(
        begin, far, far, far, jnp.zeros((), bool), jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    )
    last = lax.while_loop(unfinished, body, first)
    size = norm(last.truth.h)
    good = ~last.failed & (last.change <= CHANGE * jnp.maximum(size, level))
    return _or_nan(good | (size > _LOST * start), last.truth)


def _shorten(
    problem: Problem, x: PyTree, y: PyTree, direction: PyTree, before: Float[Array, ""]
) -> PyTree:
    """y − s · direction with the first s = 1, ½, ¼, … that makes ‖∇_y g‖ smaller."""

    def at(s: Array) -> PyTree:
        return add_scaled(y, -s, direction)

    def too_long(s: Array) -> Array:
        # Written so that a NaN counts as too long.
        after = norm(inner_gradient(problem, x, at(s)))
        return ~(after <= (1 - 1e-4 * s) * before) & (s > 1e-6)

    return at(lax.while_loop(too_long, lambda s: s / 2, jnp.ones_like(before)))


def _or_nan(good: Array, truth: Truth) -> Truth:
    """The numbers where they are good; y and v serve as starts in any case."""
    nan = jnp.full_like(truth.norm2, jnp.nan)
    return truth._replace(
        norm2=jnp.where(good, truth.norm2, nan), value=jnp.where(good, truth.value, nan)
    )
