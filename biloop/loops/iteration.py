"""The rule that ends a loop: it has used its steps, or its residual is at most its tolerance."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.results import Code, Status, code, code_if, first_failure
from biloop.schedules import Adaptive, Count, Schedule

# Powers such as 16^(1/4)/2 may come out a few units in the last place above the integer they are.
_ROUNDING = 1e-6
# An adaptive loop without a new smallest residual in so many steps has only rounding left.
_PATIENCE = 20
# What one loop has learnt about 1/μ is trusted a little less in the next.
FORGET = 0.9


class Loop(NamedTuple):
    """Where a loop ended: its state, the norm of the last residual it saw, and the steps used.

    A loop of no steps has seen none: its residual is NaN.
    """

    state: PyTree
    residual: Float[Array, ""]
    steps: Int[Array, ""]
    result: Code
    long: Float[Array, ""] | None = None  # see Adaptivity


def count(steps: Schedule, k: Count) -> Count:
    """⌈steps(k)⌉: a Python integer where it is known at compile time, negative for NaN."""
    value = steps(k)
    if isinstance(value, int):
        return value
    value = jnp.asarray(value)
    if jnp.issubdtype(value.dtype, jnp.floating):
        value = jnp.where(jnp.isnan(value), -1.0, jnp.ceil(value * (1 - _ROUNDING)))
    return value.astype(jnp.int32)


def limit(tolerance: Schedule | None, k: Count) -> Float[Array, ""] | None:
    """tolerance(k), or None to spend the whole budget."""
    return None if tolerance is None else jnp.asarray(tolerance(k))


class Look(NamedTuple):
    """What a step of an adaptive loop shows; s and e are the changes of the point and its residual.

    `inverse` is ‖s‖² / |⟨s, e⟩|, an inverse curvature between 1/L and 1/μ, and `steep` a curvature
    between μ and L; both are 0 where nothing was seen. `way` is the distance from the origin.
    """

    inverse: Float[Array, ""]
    steep: Float[Array, ""]
    way: Float[Array, ""]


class Adaptivity(NamedTuple):
    """What an adaptive loop knows beside its step.

    `look` maps what it keeps in mind (`mind`, to begin with), the states before and after a step,
    and the residual to what it keeps from then on and a `Look`. `long` is the largest inverse
    curvature seen so far, a lower bound of 1/μ, and goes from one loop to the next; `start` is
    ‖origin‖. `come` is the way that a longer loop, of which this one is a part, has come before.
    """

    share: Float[Array, ""]
    long: Float[Array, ""]
    start: Float[Array, ""]
    look: Callable[[PyTree, PyTree, PyTree, PyTree], tuple[PyTree, Look]]
    mind: PyTree = ()
    come: float | Float[Array, ""] = 0.0


def adaptivity(
    steps: Schedule,
    origin: PyTree,
    at: Callable[[PyTree, PyTree], PyTree],
    long: Float[Array, ""] | None,
    first: PyTree = None,
    k: Count | None = None,
) -> Adaptivity | None:
    """The rule of an adaptive loop, of an N-loop in outer iteration k; None for other loops.

    `at` maps the states before and after a step to the point whose residual the step computed;
    `first` is the residual at `origin`, if that is known before the first step.
    """
    if not isinstance(steps, Adaptive):
        return None
    share = steps.share if k is None else inner_share(steps, k)
    long = first_length(steps, origin) if long is None else long
    assert long is not None
    residual = vectors.zeros_like(origin) if first is None else first
    mind = _Last(origin, residual, jnp.asarray(first is not None))

    def look(last: _Last, before: PyTree, after: PyTree, residual: PyTree) -> tuple[_Last, Look]:
        point = at(before, after)
        s, e = vectors.subtract(point, last.point), vectors.subtract(residual, last.residual)
        curvature = jnp.abs(vectors.inner_product(s, e))  # a residual may have either sign
        change = vectors.norm(e)
        seen = last.known & (change > vectors.noise(point) * vectors.norm(residual))
        seen = seen & (curvature > 0)
        safe, nothing = jnp.where(seen, curvature, 1.0), jnp.zeros_like(curvature)
        return _Last(point, residual, jnp.ones((), bool)), Look(
            jnp.where(seen, vectors.inner_product(s, s) / safe, nothing),
            jnp.where(seen, change**2 / safe, nothing),
            vectors.norm(vectors.subtract(point, origin)),
        )

    return Adaptivity(share, long, vectors.norm(origin), look, mind)


class _Last(NamedTuple):
    """The last point and its residual, and whether there is one."""

    point: PyTree
    residual: PyTree
    known: Bool[Array, ""]


def inner_share(steps: Adaptive, k: Count) -> Float[Array, ""]:
    """The share of the error that an adaptive N-loop may leave in outer iteration k.

    The first one starts cold, with an error that no outer step brought in, and must leave less for
    the first hypergradient to be worth learning from. (A Q-loop that starts at zero has to find all
    of v, and is judged by that.)
    """
    return jnp.where(jnp.asarray(k) == 0, steps.share**1.5, steps.share)


def first_length(steps: Schedule, like: PyTree) -> Float[Array, ""] | None:
    """What an adaptive loop knows of 1/μ before it has seen any curvature; None for other loops."""
    return jnp.zeros((), vectors.accumulator(like)) if isinstance(steps, Adaptive) else None


def iterate(
    step: Callable[[PyTree], tuple[PyTree, PyTree]],
    state: PyTree,
    like: PyTree,
    steps: Count,
    tolerance: Float[Array, ""] | None,
    adaptive: Adaptivity | None = None,
) -> Loop:
    """state, residual ← step(state), `steps` times or until ‖residual‖ ≤ `tolerance`.

    The residual, a vector of the space of `like`, is whatever the step had to compute anyway:
    nothing is evaluated only to test it.
    """
    start = vectors.zeros_like(like)
    bad_schedule = code_if(jnp.asarray(steps) < 0, Status.BAD_SCHEDULE)
    steps = steps if isinstance(steps, int) else jnp.maximum(steps, 0)

    if tolerance is None and adaptive is None:
        # No norm inside the loop: on small problems it would cost as much as the step.
        state, last = lax.fori_loop(0, steps, lambda _, c: step(c[0]), (state, start))
        residual = vectors.norm(last)
        used = jnp.asarray(steps, jnp.int32)
        residual = jnp.where(used > 0, residual, jnp.full_like(residual, jnp.nan))
        return Loop(state, residual, used, bad_schedule)

    def unfinished(carry: tuple[Loop, _Watch | None]) -> Array:
        # A diverged loop ends here; a tolerance that is NaN is never reached.
        loop, watch = carry
        reached = loop.residual <= target
        if watch is not None:
            reached = reached | watch.reached | (watch.idle >= _PATIENCE)
        return (loop.steps < steps) & ~reached & ~jnp.isnan(loop.residual)

    def body(carry: tuple[Loop, _Watch | None]) -> tuple[Loop, _Watch | None]:
        loop, watch = carry
        state, residual = step(loop.state)
        size = vectors.norm(residual)
        if adaptive is not None and watch is not None:
            mind, look = adaptive.look(watch.mind, loop.state, state, residual)
            watch = _judge(watch._replace(mind=mind), adaptive, look, size, vectors.eps(like))
        return Loop(state, size, loop.steps + 1, loop.result), watch

    unknown = jnp.full_like(vectors.norm(start), jnp.inf)
    target = jnp.full_like(unknown, -1) if tolerance is None else tolerance.astype(unknown.dtype)
    first = Loop(state, unknown, jnp.zeros((), jnp.int32), code(Status.COMPLETED))
    watch = None if adaptive is None else _first_watch(adaptive, unknown)
    loop, watch = lax.while_loop(unfinished, body, (first, watch))
    missed = ~(loop.residual <= target)
    if watch is not None:
        missed = missed & ~watch.reached & (watch.idle < _PATIENCE)
    return Loop(
        loop.state,
        jnp.where(loop.steps > 0, loop.residual, jnp.full_like(unknown, jnp.nan)),
        loop.steps,
        first_failure(bad_schedule, code_if(missed, Status.UNCONVERGED)),
        None if watch is None else watch.long,
    )


class _Watch(NamedTuple):
    """What an adaptive loop has learnt from its steps."""

    mind: PyTree
    long: Float[Array, ""]
    steep: Float[Array, ""]  # the largest curvature of this loop, a lower bound of L
    reached: Bool[Array, ""]
    best: Float[Array, ""]  # the smallest residual
    idle: Int[Array, ""]  # steps since then


def _first_watch(adaptive: Adaptivity, unknown: Float[Array, ""]) -> _Watch:
    return _Watch(
        adaptive.mind,
        FORGET * adaptive.long,
        jnp.zeros_like(adaptive.long),
        jnp.zeros((), bool),
        unknown,
        jnp.zeros((), jnp.int32),
    )


def _judge(
    watch: _Watch, adaptive: Adaptivity, look: Look, size: Float[Array, ""], rounding: float
) -> _Watch:
    """‖y − y*‖ ≤ ‖residual‖ / μ is compared with the way that the loop has come.

    The largest inverse curvature stands for 1/μ. A residual of L‖y‖ times the rounding error of a
    number is rounding.
    """
    long = jnp.maximum(watch.long, look.inverse)
    steep = jnp.maximum(watch.steep, look.steep)
    way = jnp.hypot(look.way, jnp.asarray(adaptive.come, look.way.dtype))
    enough = long * size <= adaptive.share.astype(way.dtype) * way
    rounded = size <= rounding * steep * (adaptive.start + look.way)
    better = size < watch.best
    return _Watch(
        watch.mind,
        long,
        steep,
        (long > 0) & (enough | rounded),
        jnp.minimum(size, watch.best),
        jnp.where(better, jnp.zeros_like(watch.idle), watch.idle + 1),
    )
