"""Step sizes: stable ones for the loops, and numbers that are tuned.

Those are nine around a scale, and more where they get better towards an end.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import PyTree

from biloop.comparison.measuring import WORST, Score
from biloop.comparison.terms import Point, rounded
from biloop.estimate import step_sizes
from biloop.problem import Problem
from biloop.run.diagnosis import Excess

GRID = 9
PER_DECADE = 3
RATIO = 10 ** (1 / PER_DECADE)  # of one number of the grid to the next
_ABOVE = 3  # of the nine, how many are above the scale: a lagging y or v may allow larger steps
_MOST = 40  # numbers
PRODUCTS = 30  # of each look at a spectrum: one program for step sizes and constants
GIVEN = "given"
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
        return Steps(float(inner), float(linear), GIVEN, GIVEN)
    places = (first, Point(first.x, solved))
    found = [step_sizes(problem, *place, products=PRODUCTS) for place in places]
    return Steps(
        rounded(min(float(each.inner) for each in found)) if inner is None else float(inner),
        rounded(min(float(each.linear) for each in found)) if linear is None else float(linear),
        _SPECTRUM if inner is None else GIVEN,
        _SPECTRUM if linear is None else GIVEN,
    )


def shortened(steps: Steps, excess: Sequence[Excess], free: frozenset[str]) -> Steps:
    """With half of the largest stable step size where one is proven too long, else of both."""
    largest = {each.loop: each.largest for each in excess if each.loop in free}
    largest = largest or {"inner": steps.inner, "linear": steps.linear}
    for loop in free & largest.keys():
        before = getattr(steps, loop)
        reason = f"half of the largest that may be stable where all runs with {before:g} failed"
        number = rounded(largest[loop] / 2)
        steps = steps._replace(**{loop: number, f"{loop}_from": reason})
    return steps


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
