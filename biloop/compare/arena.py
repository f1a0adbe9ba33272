"""What all runs of a comparison have in common, and how they are started."""

from collections.abc import Sequence
from typing import NamedTuple

from biloop.compare.candidates import Candidate
from biloop.compare.judge import Judge, Sight
from biloop.compare.race import ENDLESS, Point, alone, race
from biloop.compare.watch import Watch
from biloop.problem import Problem
from biloop.results import Status
from biloop.solve import solve

ROUGHLY = 1.3  # spacing of the snapshots where a run is only compared with its neighbours
_BRIEF = 200  # gradients and products
_ENOUGH = 0.3  # seconds of a run after which its time is taken as it is


class Arena(NamedTuple):
    """A problem, the starts, the budget of a run, and those who look on."""

    problem: Problem
    points: list[Point]
    first_value: float  # Φ at the first of the points
    budget: int
    judge: Judge
    watch: Watch

    def side_by_side(
        self, candidate: Candidate, outers: Sequence[float], budget: int
    ) -> list[Sight]:
        """Runs from the first start with different outer steps."""
        points = [self.points[0]] * len(outers)
        stop = self.watch.interrupted
        tracks = race(self.problem, candidate.method, outers, points, budget, stop, ROUGHLY)
        return [Sight(track) for track in tracks]

    def alone(self, candidate: Candidate, outer: float | str, point: Point) -> Sight:
        """One run with the whole budget."""
        stop = self.watch.interrupted
        return Sight(alone(self.problem, candidate.method, outer, point, self.budget, stop))

    def seconds_per_cost(self, candidate: Candidate, outer: float | str) -> float:
        """The time of a gradient or product in `solve`: the least of three where runs are short.

        After Ctrl-C a short run has to do.
        """
        rates, total = [], 0.0
        budget = min(self.budget, _BRIEF) if self.watch.interrupted() else self.budget
        while len(rates) < 3 and total < _ENOUGH:
            run = solve(
                self.problem,
                candidate.method,
                *self.points[0],
                outer=outer,
                steps=ENDLESS,
                budget=budget,
                progress=False,
            )
            rates.append(run.seconds / max(1, int(run.cost.total)))
            total += run.seconds
            if run.status is Status.INTERRUPTED:
                self.watch.stop()
            if self.watch.interrupted():
                break
        return min(rates)
