"""The last round: the best candidate of each scheme from all starts."""

from collections.abc import Sequence
from typing import NamedTuple

from biloop.comparison.arena import Arena
from biloop.comparison.candidates import Candidate
from biloop.comparison.judge import Score, Sight
from biloop.comparison.outcome import Scheme, SeedRun, median
from biloop.comparison.rounds import Ranked
from biloop.comparison.target import Target

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
    candidate, best = ranked.candidate, ranked.outer(target)
    if arena.watch.interrupted():
        return Final(candidate, best, [ranked.tried[best]])
    arena.watch.say(f"repeating {candidate.title}")
    final = _repeat(arena, ranked, best, target)
    if arena.watch.interrupted():
        return final._replace(sights=final.sights[:1])  # the others were cut short
    smaller = ranked.smaller(best)
    if smaller is None or final.score(target) <= ranked.tried[smaller].score(target):
        return final
    second = _repeat(arena, ranked, smaller, target)
    if arena.watch.interrupted():
        return final
    return min(final, second, key=lambda each: each.score(target))


def _repeat(arena: Arena, ranked: Ranked, outer: float | str, target: Target) -> Final:
    """The run from the first start, and those from the others."""
    others = arena.whole_runs(ranked.candidate, [(outer, point) for point in arena.points[1:]])
    arena.judge.find_hits(others, target)
    return Final(ranked.candidate, outer, [ranked.tried[outer], *others])


def report(arena: Arena, finals: Sequence[Final], target: Target) -> list[Scheme]:
    """The outcomes: ‖∇Φ‖² along all runs, where each arrives at the target, and the times.

    Where y is small, ‖∇Φ‖² is measured at every snapshot; otherwise a run that leaves the target
    for a moment between those where it was may pass for one that stays.
    """
    sights = [sight for final in finals for sight in final.sights]
    arena.watch.say("measuring ‖∇Φ‖² along the runs")
    arena.judge.look_along(sights, _POINTS)
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
