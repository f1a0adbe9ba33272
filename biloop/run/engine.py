"""The host around the compiled chunk: runs that go on together, and the loop that drives them.

`solve` drives one run, `sweep` and `compare` many. Whoever drives says when a run is to be looked
at (a checkpoint, a snapshot) and gets its word after each chunk.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop.loops.results import FIRST_FAILURE, Status
from biloop.run.buffers import copied, to_lend
from biloop.run.chunk import (
    CAPACITY,
    LANE_CAPACITY,
    UNLIMITED,
    Chunk,
    Given,
    Limits,
    advance,
    advance_briefly,
    budget_left,
)
from biloop.run.goal import NEVER, End, Goal, Marks
from biloop.run.processes import ALONE, Processes
from biloop.run.progress import Pace
from biloop.run.record import Records
from biloop.run.sharding import bound, in_place_of, layout_of, mesh_of
from biloop.run.step import NUMBERS, Row, Settings, State, sample_sizes

Saved = tuple[State, np.ndarray, Marks, PyTree, PyTree]


class Engine:
    """Runs that go on together: their state, and a record for each.

    Alone, `varying` is None. Otherwise what differs between the runs has a leading axis, in
    `varying` and in all of the state but k; `runs` of the lanes are real, the rest fill up a batch
    of fixed width. The state is donated to the next chunk, unless it is lent to the engine: who
    wants to keep it must copy it, or look at it `aside`.
    """

    def __init__(
        self,
        shared: Settings,
        state: State,
        goal: Goal,
        varying: Settings | None = None,
        runs: int = 1,
    ) -> None:
        self.varying, self.goal = varying, goal
        mesh = mesh_of((shared, varying, state))
        self.use(shared)
        self.begin(bound(state, (shared, varying, state)))
        self._layout = layout_of(self.state, mesh)
        self.records = Records(runs, sample_sizes(shared))
        self.compile_seconds = 0.0
        self.went_back = False
        self.kept: PyTree = ()  # for `Restarts` ...
        self.rival: PyTree = ()  # ... and for `Race`
        width = None if varying is None else len(jax.tree.leaves(state.x)[0])
        self.stop = np.zeros((), np.int32) if width is None else np.zeros(width, np.int32)
        if width is not None:
            self.stop[runs:] = Status.STOPPED
        kind = jnp.result_type(float)
        self.marks = Marks(
            np.zeros(self.stop.shape, np.int32),
            np.full((), np.nan, kind),
            np.full((*self.stop.shape, 5), np.inf, kind),
            np.zeros(2, np.int32),
        )

    def use(self, shared: Settings) -> None:
        """Go on with these."""
        self.shared = shared
        self._program = advance_briefly if shared.outer.finds_its_size else advance

    @property
    def alone(self) -> bool:
        """Whether there is a single run."""
        return self.varying is None

    @property
    def k(self) -> int:
        """The number of outer steps that were made."""
        k = self.state.k
        if self._last[0] is not k:  # to look at an array takes long
            self._last = k, int(k)
        return self._last[1]

    @property
    def running(self) -> bool:
        """Whether any run may go on."""
        return bool(np.any(self.stop == Status.COMPLETED))

    def ended(self, lane: int = 0) -> Status:
        """Why a run has stopped, COMPLETED if it has not."""
        return Status(int(self.stop if self.alone else self.stop[lane]))

    def steps_of(self, lane: int = 0) -> int:
        """The outer steps that moved the x of a run: one that failed has a row and did not."""
        return self.records[lane].rows - int(self.ended(lane) >= FIRST_FAILURE)

    def take(self, lane: int, tree: PyTree) -> PyTree:
        """The part of a tree that belongs to a run."""
        return tree if self.alone else jax.tree.map(lambda leaf: leaf[lane], tree)

    @property
    def saved(self) -> Saved:
        """What a checkpoint holds beside the records."""
        return self.state, self.stop, self.marks, self.kept, self.rival

    def begin(self, state: State) -> None:
        """Go on from this state, which is lent: whoever has its arrays may keep them."""
        self.state: State = state
        self._is_lent = True
        self._last: tuple[Any, int] = None, 0

    def restore(self, saved: Saved, columns: dict[str, np.ndarray]) -> None:
        """Go on where a checkpoint ends."""
        state, stop, marks, self.kept, self.rival = saved
        self.begin(state)
        self.stop = np.array(stop)
        if not np.isin(self.stop, list(Status)).all():
            raise ValueError(
                f"The checkpoint is damaged, as {stop} is no end. Delete it to start the run anew."
            )
        self.marks = Marks(*map(np.array, marks))
        self.records.restore(columns)
        self.set_aside(*self.marks.aside)

    def set_aside(self, begin: int, end: int) -> None:
        """Judge a run that is alone not by these rows."""
        self.marks.aside[:] = begin, end
        self.records[0].aside = int(begin), int(end)

    def reopen(self) -> None:
        """Let all runs go on, whatever has stopped them."""
        self.stop = np.zeros_like(self.stop)

    def compile(self) -> None:
        """Compile the program, unless it was compiled before."""
        start = time.perf_counter()
        self._program.compile(self._given(0), self.state, self._layout)
        self.compile_seconds += time.perf_counter() - start

    def lowered(self) -> jax.stages.Lowered:
        """The program of a chunk, as XLA gets it."""
        return self._program.lower(self._given(0), self.state, self._layout)

    def advance(self, most: int) -> int:
        """Up to so many outer steps; how many were made. Its time is for `book` to say."""
        before = self.k
        chunk = self._run(self._given(most), self.state)
        self._chunk, self._before = chunk, before
        self.stop = np.array(chunk.stop)
        return int(np.asarray(chunk.rows)) if self.alone else self.k - before

    def book(self, elapsed: float) -> None:
        """Enter the rows of the last chunk into the records; its time is shared by who ran."""
        chunk: Chunk = self._chunk
        made = np.atleast_1d(np.asarray(chunk.rows))
        self.records.add(self._before, chunk.record(), made, elapsed)

    def end(self, lane: int = 0) -> End:
        """How a run has ended as far as the compiled loop knows."""
        record, status = self.records[lane], self.ended(lane)
        if status is Status.COMPLETED and self.k < self.goal.steps:
            status = Status.INTERRUPTED
        small = -1.0 if self.goal.epsilon is None else self.goal.epsilon**0.5
        judged = status is Status.COMPLETED and record.rows > 0
        if judged and record.last("hypergradient_norm") <= small:
            status = Status.UNCERTAIN
        value = record.last("value") if record.rows else np.nan
        return End(status, value, stayed=self.ended(lane) is Status.CONVERGED)

    def evaluate(self, which: np.ndarray | None = None, times: int = 1) -> tuple[State, Row]:
        """The state and a row at the last x, which is not moved; outside of record and clock.

        Of many runs only `which` are looked at. The state is that after `times` calls of the method
        there, the row that of the first.
        """
        given = self._given(times)
        stop = np.zeros_like(self.stop)
        if which is not None:
            stop[: len(which)] = np.where(which, Status.COMPLETED, Status.STOPPED)
            stop[len(which) :] = Status.STOPPED
        limits = given.limits._replace(
            stay=np.ones((), bool),
            epsilon=np.full(self.stop.shape, NEVER),
            levels=np.full_like(given.limits.levels, np.inf),
        )
        # Loops as long as they last were: a schedule may ask for far more in a step nobody makes.
        k, last = self.state.k, np.asarray(max(self.k - 1, 0), np.int32)
        last = in_place_of(k, last) if k.committed else last
        state = self.state._replace(k=last)
        chunk = self._run(given._replace(limits=limits, stop=stop), state)
        return chunk.state, jax.tree.map(lambda column: column[0], chunk.record())

    def _run(self, given: Given, state: State) -> Chunk:
        """The state as a chunk leaves it, all of whose buffers are the engine's own."""
        state = to_lend(state) if self._is_lent else state
        chunk = jax.block_until_ready(self._program(given, state, self._layout))
        self.state, self._is_lent = chunk.state, False
        return chunk

    def go_back(self) -> float:
        """To the last accepted x, whose y the state has: no trial from there was accepted.

        f there.
        """
        point = self.shared.outer.accepted(self.state.outer)
        assert point is not None
        self.state = self.state._replace(x=copied(point[0]))
        self.went_back = True
        return float(point[1])

    def settings_of(self, lane: int = 0) -> Settings:
        """What a run is given."""
        if self.varying is None:
            return self.shared
        return eqx.combine(self.take(lane, self.varying), self.shared)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within it, looks leave no trace: the state is lent to them."""
        before = self.state, self._is_lent
        self._is_lent = True
        try:
            yield
        finally:
            self.state, self._is_lent = before

    def defer_epsilon(self, lane: int = 0) -> None:
        """A small h was not accurate enough: look again when half as many steps more were made."""
        where = () if self.alone else lane
        self.stop[where] = Status.COMPLETED
        self.marks.epsilon_from[where] = min(self.k + max(1, self.k // 2), UNLIMITED)

    def room(self) -> int:
        """The most steps of a chunk: so many fit into its record, and before epsilon counts."""
        most = CAPACITY if self.alone else LANE_CAPACITY
        ahead = self.marks.epsilon_from - self.k
        return int(min([most, *ahead[ahead > 0].ravel()]))

    def _given(self, steps: int) -> Given:
        """What a chunk of so many steps is given, with what is left of each budget."""
        left = np.zeros((3, *self.stop.shape))
        for lane, record in enumerate(self.records):
            left[:, *(() if self.alone else (lane,))] = budget_left(self.goal.budget, record.cost)
        epsilon = NEVER if self.goal.epsilon is None else self.goal.epsilon
        epsilon = np.where(self.k < self.marks.epsilon_from, NEVER, epsilon)
        each = self.marks.levels.T
        levels = each[: len(NUMBERS)].copy()
        levels[-1] = np.fmin(*each[-2:])  # the two of the linear residual
        # NumPy: these are made anew for each chunk, and JAX takes ten times as long to make one.
        kind = np.int32 if not self.shared.method.counts_rows else jnp.result_type(float)
        gradients, products, total = left.astype(kind)
        stay = np.zeros((), bool)
        limits = Limits(np.int32(steps), levels, epsilon, stay, gradients, products, total)  # pyright: ignore[reportArgumentType]
        return Given(self.shared, self.varying, limits, self.stop)  # pyright: ignore[reportArgumentType]


def drive(
    engine: Engine,
    *,
    due: Callable[[int], int],
    after_chunk: Callable[[Pace], bool],
    seconds: float = np.inf,
    processes: Processes = ALONE,
) -> None:
    """Chunks until all runs have stopped, their steps are done, or `after_chunk` says enough.

    `due(k)` is how many steps may be made before somebody wants to look. A chunk takes about a
    quarter of a second, and no more than what is left of `seconds`.
    """
    pace = Pace()
    while engine.running and engine.k < engine.goal.steps:
        start = time.perf_counter()  # before `due`, which may wait for the batches of a stream
        most = min(engine.room(), due(engine.k), engine.goal.steps - engine.k)
        spent = max(record.seconds for record in engine.records)
        made = engine.advance(pace.steps(most, seconds - spent))
        # All processes go by one clock.
        (elapsed,) = processes.largest(time.perf_counter() - start)
        engine.book(elapsed)
        pace.measured(made, elapsed)
        if after_chunk(pace):
            return


def endless(_k: int) -> int:
    """Nobody wants to look."""
    return UNLIMITED
