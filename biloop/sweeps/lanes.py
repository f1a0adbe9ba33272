"""One batch of cells from its start to its runs, side by side in one engine."""

from collections.abc import Callable, Sequence
from functools import cache, partial

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from biloop.loops.results import Status
from biloop.methods import Residuals
from biloop.run.certify import is_certain
from biloop.run.checkpoint import Checkpoint
from biloop.run.diagnosis import explain
from biloop.run.divergence import NO_LEVELS, DivergenceWatch
from biloop.run.doubts import doubted
from biloop.run.ends import last_look
from biloop.run.engine import Engine, drive
from biloop.run.goal import Goal
from biloop.run.outcome import Run, make_run
from biloop.run.record import Record
from biloop.run.sampling import doubtful, exact_value, resting, sampled_remarks
from biloop.run.sharding import mesh_of, place
from biloop.run.step import State, first_state
from biloop.sweeps.batches import Batch
from biloop.sweeps.cells import Cell


def start(batch: Batch) -> State:
    """The states before the first step, along a leading axis but for k."""

    def one(varying: Cell) -> State:
        cell = eqx.combine(varying, batch.shared)
        return first_state(cell.settings, cell.x0, cell.y0, cell.v0)

    axes = State(None, 0, 0, 0)  # pyright: ignore[reportArgumentType]
    return jax.vmap(one, axis_size=batch.width, out_axes=axes)(batch.varying)


def make_engine(batch: Batch, goal: Goal) -> Engine:
    """The runs of a batch before their first step."""
    mesh = mesh_of(batch)
    batch = place(batch, mesh, "A setting of the sweep")
    state = place(start(batch), mesh, "A start of the sweep")
    shared, varying = batch.shared.settings, batch.varying.settings
    return Engine(shared, state, goal, varying, runs=len(batch.indices))


def run_batch(
    batch: Batch,
    cells: Sequence[Cell],
    goal: Goal,
    saved: Checkpoint,
    interrupted: Callable[[int], bool],
) -> list[Run]:
    """The runs of a batch. `interrupted(k)` is asked after each chunk whether to end them."""
    engine = make_engine(batch, goal)
    engine.marks.levels[: len(batch.indices)] = NO_LEVELS
    if (found := saved.restore(lambda _: engine.saved, goal.steps)) is not None:
        engine.restore(*found)
    engine.compile()
    certain: set[int] = set()  # the runs whose h was small, and known to be right

    def after_chunk(_pace: object) -> bool:
        for lane in range(len(batch.indices)):
            if engine.ended(lane) is Status.CONVERGED and lane not in certain:
                assert goal.epsilon is not None
                if is_certain(engine, goal.epsilon, lane):
                    certain.add(lane)
                else:
                    engine.defer_epsilon(lane)
            if engine.ended(lane) is Status.COMPLETED and _diverging(engine, lane, cells, batch):
                engine.stop[lane] = Status.STOPPED
        stopped = interrupted(engine.k)
        over = stopped or engine.k >= goal.steps or not engine.running
        saved.save(engine.k, engine.saved, engine.records, at_the_end=over)
        return stopped

    drive(engine, due=lambda k: saved.steps_until_due(k, goal.steps), after_chunk=after_chunk)
    return _runs(engine, batch, cells, saved.trouble)


def _runs(engine: Engine, batch: Batch, cells: Sequence[Cell], trouble: str) -> list[Run]:
    """A run for each cell, after a last look at where it is."""
    ends = [engine.end(lane) for lane in range(len(batch.indices))]
    proven = {
        lane: _diverging(engine, lane, cells, batch)
        for lane, end in enumerate(ends)
        if end.status is Status.STOPPED
    }
    for lane, found in proven.items():
        assert found is not None
        ends[lane] = ends[lane]._replace(status=found[0])
    sampled = engine.shared.method.sampled is not None
    rows = None
    if not sampled:
        rows = last_look(engine, np.array([end.wants_evaluation for end in ends]))
    x, method_state = jax.device_get((engine.state.x, engine.state.method))

    @cache
    def looked_again() -> PyTree:
        """The y of one more call of each method, where somebody wants to know."""
        with engine.aside():
            return jax.device_get(engine.evaluate()[0].method.y)

    runs = []
    for lane, index in enumerate(batch.indices):
        cell, record = cells[index], engine.records[lane]
        here, its_state = engine.take(lane, (x, method_state))
        status, value = ends[lane].status, ends[lane].value
        claimed = record.residuals()
        y = its_state.y
        if rows is None:
            y = jax.device_get(resting(cell.method, cell.problem, here, its_state))
            value = exact_value(cell.problem, here, y)
        else:
            row = engine.take(lane, rows)
            status, value = ends[lane].judged(row)
            if ends[lane].wants_evaluation:
                claimed = Residuals(float(row.inner_residual), float(row.linear_residual))
        again = partial(_of_lane, engine, lane, looked_again)
        rests = y if sampled and not status.failed else its_state.y
        status, cause = proven.get(lane) or _explained(
            status, cell, here, rests, record, claimed, again
        )
        if sampled and status is Status.UNBOUNDED:  # which too steep batches look like
            status, why = doubtful(status, cell.problem, cell.method, here, y, record)
            cause = why or cause
        runs.append(
            make_run(
                here,
                its_state,
                value,
                status,
                engine.steps_of(lane),
                record,
                y=y,
                remarks=(cause, sampled_remarks(cell.method, cell.problem), trouble),
                compile_seconds=engine.compile_seconds / len(batch.indices),
            )
        )
    return runs


def _of_lane(engine: Engine, lane: int, looked: Callable[[], PyTree]) -> PyTree:
    return engine.take(lane, looked())


def _diverging(
    engine: Engine, lane: int, cells: Sequence[Cell], batch: Batch
) -> tuple[Status, str] | None:
    """Whether growth proves that a run diverges, as for `solve`."""
    record, watch = engine.records[lane], DivergenceWatch(engine.marks.levels[lane])
    if not record.rows or not watch.suspects(record):
        return None
    cell, (x, state) = cells[batch.indices[lane]], (engine.state.x, engine.state.method)
    return watch.check(record, cell.problem, cell.method, *engine.take(lane, (x, state.y)))


def _explained(
    status: Status,
    cell: Cell,
    x: PyTree,
    y: PyTree,
    record: Record,
    claimed: Residuals,
    again: Callable[[], PyTree],
) -> tuple[Status, str]:
    """The status with the cause of a failure, or of doubt."""
    if status.failed:
        return explain(status, cell.problem, cell.method, x, y, record)
    if not record.rows:
        return status, ""
    if cell.method.sampled is not None:
        return doubtful(status, cell.problem, cell.method, x, y, record)
    return doubted(status, cell.problem, cell.method, x, y, record, claimed, again)
