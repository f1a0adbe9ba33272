"""One variant with its best number: nine around a scale, then more where they get better.

First each has a part of the budget, then the best of them all of it, then those beside the best.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from biloop.comparison.candidates import Variant
from biloop.comparison.measuring import MeasuredRun
from biloop.comparison.runs import Runner
from biloop.comparison.terms import WORST, Score, Target, rounded
from biloop.run.diagnosis import Excess

GRID = 9
PER_DECADE = 3
RATIO = 10 ** (1 / PER_DECADE)  # of one number of the grid to the next
FINER = RATIO**0.5
FINEST = RATIO**0.25  # of a step that is stable, and the best, to one that is not
PART = 5  # a number is tried with this part of the budget
_ABOVE = 3  # of the nine, how many are above the scale: a lagging y or v may allow larger steps
_MOST = 40  # numbers
_TRYING = 0.6  # of the seconds that a variant has, where there is a limit
_MOST_WHOLE = 12  # with the whole budget: where Φ falls for ever, ever longer steps are better
_MOST_FINER = 6  # more of them, each time that they get closer together
_HILLS = 2


class Tuned(NamedTuple):
    """A variant and its runs from the first start, by the number that is tuned.

    The number is None where there is nothing to tune. `excess` are the step sizes of its loops that
    are proven too long, where none of its runs survived.
    """

    variant: Variant
    runs: Mapping[float | None, MeasuredRun] = MappingProxyType({})
    excess: tuple[Excess, ...] = ()

    @property
    def is_lost(self) -> bool:
        """Whether a search has found nothing that survives."""
        return self.variant.search is not None and all(r.status.failed for r in self.runs.values())

    @property
    def began(self) -> bool:
        """Whether there was time for a step."""
        return any(run.began for run in self.runs.values())

    def best(self, target: Target) -> float | None:
        """The best number; of several that all fail, the smallest."""
        return min(self.runs, key=lambda n: (self.runs[n].score(target), n or 0.0))

    def score(self, target: Target) -> Score:
        """That of the best run."""
        return min(run.score(target) for run in self.runs.values())

    def untried(self, target: Target, ratio: float, *, above: bool = True) -> list[float]:
        """The numbers below the best one, and above, that are so far from it and were not tried."""
        best = self.best(target)
        if best is None:
            return []
        return unknown([best / ratio, *[best * ratio] * above], self._numbers, min(ratio, FINER))

    def smaller(self, number: float | None) -> float | None:
        """The next smaller number that was tried, or the next on the grid."""
        if number is None:
            return None
        return max((n for n in self._numbers if n < number), default=rounded(number / RATIO))

    def run(self, runner: Runner, numbers: Sequence[float | None], target: Target) -> "Tuned":
        """With more runs from the first start, and where they arrive."""
        runs = runner.runs(self.variant, [(number, runner.points[0]) for number in numbers])
        runner.gauge.find_best([[*self.runs.values(), *runs]], target)
        return self._replace(runs={**self.runs, **dict(zip(numbers, runs, strict=True))})

    @property
    def _numbers(self) -> list[float]:
        return [number for number in self.runs if number is not None]


def tuned(
    runner: Runner, variant: Variant, scale: float, target: Target, rival: Tuned | None
) -> Tuned:
    """The best numbers by a part of the budget, then by all of it.

    It ends with the first number behind a rival with all of it. If it is late, the scale must do.
    """
    if variant.search is None:
        return Tuned(variant).run(runner, [None], target)
    if runner.watch.over():
        return Tuned(variant).run(runner, [scale], target)
    tried: dict[float, MeasuredRun] = {}

    def scores_of(numbers: Sequence[float]) -> list[Score]:
        starts = [(number, runner.points[0]) for number in numbers]
        runs = runner.runs(variant, starts, part=PART, width=GRID)
        runner.gauge.find_best([runs], target)
        tried.update(zip(numbers, runs, strict=True))
        return [run.score(target) for run in runs]

    def excess() -> list[Excess]:
        """What is too long in the run that moves x least, if even that one failed."""
        least = tried[min(tried)]
        return runner.excess(least) if least.status.failed else []

    hopeless = lambda: runner.watch.over() or bool(excess())  # noqa: E731
    with runner.watch.within(_TRYING):
        scores = tune(scores_of, scale, hopeless, runner.watch.over)
    if not tops(scores) and (found := excess()):
        return Tuned(variant, {min(tried): tried[min(tried)]}, tuple(found))
    if rival is not None:
        best = min(scores, key=lambda number: scores[number])
        whole = Tuned(variant).run(runner, [best], target)
        if rival.score(target) < whole.score(target):
            return whole
    return _with_the_whole_budget(runner, variant, scores, target)


def _with_the_whole_budget(
    runner: Runner, variant: Variant, scores: Mapping[float, Score], target: Target
) -> Tuned:
    """The best numbers, and smaller ones as long as they are better.

    A step that is slightly too large does well for a while; a part of the budget does not show it.
    """
    hills = tops(scores)[:_HILLS] or [min(scores)]
    wanted = [*hills, *unknown([hills[0] / RATIO], hills, FINER)]
    known = Tuned(variant)
    while wanted:
        known = known.run(runner, wanted, target)
        enough = runner.watch.over() or len(known.runs) >= _MOST_WHOLE
        wanted = [] if enough else known.untried(target, RATIO, above=False)
    return known


def refined(runner: Runner, known: Tuned, target: Target) -> Tuned:
    """The whole budget for numbers closer together, until both beside the best are known.

    First half, then a quarter as far apart: the best step size is often the last that is stable.
    """
    for ratio in (FINER, FINEST):
        most = len(known.runs) + _MOST_FINER
        while len(known.runs) < most and known.score(target) < WORST:
            wanted = known.untried(target, ratio)
            if not wanted:
                break
            runner.watch.say(f"refining {known.variant.title}")
            more = known.run(runner, wanted, target)
            if runner.watch.over():
                return known  # runs that were cut short are no better than they look
            known = more
    return known


def grid_around(scale: float) -> list[float]:
    """Nine numbers, three per decade, the sixth of them the scale."""
    exponents = (np.arange(GRID) - (GRID - 1 - _ABOVE)) / PER_DECADE
    return [rounded(scale * 10**exponent) for exponent in exponents]


def tune(
    scores_of: Callable[[Sequence[float]], Sequence[Score]],
    scale: float,
    hopeless: Callable[[], bool] = lambda: False,
    late: Callable[[], bool] = lambda: False,
) -> dict[float, Score]:
    """Numbers with their scores.

    Where the smallest or the largest is better than its neighbour, or all runs failed, the grid
    goes on beyond it, unless that is `hopeless` or it is `late`.
    """
    known: dict[float, Score] = {}
    beyond = RATIO ** (GRID - 1)  # to a grid that has one number in common
    low = high = scale
    wanted = [scale]
    while wanted and len(known) < _MOST:
        for grid in map(grid_around, wanted):
            known |= dict(zip(grid, scores_of(grid), strict=True))
        hills = tops(known)
        wanted = []
        if late() or (not hills and hopeless()):
            break
        if not hills or min(known) in hills:
            low /= beyond
            wanted.append(low)
        if max(known) in hills:
            high *= beyond
            wanted.append(high)
    return known


def tops(scores: Mapping[float, Score]) -> list[float]:
    """Numbers that are better than both of their neighbours, best first.

    There may be several: where y or v lags behind, large step sizes may be stable again.
    """
    numbers = sorted(scores)
    padded = [WORST, *(scores[number] for number in numbers), WORST]
    found = [
        number
        for before, number, after in zip(padded, numbers, padded[2:], strict=False)
        if scores[number] <= min(before, after) and scores[number] < WORST
    ]
    return sorted(found, key=lambda number: scores[number])


def unknown(numbers: Iterable[float], known: Iterable[float], ratio: float) -> list[float]:
    """The numbers that are not among the known ones, nor nearer than half of a step by `ratio`."""
    logs, near = np.log(list(known)), 0.5 * math.log(ratio)
    return [rounded(n) for n in numbers if np.all(abs(math.log(n) - logs) > near)]
