"""Measures ∇Φ at the snapshots of runs, as few as tell where each arrives at the target."""

import math
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from biloop.comparison.measuring import IN_A_ROW, MeasuredRun
from biloop.comparison.terms import Target
from biloop.comparison.watch import Watch
from biloop.compilation import compiled
from biloop.methods.reference import Truth, is_small, measure
from biloop.problem import Problem

ACCURACY = 0.1  # of ‖∇Φ‖
_LOST = 1e3  # times ‖∇Φ‖ at the start: how far off a run is that has left does not matter
_LARGE = 2**18  # entries of the data from which on not every snapshot is measured


@compiled
def _truths(
    problem: Problem,
    points: tuple[PyTree, PyTree, PyTree],
    level: Float[Array, ""],
    lost: Float[Array, ""],
) -> Truth:
    """∇Φ at the points (x, y, v) along the leading axis."""

    def one(x: PyTree, y: PyTree, v: PyTree) -> Truth:
        return measure(problem, x, y, v, accuracy=ACCURACY, level=level, lost=lost)

    return jax.vmap(one)(*points)


class Gauge:
    """Measures ∇Φ, `width` points at a time, always with one compiled program.

    `start` is ‖∇Φ‖² where runs begin and `finest` the smallest target there may be. Where the
    `watch` says that it is late, only the ends of runs are measured.
    """

    def __init__(
        self,
        problem: Problem,
        y: PyTree,
        start: float = math.inf,
        finest: float = 0.0,
        watch: Watch | None = None,
    ) -> None:
        self.start, self.error = start, 0.0
        # Points side by side wait for the slowest of them, which costs more than a call saves.
        data = jax.tree.leaves((problem.inner_data, problem.outer_data))
        self.cheap = is_small(y) and sum(map(jnp.size, data)) < _LARGE
        self.width = 32 if self.cheap else 3
        self._problem, self._watch = problem, watch or Watch(False)
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
        even = lambda run: np.linspace(0, run.last, min(points, run.last + 1)).round()  # noqa: E731
        places = {(run, int(j)) for run in runs for j in even(run)}
        self.at(sorted(places, key=lambda place: place[1]))

    def find_arrivals(self, runs: Sequence[MeasuredRun], target: Target) -> None:
        """Measure what has to be known for the snapshot where each run arrives at the target.

        What was measured before decides in which interval it is, `MeasuredRun.unknown` where to
        measure there. Where that is cheap, all snapshots are: a run may leave the target and come
        back. A run that failed arrives nowhere, and is not measured.
        """
        self.find_best([[run] for run in runs], target)

    def find_best(self, groups: Iterable[Sequence[MeasuredRun]], target: Target) -> None:
        """The same for the run of each group that arrives first; later ones are left."""
        late = self._watch.over
        groups = [[run for run in each if not run.status.failed] for each in groups]
        if late() and not self.cheap:  # those that look best by the f that they saw themselves
            groups = [sorted(each, key=MeasuredRun.seen)[: self.width] for each in groups]
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
        snapshots = [run.snapshots[j] for run, j in places]
        adjoints = [
            snapshot.v if run.adjoint is None else run.adjoint
            for (run, _), snapshot in zip(places, snapshots, strict=True)
        ]
        columns = [s.x for s in snapshots], [s.y for s in snapshots], adjoints
        found = self.truth(*(jax.tree.map(lambda *a: np.stack(a), *trees) for trees in columns))
        norm2 = norms2(found)
        for i, (run, j) in enumerate(places):
            run.norm2[j] = norm2[i]
            run.value[j] = found.value[i] if found.found[i] else np.nan
            run.measured[j] = True
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
