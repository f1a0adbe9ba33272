"""Runs with snapshots of where they are on the way, alone or side by side.

The snapshots lie a tenth of k apart, unless said otherwise: what is found on them is found to a
tenth of its cost.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop.methods import Hypergradient
from biloop.outer import as_outer_step
from biloop.problem import Problem
from biloop.results import FIRST_FAILURE, Status
from biloop.run import chunk as base_loop
from biloop.run.record import Record
from biloop.run.solve import first_state
from biloop.run.trace import Trace
from biloop.sweeps import lockstep
from biloop.sweeps.batches import Batch, Program
from biloop.sweeps.cells import Cell
from biloop.sweeps.running import Goal, Records, chunk_limits

SPACING = 1.1
ENDLESS = 10**9  # outer steps: the budget ends a run


class Point(NamedTuple):
    """Where a run may start."""

    x: PyTree
    y: PyTree


class Snapshot(NamedTuple):
    """Where a run is after some outer steps, on the host."""

    steps: int
    x: PyTree
    y: PyTree
    v: PyTree


class Track(NamedTuple):
    """What a run left: snapshots from its start to its end, its trace, and why it ended."""

    snapshots: tuple[Snapshot, ...]
    trace: Trace
    status: Status

    @property
    def steps(self) -> np.ndarray:
        """The outer steps done at each snapshot."""
        return np.array([snapshot.steps for snapshot in self.snapshots])

    def spent(self, column: str) -> np.ndarray:
        """What each of these x took: a column of the trace that adds up."""
        return np.concatenate([[0], self.trace[column]])[self.steps]

    @property
    def cost(self) -> np.ndarray:
        """Gradients and products together, at each snapshot."""
        return self.spent("gradients") + self.spent("products")


def race(
    problem: Problem,
    method: Hypergradient,
    starts: Sequence[tuple[Any, Point]],
    budget: int,
    interrupted: Callable[[], bool],
    spacing: float,
    width: int,
) -> list[Track]:
    """A run for each outer step and point, `width` of them side by side in one program.

    Each ends when it has spent the budget, or fails, or is INTERRUPTED.
    """
    cells = [Cell(problem, method, as_outer_step(outer), *point, None) for outer, point in starts]
    program = Program(cells, range(len(cells)))
    return [
        track
        for i in range(0, len(cells), width)
        for track in _race(
            program.batch(range(len(cells))[i : i + width], width), budget, interrupted, spacing
        )
    ]


def _race(
    batch: Batch, budget: int, interrupted: Callable[[], bool], spacing: float
) -> list[Track]:
    runs = len(batch.indices)
    lanes, batch = lockstep.start(batch), batch.started()
    records, goal = Records(runs), Goal(ENDLESS, None, budget, 1)

    seen = [jax.device_get(lanes)]
    k = 0
    for chunk in _chunks(spacing):
        limits = chunk_limits(chunk, goal, records, batch.width)
        after, lanes, rows = lockstep.advance(
            batch.shared, batch.varying, jnp.int32(k), lanes, limits
        )
        records.add(k, rows, np.asarray(lanes.rows), 0.0)
        k = int(after)
        seen.append(jax.device_get(lanes))
        if np.all(seen[-1].stop != Status.COMPLETED) or interrupted():
            break
    return [
        Track(
            tuple(_lane_snapshots(seen, lane)),
            Trace(record.columns()),
            _ended(int(seen[-1].stop[lane])),
        )
        for lane, record in enumerate(records.each)
    ]


def alone(
    problem: Problem,
    method: Hypergradient,
    outer: Any,
    point: Point,
    budget: int,
    interrupted: Callable[[], bool],
    spacing: float,
) -> Track:
    """One run like those of a race, by the program that `solve` runs."""
    outer = as_outer_step(outer)
    state = first_state(problem, method, outer, *point, None)
    record, status = Record(), Status.COMPLETED
    snapshots = [_snapshot(0, state)]
    for chunk in _chunks(spacing):
        limits = base_loop.make_limits(chunk, None, budget, record.cost)
        after, rows, done, stop = base_loop.advance(
            problem, method, outer, state, limits, layout=None
        )
        record.add(int(state.k), rows, int(done), 0.0)
        status = Status(int(stop))
        if status.failed:
            break  # the state is of no use; the last snapshot is the end
        state = after
        snapshots.append(_snapshot(int(state.k), state))
        if status is not Status.COMPLETED or interrupted():
            break
    return Track(tuple(snapshots), Trace(record.columns()), _ended(status))


def _chunks(spacing: float) -> Iterator[int]:
    """Steps from one snapshot to the next: k = 1, 2, …, 10, 11, 13, 15, … for a spacing of 1.1."""
    k = 0
    while True:
        steps = min(max(1, int(np.ceil((spacing - 1) * k))), lockstep.CAPACITY)
        yield steps
        k += steps


def _lane_snapshots(seen: Sequence[lockstep.Lane], lane: int) -> Iterator[Snapshot]:
    """What a lane was at each look at all of them, up to its own end."""
    last = -1
    for lanes in seen:
        # A step that failed has a row, but x is still the one before it.
        steps = int(lanes.rows[lane]) - int(lanes.stop[lane] >= FIRST_FAILURE)
        if steps > last:
            yield _snapshot(steps, jax.tree.map(lambda leaf: leaf[lane], lanes))
        last = steps


def _snapshot(steps: int, of: lockstep.Lane | base_loop.State) -> Snapshot:
    return Snapshot(steps, *jax.device_get((of.x, of.warm.y, of.warm.v)))


def _ended(stop: int) -> Status:
    return Status.INTERRUPTED if stop == Status.COMPLETED else Status(stop)
