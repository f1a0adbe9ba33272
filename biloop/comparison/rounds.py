"""The rounds of a comparison, one after the other; `race` says what each of them is for."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from biloop.comparison.candidates import Variant
from biloop.comparison.measuring import WORST, MeasuredRun, Score
from biloop.comparison.runs import Runner
from biloop.comparison.terms import Target, median, rounded, value_bar
from biloop.comparison.tuning import GRID, RATIO, tops, tune, unknown
from biloop.run.diagnosis import Excess
from biloop.schemes import BY_NAME

FINER = RATIO**0.5
FINEST = RATIO**0.25  # of a step that is stable, and the best, to one that is not
_TRYING = 0.6  # of the seconds that a variant has, where there is a limit
PART = 5  # a number is tried with this part of the budget
_MOST_WHOLE = 12  # with the whole budget: where Φ falls for ever, ever longer steps are better
_MOST_FINER = 6  # more of them, each time that they get closer together
_HILLS = 2
_FAR = 3.0  # times the least cost: no finer number makes up for that
_MOST_REPEATED = 3  # numbers from all starts, where the first ones fail from some


class Tuned(NamedTuple):
    """A variant and its runs from the first start, by the number that is tuned.

    The number is None where there is nothing to tune. `excess` are the step sizes of its loops that
    are proven too long, where none of its runs survived.
    """

    variant: Variant
    runs: dict[float | None, MeasuredRun]
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

    def below(self, target: Target) -> list[float]:
        """The number of the grid below the best one, if it was not tried."""
        best = self.best(target)
        return [] if best is None else unknown([best / RATIO], self._numbers, FINER)

    def beside(self, target: Target, ratio: float) -> list[float]:
        """The numbers on both sides of the best one that were not tried."""
        best = self.best(target)
        return [] if best is None else unknown([best / ratio, best * ratio], self._numbers, ratio)

    def smaller(self, number: float | None) -> float | None:
        """The next smaller number that was tried, or the next on the grid."""
        if number is None:
            return None
        return max((n for n in self._numbers if n < number), default=rounded(number / RATIO))

    @property
    def _numbers(self) -> list[float]:
        return [number for number in self.runs if number is not None]


def rank(
    runner: Runner, variants: Sequence[Variant], scale: float, norm2: float, free: frozenset[str]
) -> list[Tuned]:
    """Every variant with its best numbers and the whole budget.

    It ends at a named scheme of which no run survives, whatever its outer step, if the step size of
    a loop is `free` to be changed. What counts as a good value of Φ is what the variants that need
    no tuning have found.
    """
    ranked: list[Tuned] = []
    target = Target(norm2, runner.first_value)
    for i, variant in enumerate(runner.watch.each(variants)):
        runner.watch.say(f"tuning {variant.title} ({i + 1}/{len(variants)})")
        same, late = [e for e in ranked if e.variant.scheme == variant.scheme], runner.watch.over()
        if same and late:
            continue  # its scheme has a row
        rival = same[-1] if same and _draws(variant) else None  # with other steps of the loops
        if variant.search is None:
            entry = _run(runner, Tuned(variant, {}), [None], target)
        else:
            entry = _search(runner, variant, variant.center or scale, target, rival)
        if runner.watch.interrupted():
            break
        ranked.append(entry)
        if free and variant.scheme in BY_NAME and entry.is_lost and rival is None and not late:
            break
        if variant.search is None:
            target = Target(norm2, bar(runner, ranked))
    return ranked


def _search(
    runner: Runner, variant: Variant, scale: float, target: Target, rival: Tuned | None
) -> Tuned:
    """The best numbers by a part of the budget, then by all of it.

    It ends with the first number behind a rival with all of it. If it is late, the scale must do.
    """
    if runner.watch.over():
        return _run(runner, Tuned(variant, {}), [scale], target)
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
        tuned = _run(runner, Tuned(variant, {}), [best], target)
        if rival.score(target) < tuned.score(target):
            return tuned
    return _run_best(runner, variant, scores, target)


def _run_best(
    runner: Runner, variant: Variant, scores: Mapping[float, Score], target: Target
) -> Tuned:
    """The whole budget for the best numbers, and for smaller ones as long as they are better.

    A step that is slightly too large does well for a while; a part of the budget does not show it.
    """
    hills = tops(scores)[:_HILLS] or [min(scores)]
    wanted = [*hills, *unknown([hills[0] / RATIO], hills, FINER)]
    tuned = Tuned(variant, {})
    while wanted:
        tuned = _run(runner, tuned, wanted, target)
        enough = runner.watch.over() or len(tuned.runs) >= _MOST_WHOLE
        wanted = [] if enough else tuned.below(target)
    return tuned


def _run(runner: Runner, tuned: Tuned, numbers: Sequence[float | None], target: Target) -> Tuned:
    """With more runs from the first start, and where they arrive."""
    runs = runner.runs(tuned.variant, [(number, runner.points[0]) for number in numbers])
    runner.gauge.find_best([[*tuned.runs.values(), *runs]], target)
    return tuned._replace(runs={**tuned.runs, **dict(zip(numbers, runs, strict=True))})


def refine(runner: Runner, ranked: Sequence[Tuned], target: Target) -> list[Tuned]:
    """All of them, finer; where measuring takes long, those that are not far behind.

    The target may be another one than before.
    """
    runner.gauge.find_best([list(each.runs.values()) for each in ranked], target)
    least = min(each.score(target).cost for each in ranked)
    far = math.inf if runner.gauge.cheap else _FAR * least
    return [
        _finer(runner, each, target) if each.score(target).cost <= far and each.began else each
        for each in runner.watch.each(ranked)
    ]


def _finer(runner: Runner, tuned: Tuned, target: Target) -> Tuned:
    """The whole budget for numbers closer together, until both beside the best are known.

    First half, then a quarter as far apart: the best step size is often the last that is stable.
    """
    for ratio in (FINER, FINEST):
        most = len(tuned.runs) + _MOST_FINER
        while len(tuned.runs) < most and tuned.score(target) < WORST:
            wanted = tuned.beside(target, ratio)
            if not wanted:
                break
            runner.watch.say(f"refining {tuned.variant.title}")
            more = _run(runner, tuned, wanted, target)
            if runner.watch.over():
                return tuned  # runs that were cut short are no better than they look
            tuned = more
    return tuned


class Final(NamedTuple):
    """A variant with its number and a run from each start."""

    variant: Variant
    number: float | None
    runs: list[MeasuredRun]

    def score(self, target: Target) -> Score:
        """The median score."""
        scores = [run.score(target) for run in self.runs]
        return Score(*(median(column) for column in zip(*scores, strict=True)))

    def misses(self, target: Target) -> int:
        """From how many starts it does not arrive; those where it fails count twice."""
        failed = sum(run.status.failed for run in self.runs)
        return failed + sum(run.arrival(target) is None for run in self.runs)


def finish(runner: Runner, tuned: Tuned, target: Target) -> Final:
    """A variant from all starts; after Ctrl-C, or where it never began, with what there is.

    A number may be too large for some starts and the best for the first: where it fails from some
    or does not arrive, or the first does better with the next smaller than most do with it, that
    one is run too.
    """
    best = number = tuned.best(target)
    runner.watch.say(f"repeating {tuned.variant.title}")
    finals: list[Final] = []
    while tuned.began and len(finals) < _MOST_REPEATED and not runner.watch.over():
        final = _repeat(runner, tuned, number, target)
        if runner.watch.over():
            break  # the run was cut short
        finals.append(final)
        number = tuned.smaller(number)
        if number is None or not _is_doubtful(final, tuned, number, target):
            break
    if not finals:
        return Final(tuned.variant, best, [tuned.runs[best]])

    def key(final: Final) -> tuple[bool, int, Score]:
        score = final.score(target)
        return math.isinf(score.cost), final.misses(target), score

    return min(finals, key=key)


def _is_doubtful(final: Final, tuned: Tuned, smaller: float, target: Target) -> bool:
    """Whether a smaller number may do better: from some starts it fails, or does not arrive."""
    misses, run = final.misses(target), tuned.runs.get(smaller)
    behind = run is not None and run.score(target) < final.score(target)
    return behind or (misses > 0 and misses != len(final.runs))


def _repeat(runner: Runner, tuned: Tuned, number: float | None, target: Target) -> Final:
    """The run from the first start, and those from the others."""
    known = [tuned.runs[number]] if number in tuned.runs else []
    width = 2 if len(runner.points) <= 3 else 4
    starts = [(number, point) for point in runner.points[len(known) :]]
    others = runner.runs(tuned.variant, starts, width=width)
    runner.gauge.find_arrivals(others, target)
    return Final(tuned.variant, number, [*known, *others])


def bar(runner: Runner, ranked: Sequence[Tuned]) -> float:
    """The Φ that is asked for, by the ends of the runs so far: to pass by is not to arrive."""
    return value_bar(runner.first_value, least_of_schemes(ranked, lambda run: run.value[-1:]))


def least_of_schemes(
    ranked: Sequence[Tuned], numbers: Callable[[MeasuredRun], np.ndarray]
) -> list[float]:
    """The smallest of some measured numbers for each scheme; ∞ where all of its runs failed."""
    least = {each.variant.scheme: math.inf for each in ranked}
    for each in ranked:
        healthy = [run for run in each.runs.values() if not run.status.failed]
        known = [n for run in healthy for n in numbers(run) if not math.isnan(n)]
        least[each.variant.scheme] = min([*map(float, known), least[each.variant.scheme]])
    return list(least.values())


def best_shares(ranked: Sequence[Tuned], target: Target) -> list[Tuned]:
    """All variants, but of those on batches, which differ in their shares of 1/L, the best ones."""
    drawn = [each for each in ranked if _draws(each.variant)]
    best = best_of_schemes(drawn, [each.variant.scheme for each in drawn], target)
    return [each for each in ranked if not _draws(each.variant) or each in best]


def _draws(variant: Variant) -> bool:
    return variant.scheme in BY_NAME and BY_NAME[variant.scheme].sampled


def best_of_schemes(ranked: Sequence[Tuned], order: Sequence[str], target: Target) -> list[Tuned]:
    """The best variant of each scheme, in this order."""
    return [
        min(members, key=lambda each: each.score(target))
        for scheme in dict.fromkeys(order)
        if (members := [each for each in ranked if each.variant.scheme == scheme])
    ]
