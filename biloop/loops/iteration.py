"""The rule that ends a loop: it has used its steps, or its residual is at most its tolerance.

An adaptive loop has a target that follows from the problem instead (see `loops.adaptive`). What is
judged is what is returned: a loop that claims to have arrived returns the point whose residual was
computed, and one that stops short of its target for any other reason is UNCONVERGED.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.loops.adaptive import Adaptivity, Curvature, Watch, is_idle, observe, watch_from
from biloop.loops.cost import Cost
from biloop.loops.results import Code, Status, code_if, first_failure
from biloop.schedules import Count, Schedule

Step = Callable[[PyTree], tuple[PyTree, PyTree]]  # state -> state, residual
_SMALL = 2**12  # entries of a vector whose norm takes as long as a step with it


class LoopInfo(NamedTuple):
    """What a loop says of itself: ‖residual‖ as last computed, steps, cost, and a result code.

    A loop of no steps has seen no residual: it is NaN.
    """

    residual: Float[Array, ""]
    steps: Int[Array, ""]
    cost: Cost
    result: Code


class Rule(NamedTuple):
    """What ends a loop. Without a tolerance and a share it spends its steps."""

    steps: Count
    tolerance: Float[Array, ""] | None = None
    adaptive: Adaptivity | None = None

    @property
    def judges(self) -> bool:
        """Whether the loop has a target, so that it can miss it."""
        return self.tolerance is not None or self.adaptive is not None


class Loop(NamedTuple):
    """Where a loop ended.

    `steps` counts the residuals that were computed and `moves` the steps that were kept: one fewer
    where the last residual was small enough to stay.
    """

    state: PyTree
    residual: Float[Array, ""]
    steps: Int[Array, ""]
    moves: Int[Array, ""]
    arrived: Bool[Array, ""]
    result: Code
    curvature: Curvature | tuple[()] = ()


def limit(tolerance: Schedule | None, k: Count) -> Float[Array, ""] | None:
    """tolerance(k), or None to spend the whole budget."""
    return None if tolerance is None else jnp.asarray(tolerance(k))


def iterate(
    step: Step,
    state: PyTree,
    like: PyTree,
    rule: Rule,
    *,
    residual_first: bool,
    size: Callable[[PyTree, PyTree], Float[Array, ""]] | None = None,
    hopeless: Callable[[PyTree], Bool[Array, ""]] | None = None,
    choose: Callable[[Array, PyTree, PyTree], PyTree] = vectors.where,
) -> Loop:
    """state, residual ← step(state), as often as the rule says.

    The residual, a vector of the space of `like`, is whatever the step had to compute anyway. With
    `residual_first` it belongs to the state before the step, which is then kept if it is good
    enough; otherwise to the state after it. `size(state, residual)` is how large it counts, by
    default its norm, and a state that is `hopeless` ends the loop. `choose(stay, before, after)` is
    for states with parts too large to be chosen between.
    """
    bad_schedule = code_if(jnp.asarray(rule.steps) < 0, Status.BAD_SCHEDULE)
    steps = rule.steps if isinstance(rule.steps, int) else jnp.maximum(rule.steps, 0)
    if not rule.judges:
        return _spend(step, state, like, steps, bad_schedule, size)

    def unfinished(carry: _Carry) -> Array:
        # The decision was made once, in the body: a predicate that computes may be evaluated twice
        # and rounded differently.
        return carry.running & (carry.steps < steps)

    def body(carry: _Carry) -> _Carry:
        after, residual = step(carry.state)
        norm = vectors.norm(residual) if size is None else size(after, residual)
        watch, arrived = carry.watch, jnp.zeros((), bool)
        if rule.adaptive is not None and watch is not None:
            watch, arrived = observe(
                rule.adaptive, watch, carry.state, after, residual, norm, vectors.eps(like)
            )
        if rule.tolerance is not None:
            # A tolerance that is NaN is never reached.
            arrived = norm <= rule.tolerance.astype(norm.dtype)
        over = arrived | ~jnp.isfinite(norm)
        if rule.adaptive is not None and watch is not None:
            over = over | is_idle(rule.adaptive, watch)
        if hopeless is not None:
            over = over | hopeless(after)
        stay = arrived & residual_first
        return _Carry(
            choose(stay, carry.state, after) if residual_first else after,
            norm,
            carry.steps + 1,
            carry.moves + (~stay).astype(jnp.int32),
            arrived,
            ~over,
            watch,
        )

    zero = jnp.zeros((), jnp.int32)
    unknown = jnp.full((), jnp.nan, vectors.accumulator(like))
    watch = None if rule.adaptive is None else watch_from(rule.adaptive)
    arrived = jnp.zeros((), bool)
    if size is not None and rule.tolerance is not None:  # known before the first step
        unknown = size(state, None)
        arrived = unknown <= rule.tolerance.astype(unknown.dtype)
    start = _Carry(state, unknown, zero, zero, arrived, ~arrived, watch)
    end = lax.while_loop(unfinished, body, start)
    result = first_failure(bad_schedule, code_if(~end.arrived, Status.UNCONVERGED))
    learnt = ()
    if end.watch is not None:
        learnt = Curvature(end.watch.inverse_mu, jnp.zeros_like(end.watch.inverse_mu))
    return Loop(end.state, end.residual, end.steps, end.moves, end.arrived, result, learnt)


class _Carry(NamedTuple):
    state: PyTree
    residual: Float[Array, ""]
    steps: Int[Array, ""]
    moves: Int[Array, ""]
    arrived: Bool[Array, ""]
    running: Bool[Array, ""]
    watch: Watch | None


def _spend(
    step: Step,
    state: PyTree,
    like: PyTree,
    steps: Count,
    bad_schedule: Code,
    size: Callable[[PyTree, PyTree], Float[Array, ""]] | None,
) -> Loop:
    """All steps, and the norm of the last residual.

    In a small step all but the arithmetic counts, so that only the last one, in a loop of its own,
    hands out its residual; a large g is compiled once, and the norms are carried along.
    """

    def measure(state: PyTree, residual: PyTree) -> Float[Array, ""]:
        return vectors.norm(residual) if size is None else size(state, residual)

    def measured(_: Array, carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        after, residual = step(carry[0])
        return after, measure(after, residual)

    unknown = jnp.full((), jnp.nan, vectors.accumulator(like))
    before = 0
    if vectors.size(like) <= _SMALL:
        before = max(steps - 1, 0) if isinstance(steps, int) else jnp.maximum(steps - 1, 0)
        state = lax.fori_loop(0, before, lambda _, state: step(state)[0], state)
    state, norm = lax.fori_loop(before, steps, measured, (state, unknown))
    used = jnp.asarray(steps, jnp.int32)
    return Loop(state, norm, used, used, jnp.zeros((), bool), bad_schedule)
