"""The base loop of many runs at once: all make outer step k together, the stopped ones stand still.

A loop that is stacked by `vmap` as it is would carry a k per run, so that loop sizes which depend
on k would differ within one program and all inner loops would run to the longest. Here k is common.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, PyTree

from biloop import vectors
from biloop.compilation import compiled
from biloop.methods import Warm
from biloop.oracles import Cost
from biloop.results import FIRST_FAILURE, Code, Status, code, code_if, first_failure
from biloop.run.chunk import Limits, Row, State, check_budget, outer_step
from biloop.run.sharding import pin
from biloop.run.solve import first_state
from biloop.sweeps.batches import Batch
from biloop.sweeps.cells import Cell

CAPACITY = 256  # the most outer steps in one call: the length of its record


class Lane(NamedTuple):
    """One run among many: its state but for k, the rows it has recorded, and why it stopped."""

    x: PyTree
    warm: Warm
    outer: PyTree
    rows: Int[Array, ""]
    stop: Code


def start(batch: Batch) -> Lane:
    """The lanes before the first step; those that only fill up the batch do not run."""

    def one(varying: Cell) -> Lane:
        state = first_state(*eqx.combine(varying, batch.shared))
        return Lane(state.x, state.warm, state.outer, state.k, code(Status.COMPLETED))

    lanes = jax.vmap(one, axis_size=batch.width)(batch.varying)
    filler = jnp.arange(batch.width) >= len(batch.indices)
    return lanes._replace(stop=jnp.where(filler, code(Status.STOPPED), lanes.stop))


@compiled
def advance(
    shared: Cell,
    varying: Cell,
    k: Int[Array, ""],
    lanes: Lane,
    limits: Limits,
    layout: PyTree = None,
) -> tuple[Int[Array, ""], Lane, Row]:
    """Outer steps until a limit is reached or all have stopped: k, the lanes, and the rows.

    A lane that stops on the way has made the first of the rows; those after it mean nothing.
    On many devices `layout` says where the lanes lie.
    """

    def step(
        varying: Cell, lane: Lane, spent: Cost, k: Array, limits: Limits
    ) -> tuple[Lane, Cost, Row]:
        problem, method, outer, *_ = eqx.combine(varying, shared)
        before = State(k, lane.x, lane.warm, lane.outer)
        after, row, stop = outer_step(problem, method, outer, before, limits.epsilon)
        update = code_if(~vectors.all_finite(after.x), Status.UPDATE_NOT_FINITE)
        row = row._replace(result=first_failure(row.result, update))
        spent = spent + Cost(row.gradients, row.products)
        stop = jnp.where(stop != code(Status.COMPLETED), stop, check_budget(spent, limits))
        stop = first_failure(stop, update)

        running = lane.stop == code(Status.COMPLETED)
        good = running & (stop < FIRST_FAILURE)
        x, warm, memory = vectors.where(
            good, (after.x, after.warm, after.outer), (lane.x, lane.warm, lane.outer)
        )
        stop = jnp.where(running, stop, lane.stop)
        rows = lane.rows + running.astype(lane.rows.dtype)
        return Lane(x, warm, memory, rows, stop), spent, row

    per_lane = Limits(None, None, 0, 0, 0)  # pyright: ignore[reportArgumentType]
    step_all = jax.vmap(step, in_axes=(0, 0, 0, None, per_lane))
    zeros = jnp.zeros_like(lanes.rows)
    nothing = Cost(zeros, zeros)
    shapes = jax.eval_shape(step_all, varying, lanes, nothing, k, limits)[2]
    rows = jax.tree.map(lambda s: jnp.zeros((CAPACITY, *s.shape), s.dtype), shapes)

    def unfinished(carry: tuple[Array, Lane, Cost, Row]) -> Array:
        done, lanes, *_ = carry
        return (done < limits.steps) & jnp.any(lanes.stop == code(Status.COMPLETED))

    def body(carry: tuple[Array, Lane, Cost, Row]) -> tuple[Array, Lane, Cost, Row]:
        done, lanes, spent, rows = carry
        lanes, spent, row = step_all(varying, lanes, spent, k + done, limits)
        rows = jax.tree.map(
            lambda rows, entry: lax.dynamic_update_index_in_dim(rows, entry, done, axis=0),
            rows,
            row,
        )
        return done + 1, lanes, spent, rows

    first = (jnp.zeros((), jnp.int32), lanes, nothing, rows)
    done, lanes, _, rows = lax.while_loop(unfinished, body, first)
    return k + done, pin(lanes, layout), rows
