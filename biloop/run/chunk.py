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
from jaxtyping import Array, Float, Int, PyTree

from biloop import vectors
from biloop.compilation import compiled
from biloop.oracles import Cost
from biloop.results import Code, Status, code, code_if
from biloop.run.sharding import pin
from biloop.run.step import COUNTS, NUMBERS, Row, Settings, State, outer_step

CAPACITY = 4096  # the most outer steps of one run in one call: the length of its record
LANE_CAPACITY = 256  # of many runs
UNLIMITED = int(np.iinfo(np.int32).max)


class Limits(NamedTuple):
    """When a chunk ends: after so many steps, at ‖h‖² ≤ epsilon, or when the cost is used up.

    With `stay` x is looked at and not moved.
    """

    steps: Int[Array, ""]
    epsilon: Float[Array, "..."]
    stay: Array
    gradients: Int[Array, "..."]
    products: Int[Array, "..."]
    total: Int[Array, "..."]


class Lane(NamedTuple):
    """A run inside a chunk: its state, what it has spent, the rows it made, why it stopped."""

    state: State
    spent: Cost
    rows: Int[Array, "..."]
    stop: Code


class Chunk(NamedTuple):
    """What a chunk leaves: the state, its record, the rows of each run in it, and why each stopped.

    A run that stops on the way has made the first of the rows; those after it mean nothing.
    """

    state: State
    numbers: Float[Array, "capacity columns ..."]
    counts: Int[Array, "capacity columns ..."]
    rows: Int[Array, "..."]
    stop: Int[Array, "..."]

    def record(self) -> Row:
        """The columns of the record, on the host."""
        numbers, counts = np.asarray(self.numbers), np.asarray(self.counts)
        columns = {name: numbers[:, i] for i, name in enumerate(NUMBERS)}
        columns |= {name: counts[:, i] for i, name in enumerate(COUNTS)}
        return Row(**columns)


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

    def step(varying: Settings | None, lane: Lane, limits: Limits) -> tuple[Lane, Array, Array]:
        settings = shared if varying is None else eqx.combine(varying, shared)
        state, row, stop = outer_step(settings, lane.state, limits.epsilon, limits.stay)
        spent = _add(lane.spent, Cost(jnp.asarray(row.gradients), jnp.asarray(row.products)))
        stop = jnp.where(stop != code(Status.COMPLETED), stop, _budget(spent, limits))
        after = Lane(state, spent, lane.rows + 1, stop)
        if lanes:
            after = vectors.where(lane.stop == code(Status.COMPLETED), after, lane)
        numbers, counts = _pack(row)
        return after, numbers, counts

    every = step
    if lanes:
        k_common = State(None, 0, 0, 0)  # pyright: ignore[reportArgumentType]
        lane_axes = Lane(k_common, Cost(0, 0), 0, 0)  # pyright: ignore[reportArgumentType]
        limit_axes = Limits(None, 0, None, 0, 0, 0)  # pyright: ignore[reportArgumentType]
        every = jax.vmap(
            step, in_axes=(0, lane_axes, limit_axes), out_axes=(lane_axes._replace(
                state=State(0, 0, 0, 0)), -1, -1)  # pyright: ignore[reportArgumentType]
        )  # fmt: skip

    def unfinished(carry: tuple[Array, Lane, Array, Array]) -> Array:
        done, lane, *_ = carry
        return (done < limits.steps) & jnp.any(lane.stop == code(Status.COMPLETED))

    def body(carry: tuple[Array, Lane, Array, Array]) -> tuple[Array, Lane, Array, Array]:
        done, lane, numbers, counts = carry
        k = lane.state.k
        lane, new_numbers, new_counts = every(varying, lane, limits)
        if lanes:  # k is that of the program: a run that has stopped stays behind
            lane = lane._replace(state=lane.state._replace(k=k + 1))
        numbers = lax.dynamic_update_index_in_dim(numbers, new_numbers, done, axis=0)
        counts = lax.dynamic_update_index_in_dim(counts, new_counts, done, axis=0)
        return done + 1, lane, numbers, counts

    capacity = LANE_CAPACITY if lanes else CAPACITY
    zero = jnp.zeros_like(stop)
    numbers = jnp.zeros((capacity, len(NUMBERS), *stop.shape), jnp.result_type(float))
    counts = jnp.zeros((capacity, len(COUNTS), *stop.shape), jnp.int32)
    start = Lane(state, Cost(zero, zero), zero, stop)
    carry = (jnp.zeros((), jnp.int32), start, numbers, counts)
    _, lane, numbers, counts = lax.while_loop(unfinished, body, carry)
    everywhere = None if layout is None else layout.k
    rest = pin((numbers, counts, lane.rows, lane.stop), everywhere)
    return Chunk(pin(lane.state, layout), *rest)


def _pack(row: Row) -> tuple[Float[Array, " columns"], Int[Array, " columns"]]:
    """The entries of a row in two pieces: each piece is one write in each step."""
    numbers = [getattr(row, name).astype(jnp.result_type(float)) for name in NUMBERS]
    counts = [getattr(row, name).astype(jnp.int32) for name in COUNTS]
    return jnp.stack(numbers), jnp.stack(counts)


def _add(spent: Cost, more: Cost) -> Cost:
    """The sum, which stops at the largest integer instead of starting again below zero."""

    def add(a: Array, b: Array) -> Array:
        return jnp.minimum(a, UNLIMITED - b) + b

    return Cost(
        add(jnp.asarray(spent.gradients), jnp.asarray(more.gradients)),
        add(jnp.asarray(spent.products), jnp.asarray(more.products)),
    )


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


def budget_left(budget: int | Cost | None, spent: Cost) -> tuple[int, int, int]:
    """The gradients, the products, and the sum of both that may still be spent."""
    if isinstance(budget, Cost):
        left = budget.gradients - spent.gradients, budget.products - spent.products, UNLIMITED
    else:
        left = UNLIMITED, UNLIMITED, UNLIMITED if budget is None else budget - spent.total
    gradients, products, total = (max(0, min(int(n), UNLIMITED)) for n in left)
    return gradients, products, total
