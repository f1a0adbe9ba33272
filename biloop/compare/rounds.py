"""The first rounds: every candidate is tuned, and runs with the best step size that was found."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from biloop.compare.arena import Arena
from biloop.compare.candidates import SCHEMES, Candidate
from biloop.compare.judge import Score, Sight
from biloop.compare.target import Target, value_bar
from biloop.compare.tuning import RATIO, rounded, tops, tune

SHORT = 5  # the part of the budget that a step size is tried with
_HILLS = 2


class Ranked(NamedTuple):
    """A candidate, its outer steps from the best one on, and its run with that from the start."""

    candidate: Candidate
    outers: list[float]
    sight: Sight

    @property
    def outer(self) -> float | str:
        """The best outer step."""
        return self.outers[0] if self.candidate.outer is None else self.candidate.outer


def rank(arena: Arena, candidates: Sequence[Candidate], scale: float, norm2: float) -> list[Ranked]:
    """Nine outer steps for every candidate on a part of the budget; the best one on all of it.

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
            entry = Ranked(candidate, [], *_run(arena, candidate, [candidate.outer]))
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
    steps = tops(scores)[:_HILLS] or [min(scores)]
    tried = dict(zip(steps, _run(arena, candidate, steps), strict=True))

    def order(step: float) -> Score:
        return tried[step].score(target)

    while (smaller := rounded(min(tried, key=order) / RATIO)) not in tried:
        tried[smaller] = _run(arena, candidate, [smaller])[0]
        if arena.watch.interrupted():
            break
    best, *others = sorted(tried, key=order)
    return Ranked(candidate, [best, *others], tried[best])


def _run(arena: Arena, candidate: Candidate, outers: Sequence[float | str]) -> list[Sight]:
    """Runs from the first start, measured at their ends."""
    sights = arena.whole_runs(candidate, [(outer, arena.points[0]) for outer in outers])
    arena.judge.look((sight, sight.last) for sight in sights)
    return sights


def bar(arena: Arena, ranked: Sequence[Ranked]) -> float:
    """The Φ that is asked for, by the runs so far."""
    return value_bar(arena.first_value, least_of_schemes(ranked, lambda sight: sight.value))


def least_of_schemes(
    ranked: Sequence[Ranked], numbers: Callable[[Sight], np.ndarray]
) -> list[float]:
    """The smallest of some measured numbers for each scheme; ∞ where there is none."""
    least = {each.candidate.scheme: math.inf for each in ranked}
    for each in ranked:
        known = [float(n) for n in numbers(each.sight) if not math.isnan(n)]
        least[each.candidate.scheme] = min([*known, least[each.candidate.scheme]])
    return list(least.values())


def best_of_schemes(arena: Arena, ranked: Sequence[Ranked], target: Target) -> list[Ranked]:
    """The best candidate of each scheme, in the order of tables."""
    arena.judge.find_hits([each.sight for each in ranked], target)
    return [
        min(members, key=lambda each: each.sight.score(target))
        for scheme in SCHEMES
        if (members := [each for each in ranked if each.candidate.scheme == scheme])
    ]
