"""Runs until a budget is spent, with snapshots of where they are on the way.

The snapshots lie a tenth of k apart, unless said otherwise: what is found on them is found to a
tenth of its cost.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from biloop.comparison.candidates import Variant
from biloop.comparison.measuring import Gauge, MeasuredRun, Snapshot
from biloop.comparison.terms import Point
from biloop.comparison.watch import Watch
from biloop.loops.results import Status
from biloop.methods import Growing
from biloop.problem import Problem
from biloop.run.chunk import CAPACITY
from biloop.run.diagnosis import Excess, excessive_steps, explain, extreme_eigenvalues
from biloop.run.divergence import DivergenceWatch
from biloop.run.engine import Engine, drive
from biloop.run.goal import Goal
from biloop.run.growth import Growth
from biloop.run.progress import Pace
from biloop.run.solve import solve
from biloop.run.step import Settings, State, first_state
from biloop.sweeps.batches import programs
from biloop.sweeps.cells import Cell, with_seed
from biloop.sweeps.lanes import make_engine

SPACING = 1.1
ROUGH = 1.3  # where a run is only compared with its neighbours
ENDLESS = 10**9  # outer steps: the budget ends a run
_MUCH = 10**10  # entries of the data to be read from which on runs are made side by side
_BRIEF = 200  # gradients and products of a run for its time, if the whole would take ...
_LONG = 1.0  # ... more seconds than this
_ENOUGH = 0.3  # seconds of a run after which its time is taken as it is

Start = tuple[float | None, Point]  # the number that is tuned, and where a run begins


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

    def seconds_per_cost(self, variant: Variant, number: float | None, run: MeasuredRun) -> float:
        """The time of a gradient or product in `solve`: the least of three where runs are short.

        Where it is late, it is that of `run`, which was looked at so often.
        """
        if self.watch.over():
            return run.record.seconds / max(float(run.record.cost.total), 1e-9)
        rate, _ = self._timed(variant, number, min(self.budget, _BRIEF))
        if rate * self.budget > _LONG or self.watch.over():
            return rate
        rates, total = [], 0.0
        while len(rates) < 3 and total < _ENOUGH and not self.watch.over():
            rate, seconds = self._timed(variant, number, self.budget)
            rates.append(rate)
            total += seconds
        return min(rates, default=rate)

    def _timed(self, variant: Variant, number: float | None, budget: int) -> tuple[float, float]:
        """Seconds per gradient or product of a run, and in all."""
        method, outer = variant.at(number)
        run = solve(
            self.problem,
            *self.points[0],
            method,
            outer=outer,
            steps=ENDLESS,
            budget=budget,
            progress=False,
        )
        if run.status is Status.INTERRUPTED:
            self.watch.stop()
        return run.seconds / max(float(run.cost.total), 1e-9), run.seconds


def _place(state: State) -> tuple[Any, Any, Any]:
    """x, y and v; what else a method keeps (a table, say) stays where it is."""
    own = state.method
    v = own.v if "v" in own._fields else jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), own.y)
    return state.x, own.y, v
