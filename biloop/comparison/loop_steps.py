"""The step sizes α and η of the loops: the same for all schemes, none that is proven too long."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxtyping import PyTree

from biloop.comparison.candidates import Variant
from biloop.comparison.rounds import Tuned, rank
from biloop.comparison.runs import Runner
from biloop.comparison.starts import Point, rounded
from biloop.estimate import step_sizes
from biloop.problem import Problem
from biloop.run.diagnosis import Excess
from biloop.schemes import BY_NAME

PRODUCTS = 30  # of each look at a spectrum: one program for step sizes and constants
_ATTEMPTS = 6  # at step sizes, each at most half of the one before
_GIVEN = "given"
_SPECTRUM = "1/L from the spectrum of ∇²_y g at the start and at y*(x0)"


class Steps(NamedTuple):
    """The step sizes of both loops, and where each comes from."""

    inner: float
    linear: float
    inner_from: str
    linear_from: str


def first_steps(
    problem: Problem, first: Point, solved: PyTree, inner: float | None, linear: float | None
) -> Steps:
    """The step sizes of both loops: those that were given, else stable ones at y0 and y*(x0).

    `solved` is y*(x0).
    """
    if inner is not None and linear is not None:
        return Steps(float(inner), float(linear), _GIVEN, _GIVEN)
    places = (first, Point(first.x, solved))
    found = [step_sizes(problem, *place, products=PRODUCTS) for place in places]
    return Steps(
        rounded(min(float(each.inner) for each in found)) if inner is None else float(inner),
        rounded(min(float(each.linear) for each in found)) if linear is None else float(linear),
        _SPECTRUM if inner is None else _GIVEN,
        _SPECTRUM if linear is None else _GIVEN,
    )


def rank_with_stable_steps(
    runner: Runner,
    make: Callable[[Steps], list[Variant]],
    steps: Steps,
    scale: float,
    goal: float,
) -> tuple[list[Tuned], Steps]:
    """Every variant tuned, with step sizes of the loops that are not too long.

    Where no run of a scheme survives, whatever its outer step, its loops are at fault: all begin
    again with the step sizes that the failure names, or with half of them if it names none.
    """
    sources = {"inner": steps.inner_from, "linear": steps.linear_from}
    free = frozenset(loop for loop, source in sources.items() if source != _GIVEN)
    ranked: list[Tuned] = []
    for attempt in range(_ATTEMPTS):
        variants = make(steps)
        if not variants:
            raise ValueError("There is nothing to compare: schemes and methods are empty.")
        # Longest loops first, after those that need no tuning: they show the way.
        order = [v for v in reversed(variants) if v.search is None]
        order += [v for v in reversed(variants) if v.search is not None]
        last = attempt == _ATTEMPTS - 1
        ranked = rank(runner, order, scale, goal, frozenset() if last else free)
        stuck = bool(ranked) and ranked[-1].is_lost and ranked[-1].variant.scheme in BY_NAME
        if last or not (stuck and free) or runner.watch.interrupted():
            break
        steps = _shortened(steps, ranked[-1].excess, free)
    return ranked, steps


def _shortened(steps: Steps, excess: Sequence[Excess], free: frozenset[str]) -> Steps:
    """With half of the largest stable step size where one is proven too long, else of both."""
    largest = {each.loop: each.largest for each in excess if each.loop in free}
    largest = largest or {"inner": steps.inner, "linear": steps.linear}
    for loop in free & largest.keys():
        before = getattr(steps, loop)
        reason = f"half of the largest that may be stable where all runs with {before:g} failed"
        number = rounded(largest[loop] / 2)
        steps = steps._replace(**{loop: number, f"{loop}_from": reason})
    return steps
