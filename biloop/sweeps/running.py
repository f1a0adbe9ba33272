"""One batch from its start to its runs: chunks, records, checkpoints, and why each cell ended."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from biloop.oracles import Cost
from biloop.results import FIRST_FAILURE, Status
from biloop.run.checkpoint import Checkpoint
from biloop.run.chunk import Limits, Row, State, budget_left, make_limits
from biloop.run.diagnosis import DivergenceWatch, explain
from biloop.run.progress import Pace
from biloop.run.record import Record
from biloop.run.sharding import layout_of, mesh_of, place
from biloop.run.solve import Run, as_run
from biloop.run.trace import COLUMNS
from biloop.sweeps.batches import Batch
from biloop.sweeps.cells import Cell
from biloop.sweeps.lockstep import CAPACITY, Lane, advance, start


class Goal(NamedTuple):
    """When a cell ends and how often it is saved, as for `solve`."""

    steps: int
    epsilon: float | None
    budget: int | Cost | None
    every: int


class Records:
    """A record for each lane, and all of them in one piece for a checkpoint."""

    def __init__(self, lanes: int) -> None:
        self.each = [Record() for _ in range(lanes)]

    def add(self, k: int, rows: Row, totals: np.ndarray, elapsed: float) -> None:
        """Append the rows of a chunk, up to `totals` in each lane.

        Its time is divided among the lanes that were running.
        """
        columns = [np.asarray(column) for column in rows]
        new = {lane: int(totals[lane]) - record.rows for lane, record in enumerate(self.each)}
        running = [lane for lane, count in new.items() if count]
        for lane in running:
            own = Row(*(column[:, lane] for column in columns))  # pyright: ignore[reportArgumentType]
            self.each[lane].add(k, own, new[lane], elapsed / len(running))

    def columns(self) -> dict[str, np.ndarray]:
        """All rows, lane after lane."""
        parts = [record.columns() for record in self.each]
        return {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}

    def restore(self, columns: dict[str, np.ndarray]) -> None:
        """Cut the columns of a checkpoint into lanes: each of them begins at k = 0."""
        beginnings = np.flatnonzero(columns["k"] == 0)
        cut = {name: np.split(column, beginnings[1:]) for name, column in columns.items()}
        for lane, record in enumerate(self.each):
            record.restore({name: pieces[lane] for name, pieces in cut.items()})


def run_batch(
    batch: Batch,
    cells: Sequence[Cell],
    goal: Goal,
    saved: Checkpoint,
    interrupted: Callable[[int], bool],
) -> list[Run]:
    """The runs of a batch. `interrupted(k)` is asked after each chunk whether to end them."""
    mesh = mesh_of(batch)
    batch = place(batch, mesh, "A setting of the sweep")
    k, lanes = 0, place(start(batch), mesh, "A start of the sweep")
    layout = layout_of(lanes, mesh)
    records, pace = Records(len(batch.indices)), Pace()
    if (found := saved.restore((np.int32(k), lanes))) is not None:
        (restored, lanes), columns = found
        k = int(restored)
        records.restore(columns)
    batch = batch.started()

    def run_chunk(steps: int) -> tuple[int, Lane, Row]:
        limits = chunk_limits(steps, goal, records, batch.width)
        chunk = advance(batch.shared, batch.varying, jnp.int32(k), lanes, limits, layout)
        after, lanes_after, rows = jax.block_until_ready(chunk)
        return int(after), lanes_after, rows

    began = time.perf_counter()
    run_chunk(0)  # compiles, unless the same program has run before
    compile_seconds = time.perf_counter() - began

    stopped = False
    while not stopped and k < goal.steps and _any_running(lanes):
        # Costs are counted in 32 bits within a chunk; leave room for steps that cost twice.
        most = min(int(2**30 / (1 + 2 * record.cost_per_step)) for record in records.each)
        most = min(most, CAPACITY, saved.steps_until_due(k, goal.steps))
        began = time.perf_counter()
        after, lanes, rows = run_chunk(pace.steps(most, np.inf))
        elapsed = time.perf_counter() - began
        records.add(k, rows, np.asarray(lanes.rows), elapsed)
        pace.measured(after - k, elapsed)
        k = after
        stopped = interrupted(k)
        at_the_end = stopped or k >= goal.steps or not _any_running(lanes)
        saved.save(k, (np.int32(k), lanes), records, at_the_end)

    ends = jax.device_get((lanes.rows, lanes.x, lanes.warm, lanes.stop))
    runs = []
    for lane, index in enumerate(batch.indices):
        made, x, warm, stop = jax.tree.map(lambda leaf, lane=lane: leaf[lane], ends)
        state = State(made - (stop >= FIRST_FAILURE), x, warm, None)
        unfinished = stop == Status.COMPLETED and k < goal.steps
        status = Status.INTERRUPTED if unfinished else Status(int(stop))
        status, cause = _explained(status, cells[index], state, records.each[lane])
        share = compile_seconds / len(batch.indices)
        runs.append(as_run(state, status, cause, records.each[lane], saved.trouble, "", share))
    return runs


def _explained(status: Status, cell: Cell, state: State, record: Record) -> tuple[Status, str]:
    """The status with the cause of a failure; as for `solve`, growth may prove divergence."""
    if status.failed:
        return explain(status, cell.problem, cell.method, state, record)
    if status is Status.COMPLETED and record.rows:
        cause = DivergenceWatch().check(record, cell.problem, cell.method, state)
        return (Status.DIVERGED, cause) if cause else (status, "")
    return status, ""


def _any_running(lanes: Lane) -> bool:
    return bool(np.any(np.asarray(lanes.stop) == Status.COMPLETED))


def chunk_limits(steps: int, goal: Goal, records: Records, width: int) -> Limits:
    """The limits of the next chunk, with what is left of the budget of each lane."""
    left = np.zeros((width, 3), np.int32)  # lanes beyond the records only fill up the batch
    for lane, record in enumerate(records.each):
        left[lane] = budget_left(goal.budget, record.cost)
    common = make_limits(steps, goal.epsilon, None, Cost(0, 0))
    gradients, products, total = left.T
    return common._replace(gradients=gradients, products=products, total=total)
