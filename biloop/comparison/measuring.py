"""Measured runs: where each was on its way, what ∇Φ was there, and where it reached the target.

∇Φ is measured apart from the runs and is no part of their cost. Nor is it taken from a run's own h,
whose error is the very thing that loops are for.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from biloop.comparison.terms import WORST, Score, Target
from biloop.compilation import compiled
from biloop.loops.results import Status
from biloop.methods import Method
from biloop.methods.reference import Truth, is_small, measure
from biloop.problem import Problem
from biloop.run.record import Record
from biloop.run.trace import Trace

if TYPE_CHECKING:
    from biloop.comparison.runs import Watch

CONVERGED, SPENT, FLOORED, DIVERGED = "converged", "budget spent", "floored", "diverged"
CUT, UNKNOWN = "cut short", "not measured"
_STAGNANT = 0.8  # a floor: the second half of the budget removes less than a fifth
IN_A_ROW = 3  # snapshots of a run on batches that must be at the target
_GROWN = 10.0  # times the squared gradient of the start, where Φ has not fallen: it has diverged
ACCURACY = 0.1  # of ‖∇Φ‖
_LOST = 1e3  # times ‖∇Φ‖ at the start: how far off a run is that has left does not matter
_LARGE = 2**18  # entries of the data from which on not every snapshot is measured


class Snapshot(NamedTuple):
    """Where a run is after some outer steps, on the host."""

    steps: int
    x: PyTree
    y: PyTree
    v: PyTree


@dataclass(eq=False)
class MeasuredRun:
    """A run from its start to its end, with ‖∇Φ‖² and Φ at its snapshots (NaN: not measured).

    `method` and `record` are what a failure is explained from.
    """

    snapshots: tuple[Snapshot, ...]
    status: Status
    method: Method
    record: Record

    def __post_init__(self) -> None:
        """Nothing has been measured yet."""
        self.norm2 = np.full(len(self.snapshots), np.nan)
        self.value = np.full(len(self.snapshots), np.nan)
        self.measured = np.zeros(len(self.snapshots), bool)
        self.adjoint: PyTree = None  # as it was last measured: closer than that of the run

    @property
    def last(self) -> int:
        """The number of the last snapshot."""
        return len(self.snapshots) - 1

    @property
    def began(self) -> bool:
        """Whether there was time for a step, if only for one that failed."""
        return self.record.rows > 0

    @property
    def trace(self) -> Trace:
        """What was recorded at every outer step."""
        return Trace(self.record.columns())

    @property
    def steps(self) -> np.ndarray:
        """The outer steps done at each snapshot."""
        return np.array([snapshot.steps for snapshot in self.snapshots])

    def spent(self, column: str) -> np.ndarray:
        """What the x of each snapshot took: a column of the trace that adds up."""
        return np.concatenate([[0], self.trace[column]])[self.steps]

    @property
    def cost(self) -> np.ndarray:
        """Gradients and products together, at each snapshot."""
        return self.spent("gradients") + self.spent("products")

    @property
    def end(self) -> float:
        """‖∇Φ‖² of the last x."""
        return float(self.norm2[-1])

    def own_value(self) -> float:
        """f by its own account over the last tenth of its steps."""
        values = self.trace["value"]
        last = values[-max(1, len(values) // 10) :]
        return float(np.mean(last)) if len(last) and np.all(np.isfinite(last)) else math.inf

    def arrival(self, target: Target) -> int | None:
        """The first snapshot from which on the run is at the target, as far as was measured.

        Who passes by and leaves again has not arrived, nor has a run that fails afterwards. On
        batches several snapshots in a row must be at the target: a single one may be luck.
        """
        if self.status.failed:
            return None
        arrived = self._last_off(target) + 1
        on = np.flatnonzero(self.measured[arrived:])
        enough = max(1, min(IN_A_ROW, self.last)) if self.method.counts_rows else 1
        return arrived + int(on[0]) if len(on) >= enough else None

    def is_at(self, target: Target) -> bool:
        """Whether it is at the target in the end."""
        return self._last_off(target) < self.last

    def to_target(self, target: Target) -> float:
        """Gradients and products to the target; ∞ if it was not reached."""
        arrived = self.arrival(target)
        return math.inf if arrived is None else float(self.cost[arrived])

    def earliest(self, target: Target) -> float:
        """The least that `to_target` may be, by what is known."""
        return float(self.cost[min(self._last_off(target) + 1, self.last)])

    def score(self, target: Target) -> Score:
        """The score by what is known."""
        value, end = float(self.value[-1]), self.end
        if self.status.failed or math.isnan(end):
            return WORST
        return Score(self.to_target(target), max(0.0, value - target.value), end)

    def ending(self, target: Target) -> str:
        """Converged, floored, diverged, out of budget or time on its way, or nobody knows."""
        if self.arrival(target) is not None:
            return CONVERGED
        grown = self.end > _GROWN * self.norm2[0]
        if self.status.failed or (grown and not self.value[-1] < self.value[0]):
            return DIVERGED
        if math.isnan(self.end):
            return UNKNOWN
        if self.status is Status.INTERRUPTED:
            return CUT
        early = (self.cost <= self.cost[-1] / 2) & np.isfinite(self.norm2)
        halfway = self.norm2[np.flatnonzero(early)[-1]] if early.any() else math.inf
        return FLOORED if self.end > _STAGNANT * halfway and not grown else SPENT

    def unknown(self, target: Target) -> int | None:
        """The snapshot to be measured next to find the arrival; None if it is known.

        At the end; then where the run's own ‖h‖² says, and beside it; then halfway.
        """
        if not self.measured[self.last]:
            return self.last
        arrived, off = self.arrival(target), self._last_off(target)
        if arrived is None or arrived - off == 1:
            return None
        guess = self._guess(target)
        near = min(max(guess, off + 1), arrived - 1)
        return near if abs(near - guess) <= 1 else (off + arrived) // 2

    def _guess(self, target: Target) -> int:
        """The snapshot from which on ‖h‖² is small enough, by what the run itself computed."""
        # The h of a row was computed at the x before it: the last x has none.
        own = self.trace["hypergradient_norm"][self.steps[:-1]]
        off = np.flatnonzero(~(own <= math.sqrt(target.norm2)))
        return int(off[-1]) + 1 if len(off) else 0

    def _last_off(self, target: Target) -> int:
        """The last snapshot that was measured and is not at the target; −1 if there is none."""
        off = np.flatnonzero(self.measured & ~target.holds(self.norm2, self.value))
        return int(off[-1]) if len(off) else -1


@compiled
def _truths(
    problem: Problem, points: PyTree, level: Float[Array, ""], lost: Float[Array, ""]
) -> Truth:
    """∇Φ at the points (x, y, v) along the leading axis."""

    def one(x: PyTree, y: PyTree, v: PyTree) -> Truth:
        return measure(problem, x, y, v, accuracy=ACCURACY, level=level, lost=lost)

    return jax.vmap(one)(*points)


class Gauge:
    """Measures ∇Φ where it tells where runs arrive, `width` points at a time, in one program.

    `start` is ‖∇Φ‖² where runs begin and `finest` the smallest target there may be. Where the
    `watch` says that it is late, only the ends of runs are measured.
    """

    def __init__(
        self,
        problem: Problem,
        y: PyTree,
        watch: "Watch",
        start: float = math.inf,
        finest: float = 0.0,
    ) -> None:
        self.start, self.error = start, 0.0
        # Points side by side wait for the slowest of them, which costs more than a call saves.
        data = jax.tree.leaves((problem.inner_data, problem.outer_data))
        self.cheap = is_small(y) and sum(map(jnp.size, data)) < _LARGE
        self.width = 32 if self.cheap else 3
        self._problem, self._watch = problem, watch
        self._level = math.sqrt(finest)
        self._lost = _LOST * math.sqrt(start)

    def truth(self, x: PyTree, y: PyTree, v: PyTree) -> Truth:
        """∇Φ at the x along the leading axis, on the host."""
        points = len(jax.tree.leaves(x)[0])
        parts = [self._truth((x, y, v), i, points) for i in range(0, points, self.width)]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def _truth(self, points: PyTree, first: int, count: int) -> Truth:
        """At some of them; what is missing to the width is filled up with the last one."""
        chosen = np.minimum(np.arange(first, first + self.width), count - 1)
        points = jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], points)
        found = _truths(self._problem, points, jnp.asarray(self._level), jnp.asarray(self._lost))
        return jax.tree.map(lambda leaf: leaf[: count - first], jax.device_get(found))

    def at(self, places: Iterable[tuple[MeasuredRun, int]]) -> None:
        """Measure these snapshots, those that are known excepted."""
        new = [(run, j) for run, j in places if not run.measured[j]]
        for i in range(0, len(new), self.width):
            some = new[i : i + self.width]
            if any(j == run.last for run, j in some) or not self._watch.over():
                self._watch.detail(f"measuring ‖∇Φ‖² ({i}/{len(new)})")
                self._at(some)

    def along(self, runs: Sequence[MeasuredRun], points: int) -> None:
        """Measure about so many snapshots of each run, its start and its end among them."""
        spread = [np.linspace(0, run.last, min(points, run.last + 1)).round() for run in runs]
        places = [(run, int(j)) for run, here in zip(runs, spread, strict=True) for j in here]
        self.at(sorted(places, key=lambda place: place[1]))

    def find_arrivals(self, runs: Sequence[MeasuredRun], target: Target) -> None:
        """Measure what has to be known for the snapshot where each run arrives at the target.

        `MeasuredRun.unknown` says where to measure next. Where that is cheap, all snapshots are: a
        run may leave the target and come back. A run that failed arrives nowhere.
        """
        self.find_best([[run] for run in runs], target)

    def find_best(self, groups: Iterable[Sequence[MeasuredRun]], target: Target) -> None:
        """The same for the run of each group that arrives first; later ones are left."""
        late = self._watch.over
        groups = [[run for run in each if not run.status.failed] for each in groups]
        if late() and not self.cheap:  # those that look best by the f of their own account
            groups = [sorted(each, key=MeasuredRun.own_value)[: self.width] for each in groups]
        runs = [run for each in groups for run in each]
        if self.cheap:
            self.at((run, j) for run in runs for j in range(run.last + 1))
        # On batches a single small gradient may be luck; one that is not small is the answer.
        with self._watch.aside():  # ends are measured in any case
            self.at((run, run.last) for run in runs)
        lucky = [run for run in runs if run.method.counts_rows and run.is_at(target)]
        self.at((run, j) for run in lucky for j in range(max(0, run.last - IN_A_ROW), run.last))

        def unknown(runs: Sequence[MeasuredRun]) -> list[tuple[MeasuredRun, int]]:
            first = min((run.to_target(target) for run in runs), default=math.inf)
            early = [run for run in runs if run.earliest(target) < first]
            return [(run, j) for run in early if (j := run.unknown(target)) is not None]

        while (wanted := [at for each in groups for at in unknown(each)]) and not late():
            self.at(wanted)

    def _at(self, places: Sequence[tuple[MeasuredRun, int]]) -> None:
        here = [(run.snapshots[j], run.adjoint) for run, j in places]
        points = [(at.x, at.y, at.v if v is None else v) for at, v in here]
        found = self.truth(*jax.tree.map(lambda *leaves: np.stack(leaves), *points))
        norm2 = norms2(found)
        for i, (run, j) in enumerate(places):
            run.norm2[j], run.measured[j] = norm2[i], True
            run.value[j] = found.value[i] if found.found[i] else np.nan
            if found.found[i]:
                run.adjoint = jax.tree.map(lambda leaf, i=i: leaf[i], found.v)
                size = max(math.sqrt(norm2[i]), self._level)
                if math.sqrt(norm2[i]) <= self._lost and size > 0:
                    self.error = max(self.error, float(found.error[i]) / size)


def norms2(found: Truth) -> np.ndarray:
    """‖∇Φ‖² at each of the points, NaN where it was not found, ∞ where its square overflows."""
    with np.errstate(over="ignore"):
        squares = [
            np.sum(np.square(leaf, dtype=float), axis=tuple(range(1, leaf.ndim)))
            for leaf in jax.tree.leaves(found.h)
        ]
    return np.where(found.found, sum(squares), np.nan)
