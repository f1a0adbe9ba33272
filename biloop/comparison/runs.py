"""Runs until their budget is spent, or the time that there is for them, with snapshots.

The snapshots lie a tenth of k apart, unless said otherwise: what is found on them is found to a
tenth of its cost.
"""

import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from biloop.comparison.candidates import Variant
from biloop.comparison.measuring import Gauge, MeasuredRun, Snapshot
from biloop.comparison.terms import Point
from biloop.methods import Growing
from biloop.problem import Problem
from biloop.run.chunk import CAPACITY
from biloop.run.diagnosis import Excess, excessive_steps, explain, extreme_eigenvalues
from biloop.run.divergence import DivergenceWatch
from biloop.run.engine import Engine, drive
from biloop.run.goal import Goal
from biloop.run.growth import Growth
from biloop.run.interrupt import interruptible
from biloop.run.progress import Pace, ProgressLine, is_seen
from biloop.run.step import Settings, State, first_state
from biloop.sweeps.batches import programs
from biloop.sweeps.cells import Cell, with_seed
from biloop.sweeps.lanes import make_engine

SPACING = 1.1
ROUGH = 1.3  # where a run is only compared with its neighbours
ENDLESS = 10**9  # outer steps: the budget ends a run
_MUCH = 10**10  # entries of the data to be read from which on runs are made side by side
_QUIET, _BETWEEN = 5.0, 10.0  # seconds to the first line where no terminal is, and to the next

Item = TypeVar("Item")
Start = tuple[float | None, Point]  # the number that is tuned, and where a run begins


class Watch:
    """Shows what is being done, and remembers whether to stop, or to hurry.

    On a terminal and in a notebook it is a line that is written over; elsewhere one now and then.
    With a limit in `seconds` each part of a comparison has a share of what is left, and each item
    of a part a share of that, which compiling for it does not shorten.
    """

    def __init__(self, progress: bool | None, seconds: float | None = None) -> None:
        self._line = ProgressLine(progress)
        self._plain = progress is None and not is_seen(sys.stderr)
        self._next = time.monotonic() + _QUIET
        self._stack = ExitStack()
        self._caught: list[int] = []
        self._stopped, self._doing = False, ""
        self._until = [math.inf if seconds is None else time.monotonic() + seconds]
        self._item: int | None = None  # from which one on they belong to an item
        self.hurried = False  # whether the limit made anything shorter

    def __enter__(self) -> "Watch":
        self._stack.enter_context(self._line)
        self._caught = self._stack.enter_context(interruptible())
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the line and the handling of signals as they were."""
        self._stack.close()

    def interrupted(self) -> bool:
        """Whether somebody wants an end."""
        return self._stopped or bool(self._caught)

    @property
    def limited(self) -> bool:
        """Whether there is a limit at all."""
        return self._until[0] < math.inf

    @property
    def left(self) -> float:
        """The seconds that are left for what is being done."""
        return max(self._until[-1] - time.monotonic(), 0.0)

    def over(self) -> bool:
        """Whether what is being done must end with what is known: as wanted, or as it is late."""
        if self.interrupted():
            return True
        late = time.monotonic() >= self._until[-1]
        self.hurried |= late
        return late

    @contextmanager
    def within(self, share: float) -> Iterator[None]:
        """Within it, it is late as soon as this share of the seconds that are left has passed."""
        self._until.append(min(self._until[-1], time.monotonic() + share * self.left))
        try:
            yield
        finally:
            self._until.pop()

    def each(self, items: Sequence[Item]) -> Iterator[Item]:
        """The items, each within its share of the seconds that are left."""
        outermost, first = self._item, len(self._until)
        for i, item in enumerate(items):
            with self.within(1 / (len(items) - i)):
                self._item = first if outermost is None else outermost
                try:
                    yield item
                finally:
                    self._item = outermost

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What happens within it shortens no share of the item: others have less for it."""
        began = time.monotonic()
        yield
        passed = time.monotonic() - began
        for i in range(len(self._until) if self._item is None else self._item, len(self._until)):
            self._until[i] += passed

    def stop(self) -> None:
        """A run has caught the signal in our place."""
        self._stopped = True

    def say(self, what: str) -> None:
        """What is being done now."""
        self._doing = what
        self._show(what)

    def detail(self, what: str) -> None:
        """How far that is."""
        self._show(f"{self._doing}: {what}")

    def _show(self, line: str) -> None:
        self._line.show(line)
        if self._plain and time.monotonic() >= self._next:
            self._next = time.monotonic() + _BETWEEN
            print(line, file=sys.stderr, flush=True)


