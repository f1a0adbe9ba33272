"""The first rounds: every candidate is tuned, runs with the best step sizes, and is refined."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from biloop.comparison.arena import Arena
from biloop.comparison.candidates import SCHEMES, Candidate
from biloop.comparison.judge import Score, Sight
from biloop.comparison.target import Target, value_bar
from biloop.comparison.tuning import FINER, RATIO, tops, tune, unknown

SHORT = 5  # the part of the budget that a step size is tried with
_HILLS = 2
_MOST = 12  # whole runs of a candidate: where Φ falls for ever, ever longer steps are better


class Ranked(NamedTuple):
    """A candidate and its runs from the first start by their outer steps."""

    candidate: Candidate
    tried: dict[float | str, Sight]

    def outer(self, target: Target) -> float | str:
        """The best outer step."""
        return min(self.tried, key=lambda outer: self.tried[outer].score(target))

    def score(self, target: Target) -> Score:
        """That of the best run."""
        return min(sight.score(target) for sight in self.tried.values())

    def smaller(self, outer: float | str) -> float | None:
        """The next smaller outer step that was tried."""
        return max((step for step in self._sizes if step < outer), default=None)

    def untried(self, target: Target, *ratios: float) -> list[float]:
        """The outer steps with these ratios to the best one that were not tried."""
        best = self.outer(target)
        return [] if isinstance(best, str) else unknown([best * r for r in ratios], self._sizes)

    @property
    def _sizes(self) -> list[Any]:
        """Those that are numbers: none where the candidate finds its own."""
        return [outer for outer in self.tried if not isinstance(outer, str)]


def rank(arena: Arena, candidates: Sequence[Candidate], scale: float, norm2: float) -> list[Ranked]:
    """Nine outer steps for every candidate on a part of the budget; the best ones on all of it.

    What counts as a good value of Φ is what the candidates that need no tuning have found.
    """
    ranked: list[Ranked] = []
    target = Target(norm2, arena.first_value)
    for i, candidate in enumerate(candidates):
        arena.watch.say(f"tuning {candidate.title} ({i + 1}/{len(candidates)})")
        if candidate.outer is None:
            scores = tune(lambda steps, c=candidate, t=target: _try(arena, c, steps, t), scale)
            entry = _run_best(arena, candidate, scores, target)
        else:
            entry = _run(arena, Ranked(candidate, {}), [candidate.outer], target)
        if arena.watch.interrupted():
            break
        ranked.append(entry)
        if candidate.outer is not None:
            target = Target(norm2, bar(arena, ranked))
    return ranked


def _try(
    arena: Arena, candidate: Candidate, steps: Sequence[float], target: Target
) -> Sequence[Score]:
    """The scores of outer steps."""
    sights = arena.short_runs(candidate, steps, arena.budget // SHORT)
    arena.judge.find_hits(sights, target)
    return [sight.score(target) for sight in sights]


def _run_best(
    arena: Arena, candidate: Candidate, scores: Mapping[float, Score], target: Target
) -> Ranked:
    """The whole budget for the best outer steps, and for smaller ones as long as they are better.

    A step that is slightly too large does well for a while; a part of the budget does not show it.
    """
    hills = tops(scores)[:_HILLS] or [min(scores)]
    wanted = [*hills, *unknown([hills[0] / RATIO], hills)]
    ranked = Ranked(candidate, {})
    while wanted:
        ranked = _run(arena, ranked, wanted, target)
        enough = arena.watch.interrupted() or len(ranked.tried) >= _MOST
        wanted = [] if enough else ranked.untried(target, 1 / RATIO)
    return ranked


def refine(arena: Arena, ranked: Ranked, target: Target) -> Ranked:
    """The whole budget for outer steps half as far apart, until both beside the best are known.

    The target may be another one than before.
    """
    arena.judge.find_hits(list(ranked.tried.values()), target)
    while (wanted := ranked.untried(target, 1 / FINER, FINER)) and len(ranked.tried) < _MOST:
        arena.watch.say(f"refining {ranked.candidate.title}")
        more = _run(arena, ranked, wanted, target)
        if arena.watch.interrupted():
            break  # runs that were cut short are no better than they look
        ranked = more
    return ranked


def _run(arena: Arena, ranked: Ranked, outers: Sequence[float | str], target: Target) -> Ranked:
    """With more runs from the first start, and where they arrive."""
    sights = arena.whole_runs(ranked.candidate, [(outer, arena.points[0]) for outer in outers])
    arena.judge.find_hits(sights, target)
    return ranked._replace(tried={**ranked.tried, **dict(zip(outers, sights, strict=True))})


def bar(arena: Arena, ranked: Sequence[Ranked]) -> float:
    """The Φ that is asked for, by the ends of the runs so far: who comes by does not arrive."""
    return value_bar(arena.first_value, least_of_schemes(ranked, lambda sight: sight.value[-1:]))


def least_of_schemes(
    ranked: Sequence[Ranked], numbers: Callable[[Sight], np.ndarray]
) -> list[float]:
    """The smallest of some measured numbers for each scheme; ∞ where there is none."""
    least = {each.candidate.scheme: math.inf for each in ranked}
    for each in ranked:
        known = [n for sight in each.tried.values() for n in numbers(sight) if not math.isnan(n)]
        least[each.candidate.scheme] = min([*map(float, known), least[each.candidate.scheme]])
    return list(least.values())


def best_of_schemes(ranked: Sequence[Ranked], target: Target) -> list[Ranked]:
    """The best candidate of each scheme, in the order of tables."""
    return [
        min(members, key=lambda each: each.score(target))
        for scheme in SCHEMES
        if (members := [each for each in ranked if each.candidate.scheme == scheme])
    ]
