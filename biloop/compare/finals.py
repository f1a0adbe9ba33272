"""The last rounds: the best candidate of a scheme with a finer step size, and from all starts."""

from collections.abc import Sequence

from biloop.compare.arena import Arena
from biloop.compare.candidates import Candidate
from biloop.compare.judge import Score, Sight
from biloop.compare.outcome import Scheme, SeedRun, median
from biloop.compare.rounds import Ranked
from biloop.compare.target import Target
from biloop.compare.tuning import FINER, rounded

_POINTS = 9  # of each run that is reported, where ‖∇Φ‖² is measured


def finish(arena: Arena, ranked: Ranked, target: Target) -> Scheme:
    """The outcome of a scheme; after Ctrl-C, from what there is already.

    Where most starts miss the target with a step size that was good for the first, a smaller one
    is taken.
    """
    candidate, outer = ranked.candidate, ranked.outer
    if arena.watch.interrupted():
        return report(arena, candidate, outer, [ranked.sight], target)
    arena.watch.say(f"repeating {candidate.title}")
    if isinstance(outer, str):
        return report(arena, candidate, outer, _repeat(arena, ranked, outer, target), target)
    tried = _finer(arena, ranked, target)
    best = min(tried, key=lambda step: tried[step].score(target))
    first = ranked._replace(sight=tried[best])
    outcomes = {best: _repeat(arena, first, best, target)}
    smaller = max((step for step in tried if step < best), default=None)
    if (
        smaller is not None
        and _middle(outcomes[best], target).cost > tried[smaller].score(target).cost
    ):
        second = ranked._replace(sight=tried[smaller])
        outcomes[smaller] = _repeat(arena, second, smaller, target)
    chosen = min(outcomes, key=lambda step: _middle(outcomes[step], target))
    return report(arena, candidate, chosen, outcomes[chosen], target)


def _finer(arena: Arena, ranked: Ranked, target: Target) -> dict[float, Sight]:
    """Runs from the first start: with the best two of the grid, and on both sides of the best."""
    best, *others = ranked.outers
    steps = [rounded(best / FINER), rounded(best * FINER), *others[:1]]
    tried = {step: arena.alone(ranked.candidate, step, arena.points[0]) for step in steps}
    arena.judge.find_hits(list(tried.values()), target)
    return {best: ranked.sight, **tried}


def _repeat(arena: Arena, ranked: Ranked, outer: float | str, target: Target) -> list[Sight]:
    """The run from the first start, and those from the others."""
    others = [arena.alone(ranked.candidate, outer, point) for point in arena.points[1:]]
    arena.judge.find_hits(others, target)
    return [ranked.sight, *others]


def _middle(sights: Sequence[Sight], target: Target) -> Score:
    scores = [sight.score(target) for sight in sights]
    return Score(*(median(column) for column in zip(*scores, strict=True)))


def report(
    arena: Arena, candidate: Candidate, outer: float | str, sights: Sequence[Sight], target: Target
) -> Scheme:
    """Runs as an outcome: ‖∇Φ‖² along the way, the first x at the target, and the time."""
    arena.judge.look_along(sights, _POINTS)
    arena.judge.find_hits(sights, target)
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
