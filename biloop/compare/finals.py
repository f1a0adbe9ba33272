"""The last rounds: the best candidate of a scheme with a finer step size, and from all starts."""

from collections.abc import Sequence
from typing import NamedTuple

from biloop.compare.arena import Arena
from biloop.compare.candidates import Candidate
from biloop.compare.judge import Score, Sight
from biloop.compare.measure import is_small
from biloop.compare.outcome import Scheme, SeedRun, median
from biloop.compare.rounds import Ranked
from biloop.compare.target import Target
from biloop.compare.tuning import FINER, rounded

_POINTS = 7  # of each run that is reported, where measuring ‖∇Φ‖² is not cheap


class Final(NamedTuple):
    """A candidate with its outer step and a run from each start."""

    candidate: Candidate
    outer: float | str
    sights: list[Sight]

    def score(self, target: Target) -> Score:
        """The median score."""
        scores = [sight.score(target) for sight in self.sights]
        return Score(*(median(column) for column in zip(*scores, strict=True)))


def finish(arena: Arena, ranked: Ranked, target: Target) -> Final:
    """The final of a scheme; after Ctrl-C, with what there is already.

    A step size may be too large for most starts and the best for the first: where that one does
    better with the next smaller than most do with it, both are run from all starts.
    """
    candidate = ranked.candidate
    if arena.watch.interrupted():
        return Final(candidate, ranked.outer, [ranked.sight])
    arena.watch.say(f"repeating {candidate.title}")
    if not ranked.outers:
        return _repeat(arena, candidate, ranked.outer, ranked.sight, target)
    tried = _finer(arena, ranked, target)
    best = min(tried, key=lambda step: tried[step].score(target))
    final = _repeat(arena, candidate, best, tried[best], target)
    smaller = max((step for step in tried if step < best), default=None)
    if smaller is None or final.score(target) <= tried[smaller].score(target):
        return final
    second = _repeat(arena, candidate, smaller, tried[smaller], target)
    return min(final, second, key=lambda each: each.score(target))


def _finer(arena: Arena, ranked: Ranked, target: Target) -> dict[float, Sight]:
    """Runs from the first start: with the best two of the grid, and on both sides of the best."""
    best, *others = ranked.outers
    steps = [rounded(best / FINER), rounded(best * FINER), *others[:1]]
    sights = arena.whole_runs(ranked.candidate, [(step, arena.points[0]) for step in steps])
    tried = {best: ranked.sight, **dict(zip(steps, sights, strict=True))}
    arena.judge.find_hits(list(tried.values()), target)
    return tried


def _repeat(
    arena: Arena, candidate: Candidate, outer: float | str, first: Sight, target: Target
) -> Final:
    """The run from the first start, and those from the others."""
    others = arena.whole_runs(candidate, [(outer, point) for point in arena.points[1:]])
    arena.judge.find_hits(others, target)
    return Final(candidate, outer, [first, *others])


def report(arena: Arena, finals: Sequence[Final], target: Target) -> list[Scheme]:
    """The outcomes: ‖∇Φ‖² along all runs, where each arrives at the target, and the times.

    Where y is small, ‖∇Φ‖² is measured at every snapshot; otherwise a run that leaves the target
    for a moment between those where it was may pass for one that stays.
    """
    sights = [sight for final in finals for sight in final.sights]
    arena.watch.say("measuring ‖∇Φ‖² along the runs")
    arena.judge.look_along(sights, None if is_small(arena.points[0].y) else _POINTS)
    arena.judge.find_hits(sights, target)
    return [_outcome(arena, final, target) for final in finals]


def _outcome(arena: Arena, final: Final, target: Target) -> Scheme:
    candidate, outer, sights = final
    arena.watch.say(f"timing {candidate.title}")
    rate = arena.seconds_per_cost(candidate, outer)
    return Scheme(
        candidate.scheme,
        candidate.code,
        candidate.N,
        candidate.Q,
        None if isinstance(outer, str) else outer,
        tuple(SeedRun(s.track, s.norm2, s.value, target, s.hit(target), rate) for s in sights),
    )
