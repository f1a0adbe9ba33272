"""The rule that ends a loop: it has used its steps, or its residual is at most its tolerance."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from biloop import vectors
from biloop.results import Code, Status, code, code_if, first_failure
from biloop.schedules import Count, Schedule

# Powers such as 16^(1/4)/2 may come out a few units in the last place above the integer they are.
_ROUNDING = 1e-6


class Loop(NamedTuple):
    """Where a loop ended: its state, the norm of the last residual it saw, and the steps used.

    A loop of no steps has seen none: its residual is NaN.
    """

    state: PyTree
    residual: Float[Array, ""]
    steps: Int[Array, ""]
    result: Code


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


def iterate(
    step: Callable[[PyTree], tuple[PyTree, PyTree]],
    state: PyTree,
    like: PyTree,
    steps: Count,
    tolerance: Float[Array, ""] | None,
) -> Loop:
    """state, residual ← step(state), `steps` times or until ‖residual‖ ≤ `tolerance`.

    The residual, a vector of the space of `like`, is whatever the step had to compute anyway:
    nothing is evaluated only to test it.
    """
    start = vectors.zeros_like(like)
    bad_schedule = code_if(jnp.asarray(steps) < 0, Status.BAD_SCHEDULE)
    steps = steps if isinstance(steps, int) else jnp.maximum(steps, 0)

    if tolerance is None:
        # No norm inside the loop: on small problems it would cost as much as the step.
        state, last = lax.fori_loop(0, steps, lambda _, c: step(c[0]), (state, start))
        residual = vectors.norm(last)
        used = jnp.asarray(steps, jnp.int32)
        residual = jnp.where(used > 0, residual, jnp.full_like(residual, jnp.nan))
        return Loop(state, residual, used, bad_schedule)

    def unfinished(loop: Loop) -> Array:
        # A diverged loop ends here; a tolerance that is NaN is never reached.
        return (loop.steps < steps) & ~(loop.residual <= target) & ~jnp.isnan(loop.residual)

    def body(loop: Loop) -> Loop:
        state, residual = step(loop.state)
        return Loop(state, vectors.norm(residual), loop.steps + 1, loop.result)

    unknown = jnp.full_like(vectors.norm(start), jnp.inf)
    target = tolerance.astype(unknown.dtype)
    first = Loop(state, unknown, jnp.zeros((), jnp.int32), code(Status.COMPLETED))
    loop = lax.while_loop(unfinished, body, first)
    return loop._replace(
        residual=jnp.where(loop.steps > 0, loop.residual, jnp.full_like(unknown, jnp.nan)),
        result=first_failure(bad_schedule, code_if(~(loop.residual <= target), Status.UNCONVERGED)),
    )
