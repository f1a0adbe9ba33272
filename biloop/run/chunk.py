"""The base loop as a compiled program: outer steps until a limit is reached.

The only loop over outer steps. Python is entered once per chunk. Data, numbers and limits are
arguments, so that changing them compiles nothing; the state is donated, so that there is one copy
of it; and the bits do not depend on where one chunk ends and the next begins. Many runs go side by
side along a leading axis of what differs between them: all make outer step k together, and those
that have stopped stand still.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Num, PyTree

from biloop import vectors
from biloop.compilation import Compiled, compiled
from biloop.loops.results import Code, Status, code, code_if
from biloop.oracles import Cost
from biloop.problem import Problem
from biloop.run.sharding import pin
from biloop.run.step import COUNTS, NUMBERS, SAMPLES, Row, Settings, State, outer_step
from biloop.schedules.forms import within

CAPACITY = 4096  # the most outer steps of one run in one call: the length of its record
LANE_CAPACITY = 256  # of many runs
UNLIMITED = int(np.iinfo(np.int32).max)
_ROUNDING = 8.0  # units in the last place of a budget in passes
_PLENTY = 2**30  # evaluations: more than a loop can spend


class Limits(NamedTuple):
    """When a chunk ends: after so many steps, at ‖h‖² ≤ epsilon, or when the cost is used up.

    With `stay` x is looked at and not moved. A chunk ends also where a row is beyond the `levels`
    of its run (of the `NUMBERS`), so that where the host looks does not depend on the clock.
    """

    steps: Int[Array, ""]
    levels: Float[Array, "numbers ..."]
    epsilon: Float[Array, "..."]
    stay: Array
    gradients: Num[Array, "..."]
    products: Num[Array, "..."]
    total: Num[Array, "..."]


class Passes(NamedTuple):
    """Whole passes over the samples and the rows beyond them: integers that do not overflow.

    In the order of `SampleCount`, as one array each: in a small step operations count.
    """

    whole: Int[Array, "... 3"]
    rows: Int[Array, "... 3"]


Spent = Int[Array, "... 2"] | Passes
"""Gradients and products as one array, or what was drawn."""


class Lane(NamedTuple):
    """A run inside a chunk: its state, what it has spent, the rows it made, why it stopped."""

    state: State
    spent: Spent
    rows: Int[Array, "..."]
    stop: Code


class Chunk(NamedTuple):
    """What a chunk leaves: the state, its record, the rows of each run in it, and why each stopped.

    A run that stops on the way has made the first of the rows; those after it mean nothing.
    """

    state: State
    numbers: Float[Array, "capacity columns ..."]
    counts: Int[Array, "capacity columns ..."]
    metrics: dict[str, Array]
    rows: Int[Array, "..."]
    stop: Int[Array, "..."]

    def record(self) -> Row:
        """The columns of the record, on the host."""
        numbers, counts = np.asarray(self.numbers), np.asarray(self.counts)
        columns = {name: numbers[:, i] for i, name in enumerate(NUMBERS)}
        columns |= dict.fromkeys(SAMPLES, np.zeros_like(counts[:, 0]))
        counted = _counted(counts.shape[1] == len(COUNTS))
        columns |= {name: counts[:, i] for i, name in enumerate(counted)}
        return Row(**columns, metrics={n: np.asarray(m) for n, m in self.metrics.items()})


class Given(NamedTuple):
    """What is not donated: what runs share, what differs, limits, and who has stopped."""

    shared: Settings
    varying: Settings | None
    limits: Limits
    stop: Int[Array, "..."]


@compiled(donate=["state"])
def advance(given: Given, state: State, layout: PyTree = None) -> Chunk:
    """Outer steps until a limit is reached or all runs have stopped.

    On many devices `layout` says where the state lies; the record is on each of them, as k is.
    """
    shared, varying, limits, stop = given
    lanes = varying is not None
    sampled = shared.method.counts_rows
    counted = _counted(sampled)

    def step(varying: Settings | None, lane: Lane, limits: Limits) -> tuple[Lane, _Entry]:
        settings = shared if varying is None else eqx.combine(varying, shared)
        left = _left_for_a_loop(_as_cost(lane.spent, settings.problem), limits)
        settings = settings._replace(method=within(settings.method, left))
        state, row, stop = outer_step(settings, lane.state, limits.epsilon, limits.stay)
        spent = _add(lane.spent, row, settings.problem)
        over = _budget(_as_cost(spent, settings.problem), limits)
        stop = jnp.where(stop != code(Status.COMPLETED), stop, over)
        after = Lane(state, spent, lane.rows + 1, stop)
        if lanes:
            after = vectors.where(lane.stop == code(Status.COMPLETED), after, lane)
        return after, _pack(row, counted)

    every = step
    if lanes:
        k_common = State(None, 0, 0, 0)  # pyright: ignore[reportArgumentType]
        lane_axes = Lane(k_common, 0, 0, 0)  # pyright: ignore[reportArgumentType]
        limit_axes = Limits(None, None, 0, None, 0, 0, 0)  # pyright: ignore[reportArgumentType]
        every = jax.vmap(
            step, in_axes=(0, lane_axes, limit_axes), out_axes=(lane_axes._replace(
                state=State(0, 0, 0, 0)), -1)  # pyright: ignore[reportArgumentType]
        )  # fmt: skip

    def unfinished(carry: tuple[Array, Lane, _Entry]) -> Array:
        done, lane, _ = carry
        running = jnp.any(lane.stop == code(Status.COMPLETED))
        return (done < limits.steps) & running & ~_has_news(*carry, limits.levels)

    def body(carry: tuple[Array, Lane, _Entry]) -> tuple[Array, Lane, _Entry]:
        done, before, record = carry
        lane, entry = every(varying, before, limits)
        if lanes:  # k is that of the program: a run that has stopped stays behind
            lane = lane._replace(state=lane.state._replace(k=before.state.k + 1))
        record = jax.tree.map(
            lambda column, new: lax.dynamic_update_index_in_dim(column, new, done, axis=0),
            record,
            entry,
        )
        return done + 1, lane, record

    capacity = LANE_CAPACITY if lanes else CAPACITY
    zero = jnp.zeros_like(stop)
    first = Lane(state, _nothing(sampled, zero), zero, stop)
    numbers = jnp.zeros((capacity, len(NUMBERS), *stop.shape), jnp.result_type(float))
    counts = jnp.zeros((capacity, len(counted), *stop.shape), jnp.int32)
    names = ()
    if shared.problem.has_aux:  # which only a second trace can tell
        names = jax.eval_shape(every, varying, first, limits)[1].metrics
    column = jnp.zeros((capacity, *stop.shape), jnp.result_type(float))
    record = _Entry(numbers, counts, dict.fromkeys(names, column))
    carry = (jnp.zeros((), jnp.int32), first, record)
    _, lane, record = lax.while_loop(unfinished, body, carry)
    everywhere = None if layout is None else layout.k
    rest = pin((*record, lane.rows, lane.stop), everywhere)
    return Chunk(pin(lane.state, layout), *rest)


class _Entry(NamedTuple):
    """The entries of a row in two pieces, each one write in each step; and the metrics of f."""

    numbers: Float[Array, "..."]
    counts: Int[Array, "..."]
    metrics: dict[str, Array]


advance_briefly: Compiled = compiled(donate=["state"], often="briefly")(advance.function)
"""The same for outer steps that find their own size, and are few."""


def _has_news(done: Array, lane: Lane, record: _Entry, levels: Array) -> Array:
    """Whether the host must look at a run that made the last step.

    Who has arrived is judged at once, as it may have to go on. The numbers are those of the record:
    within the step XLA would compute them once more for this.
    """
    row = lax.dynamic_index_in_dim(record.numbers, done - 1, axis=0, keepdims=False)
    news = (lane.stop == code(Status.CONVERGED)) | _is_beyond(row, levels)
    return (done > 0) & jnp.any(news & (lane.rows == done))


def _is_beyond(numbers: Float[Array, "numbers ..."], levels: Float[Array, "numbers ..."]) -> Array:
    """Whether f and ‖h‖ are both above their levels, or a residual is above its own."""
    value, size, inner, linear = jnp.abs(numbers) > levels
    return (value & size) | inner | linear


def _nothing(sampled: bool, zero: Array) -> Spent:
    none = jnp.zeros((*zero.shape, 3 if sampled else 2), jnp.int32)
    return Passes(none, none) if sampled else none


def _counted(sampled: bool) -> tuple[str, ...]:
    """The counts that are recorded."""
    return COUNTS if sampled else tuple(name for name in COUNTS if name not in SAMPLES)


def _pack(row: Row, counted: tuple[str, ...]) -> _Entry:
    """A row for the record."""
    numbers = [getattr(row, name).astype(jnp.result_type(float)) for name in NUMBERS]
    counts = [getattr(row, name).astype(jnp.int32) for name in counted]
    metrics = {name: jnp.asarray(m).astype(float) for name, m in row.metrics.items()}
    return _Entry(jnp.stack(numbers), jnp.stack(counts), metrics)


def _add(spent: Spent, row: Row, problem: Problem) -> Spent:
    """What was used so far, this step included: rows where it drew some, else evaluations."""
    if not isinstance(spent, Passes):
        more = jnp.stack([jnp.asarray(row.gradients), jnp.asarray(row.products)])
        # Stops at the largest integer instead of starting again below zero.
        return jnp.minimum(spent, UNLIMITED - more) + more
    sizes = jnp.asarray(_sizes(problem), jnp.int32)
    rows = spent.rows + jnp.stack([getattr(row, name).astype(jnp.int32) for name in SAMPLES])
    return Passes(spent.whole + lax.div(rows, sizes), lax.rem(rows, sizes))


def _as_cost(spent: Spent, problem: Problem) -> Cost:
    """Gradients and products, of which one on B of n rows is B/n."""
    if not isinstance(spent, Passes):
        return Cost(*spent)
    sizes = jnp.asarray(_sizes(problem), float)
    inner, outer, products = spent.whole.astype(float) + spent.rows.astype(float) / sizes
    return Cost(inner + outer, products)


def _sizes(problem: Problem) -> tuple[int, int, int]:
    n, m = problem.inner_samples or 1, problem.outer_samples or 1
    return n, m, n


def _budget(spent: Cost, limits: Limits) -> Code:
    """BUDGET_SPENT where it is, else COMPLETED."""
    gradients, products = jnp.asarray(spent.gradients), jnp.asarray(spent.products)
    over = (
        (gradients >= limits.gradients)
        | (products >= limits.products)
        # gradients + products ≥ total, without a sum that may overflow
        | (gradients >= limits.total - jnp.minimum(products, limits.total))
    )
    return code_if(over, Status.BUDGET_SPENT)


def _left_for_a_loop(spent: Cost, limits: Limits) -> Int[Array, ""]:
    """The evaluations that one loop may spend, at least one; those of a look are unlimited.

    No loop is cut short unless what it takes spends the budget.
    """
    gradients, products = jnp.asarray(spent.gradients), jnp.asarray(spent.products)
    total = limits.total - jnp.minimum(products, limits.total)
    total = total - jnp.minimum(gradients, total)
    left = jnp.minimum(total, jnp.maximum(limits.gradients - gradients, limits.products - products))
    left = jnp.where(limits.stay, _PLENTY, jnp.clip(jnp.ceil(left), 1, _PLENTY))
    return left.astype(jnp.int32)


def budget_left(budget: float | Cost | None, spent: Cost) -> tuple[float, float, float]:
    """The gradients, the products, and the sum of both that may still be spent."""
    if isinstance(budget, Cost):
        pairs = zip(budget, spent, strict=True)
        gradients, products = (_left(most, so_far) for most, so_far in pairs)
        return gradients, products, float(UNLIMITED)
    total = UNLIMITED if budget is None else _left(budget, spent.total)
    return float(UNLIMITED), float(UNLIMITED), float(total)


def _left(most: float | Array, so_far: float | Array) -> float:
    """What is missing; but for rounding, where it is in fractions of passes."""
    slack = 0.0 if isinstance(so_far, int) else _ROUNDING * float(jnp.finfo(float).eps)
    return max(0.0, min(float(most) * (1 - slack) - float(so_far), UNLIMITED))
