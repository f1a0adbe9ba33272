"""What all runs of a comparison have in common, and how they are started."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from biloop.comparison.candidates import Candidate
from biloop.comparison.judge import Judge, Sight
from biloop.comparison.race import ENDLESS, SPACING, Point, alone, race
from biloop.comparison.tuning import GRID
from biloop.comparison.watch import Watch
from biloop.problem import Problem
from biloop.results import Status
from biloop.run.solve import solve

ROUGHLY = 1.3  # spacing of the snapshots where a run is only compared with its neighbours
_LARGE = 2**20  # entries of the data from which on runs are made side by side
_PAIR, _FEW = 2, 4  # runs of the whole budget in one program: step sizes, the other starts of five
_BRIEF = 200  # gradients and products of a run for its time, if the whole would take ...
_LONG = 1.0  # ... more seconds than this
_ENOUGH = 0.3  # seconds of a run after which its time is taken as it is


class Arena(NamedTuple):
    """A problem, the starts, the budget of a run, and those who look on."""

    problem: Problem
    points: list[Point]
    first_value: float  # Φ at the first of the points
    budget: int
    judge: Judge
    watch: Watch

    def short_runs(self, candidate: Candidate, outers: Sequence[float], budget: int) -> list[Sight]:
        """Runs from the first start with different outer steps."""
        starts = [(outer, self.points[0]) for outer in outers]
        return self._runs(candidate, starts, budget, ROUGHLY, width=GRID)

    def whole_runs(
        self, candidate: Candidate, starts: Sequence[tuple[float | str, Point]]
    ) -> list[Sight]:
        """Runs with the whole budget for each outer step and point."""
        width = _PAIR if len(starts) <= _PAIR else _FEW
        return self._runs(candidate, starts, self.budget, SPACING, width)

    def _runs(
        self,
        candidate: Candidate,
        starts: Sequence[tuple[float | str, Point]],
        budget: int,
        spacing: float,
        width: int,
    ) -> list[Sight]:
        """Side by side runs read the data once for all, in a program of their own.

        Where data are small, compiling it would take longer than the runs do one after another; and
        loops that size themselves would wait for each other.
        """
        stop, method = self.watch.interrupted, candidate.method
        if len(starts) > 1 and candidate.outer is None and self._has_large_data():
            tracks = race(self.problem, method, starts, budget, stop, spacing, width)
        else:
            tracks = [alone(self.problem, method, *one, budget, stop, spacing) for one in starts]
        return [Sight(track) for track in tracks]

    def _has_large_data(self) -> bool:
        data = jax.tree.leaves((self.problem.inner_data, self.problem.outer_data))
        return jax.default_backend() != "cpu" or sum(map(jnp.size, data)) >= _LARGE

    def seconds_per_cost(self, candidate: Candidate, outer: float | str) -> float:
        """The time of a gradient or product in `solve`: the least of three where runs are short."""
        rate, _ = self._timed(candidate, outer, min(self.budget, _BRIEF))
        if rate * self.budget > _LONG or self.watch.interrupted():
            return rate
        rates, total = [], 0.0
        while len(rates) < 3 and total < _ENOUGH and not self.watch.interrupted():
            rate, seconds = self._timed(candidate, outer, self.budget)
            rates.append(rate)
            total += seconds
        return min(rates, default=rate)

    def _timed(self, candidate: Candidate, outer: float | str, budget: int) -> tuple[float, float]:
        """Seconds per gradient or product of a run, and in all."""
        run = solve(
            self.problem,
            *self.points[0],
            candidate.method,
            outer=outer,
            steps=ENDLESS,
            budget=budget,
            progress=False,
        )
        if run.status is Status.INTERRUPTED:
            self.watch.stop()
        return run.seconds / max(1, int(run.cost.total)), run.seconds