class Runner(NamedTuple):
    """What all runs have in common: the problem, the starts, the budget, and who measures them."""

    problem: Problem
    points: list[Point]
    first_value: float  # Φ at the first of the points
    budget: int
    gauge: Gauge
    watch: Watch

    def runs(
        self, variant: Variant, starts: Sequence[Start], *, part: int = 1, width: int = 2
    ) -> list[MeasuredRun]:
        """A run for each start, with a `part`-th of the budget, `width` side by side.

        Side by side they read the data once for all, in a program of their own. Where they read
        little, compiling it would take longer than the runs do one after another; and loops that
        size themselves would wait for each other, as would runs that end on all rows.
        """
        goal = Goal(ENDLESS, budget=self.budget // part)
        spacing = SPACING if part == 1 else ROUGH
        cells = [self._cell(variant, number, point) for number, point in starts]
        if len(cells) > 1 and variant.search is not None and self._reads_much(cells, part):
            return self._side_by_side(cells, goal, spacing, width)
        return [self._alone(cell, goal, spacing) for cell in self.watch.each(cells)]

    def _cell(self, variant: Variant, number: float | None, point: Point) -> Cell:
        """What a run is given; each start has keys of its own."""
        method, outer = variant.at(number)
        if method.counts_rows:
            method = with_seed(method, [p is point for p in self.points].index(True))
        return Cell(self.problem, method, outer, *point, None)

    def _alone(self, cell: Cell, goal: Goal, spacing: float) -> MeasuredRun:
        with self.watch.aside():
            growth = Growth(cell.problem, cell.method, cell.outer, cell.x0, None)
            settings = Settings(cell.problem, growth.method, growth.outer)
            engine = Engine(settings, first_state(settings, cell.x0, cell.y0), goal)
            growth.begin(engine)
        (run,) = self._drive(engine, [cell], spacing, growth)
        if not run.began and cell.x0 is self.points[0].x:  # no time: it is where all begin
            run.norm2[:], run.value[:], run.measured[:] = self.gauge.start, self.first_value, True
        return run

    def _side_by_side(
        self, cells: Sequence[Cell], goal: Goal, spacing: float, width: int
    ) -> list[MeasuredRun]:
        found: dict[int, MeasuredRun] = {}
        for program in programs(cells):
            for group in program.groups():
                for i in range(0, len(group), width):
                    indices = group[i : i + width]
                    engine = make_engine(program.batch(indices, width), goal)
                    here = self._drive(engine, [cells[j] for j in indices], spacing)
                    found |= dict(zip(indices, here, strict=True))
        return [found[i] for i in range(len(cells))]

    def _drive(
        self, engine: Engine, cells: Sequence[Cell], spacing: float, growth: Growth | None = None
    ) -> list[MeasuredRun]:
        """The runs of an engine to their ends, each with its snapshots."""
        taken: list[list[Snapshot]] = [[] for _ in cells]
        batches = growth is not None and not growth.is_whole
        first = 0  # of the steps that cost as much as the next ones

        def gap(k: int) -> int:
            """Steps between snapshots: k = 1, 2, …, 10, 11, 13, 15, … for a spacing of 1.1."""
            return min(max(1, int(np.ceil((spacing - 1) * k))), CAPACITY)

        def take() -> None:
            here = jax.device_get(_place(engine.state))
            for lane, snapshots in enumerate(taken):
                steps = engine.steps_of(lane)
                if not snapshots or steps > snapshots[-1].steps:
                    snapshots.append(Snapshot(steps, *engine.take(lane, here)))

        due = 0

        def after_chunk(_pace: Pace) -> bool:
            nonlocal due, batches, first
            stopped = self.watch.over()
            if growth is not None and batches:
                growth.check()
                if growth.is_whole:  # from here on a step costs as much as hundreds before
                    batches, first, due = False, engine.k, engine.k
            if engine.k >= due or stopped or not engine.running:
                take()
                due = engine.k + gap(engine.k - first)
            return stopped

        def left(k: int) -> int:
            return min(due - k, growth.steps_until_due(k, ENDLESS)) if growth else due - k

        take()
        if not self.watch.over():
            with self.watch.aside():
                engine.compile()
            due = gap(0)
            drive(engine, due=left, after_chunk=after_chunk, seconds=self.watch.left)
        return [
            self._ended(engine, lane, cell, tuple(taken[lane])) for lane, cell in enumerate(cells)
        ]

    def _ended(
        self, engine: Engine, lane: int, cell: Cell, snapshots: tuple[Snapshot, ...]
    ) -> MeasuredRun:
        """How a run ended; as for `solve`, growth may prove that a loop diverges."""
        status, record = engine.end(lane).status, engine.records[lane]
        last = snapshots[-1]
        if not status.failed and record.rows:
            found = DivergenceWatch().check(record, cell.problem, cell.method, last.x, last.y)
            status = found[0] if found else status
        return MeasuredRun(snapshots, status, cell.method, record)

    def _reads_much(self, cells: Sequence[Cell], part: int) -> bool:
        """Whether runs one after another would read so much that another program pays.

        On a CPU those on batches do not: each would read rows of its own.
        """
        if isinstance(cells[0].method, Growing):
            return False
        if jax.default_backend() != "cpu":
            return True
        data = jax.tree.leaves((self.problem.inner_data, self.problem.outer_data))
        reads = self.budget // part * len(cells) * sum(map(jnp.size, data))
        return reads >= _MUCH and cells[0].method.sampled is None

    def cause(self, run: MeasuredRun) -> str:
        """Why a run failed, in sentences."""
        last = run.snapshots[-1]
        status, cause = explain(run.status, self.problem, run.method, last.x, last.y, run.record)
        return cause or status.sentence

    def excess(self, run: MeasuredRun) -> list[Excess]:
        """The step sizes of its loops that are proven too long where a run ended.

        Noise carries x anywhere if the outer step is too long for it: a loop on batches is at fault
        only if it is where x began, too.
        """
        last = run.snapshots[-1]
        x = last.x if run.method.sampled is None else run.snapshots[0].x
        _, L = extreme_eigenvalues(self.problem, x, last.y)
        return excessive_steps(run.method, L) if np.isfinite(L) else []


def _place(state: State) -> tuple[Any, Any, Any]:
    """x, y and v; what else a method keeps (a table, say) stays where it is."""
    own = state.method
    v = own.v if "v" in own._fields else jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), own.y)
    return state.x, own.y, v
