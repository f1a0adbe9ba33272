"""The outer step size: nine around a scale, and more where they get better towards an end."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import jax
import numpy as np

from biloop.comparison.judge import Judge, Score, host_norm
from biloop.comparison.measure import Truth
from biloop.comparison.race import Point

GRID = 9
PER_DECADE = 3
RATIO = 10 ** (1 / PER_DECADE)  # of one step size of the grid to the next
FINER = RATIO**0.5
_ABOVE = 3  # of the nine, how many are above the scale: a lagging y or v may allow larger steps
_MOST = 40  # step sizes
_FIRST = 0.03  # a change of each coordinate of x that is neither nothing nor far away
_LENGTHS, _REACH = 9, 4.0  # that are tried, and from one to the next


def rounded(value: float) -> float:
    """Three digits: what is run is what the line of code says."""
    return float(f"{value:.3g}")


def outer_grid(scale: float) -> list[float]:
    """Nine step sizes, three per decade, the sixth of them the scale."""
    exponents = (np.arange(GRID) - (GRID - 1 - _ABOVE)) / PER_DECADE
    return [rounded(scale * 10**exponent) for exponent in exponents]


def tune(
    scores_of: Callable[[Sequence[float]], Sequence[Score]], scale: float
) -> dict[float, Score]:
    """Step sizes with their scores.

    Where the smallest or the largest is better than its neighbour, or all runs failed, the grid
    goes on beyond it.
    """
    known: dict[float, Score] = {}
    beyond = RATIO ** (GRID - 1)  # to a grid that has one step size in common
    low = high = scale
    wanted = [scale]
    while wanted and len(known) < _MOST:
        for grid in map(outer_grid, wanted):
            known |= dict(zip(grid, scores_of(grid), strict=True))
        hills = tops(known)
        wanted = []
        if not hills or min(known) in hills:
            low /= beyond
            wanted.append(low)
        if max(known) in hills:
            high *= beyond
            wanted.append(high)
    return known


def tops(scores: Mapping[float, Score]) -> list[float]:
    """Step sizes that are better than both of their neighbours, best first.

    There may be several: where y or v lags behind, large step sizes may be stable again.
    """
    steps = sorted(scores)
    worst = Score(math.inf, math.inf, math.inf)
    padded = [worst, *(scores[step] for step in steps), worst]
    found = [
        step
        for before, step, after in zip(padded, steps, padded[2:], strict=False)
        if scores[step] <= min(before, after) and scores[step] < worst
    ]
    return sorted(found, key=lambda step: scores[step])


def unknown(steps: Iterable[float], known: Iterable[float]) -> list[float]:
    """The step sizes that are not among the known ones, nor nearer than half a fine step."""
    logs = np.log(list(known))
    near = 0.5 * math.log(FINER)
    return [rounded(step) for step in steps if np.all(abs(math.log(step) - logs) > near)]


def first_scale(judge: Judge, start: Point, truth: Truth) -> float:
    """A step size with which ∇Φ changes by about its own size: β = t/‖∇Φ(x − t d) − ∇Φ(x)‖.

    d = ∇Φ(x)/‖∇Φ(x)‖, and t the longest of several lengths over which ∇Φ does not change by more.
    """
    x, h = jax.tree.map(np.asarray, start.x), jax.tree.map(lambda leaf: leaf[0], truth.h)
    length = host_norm(h)
    typical = _FIRST * max(host_norm(x), sum(leaf.size for leaf in jax.tree.leaves(x)) ** 0.5)
    ts = typical * _REACH ** (np.arange(_LENGTHS) - _LENGTHS // 2)
    places = [
        jax.tree.map(lambda a, d, t=t: a - np.asarray(t / length * d, a.dtype), x, h) for t in ts
    ]
    y, v = jax.tree.map(lambda leaf: np.repeat(leaf, _LENGTHS, axis=0), (truth.y, truth.v))
    there = judge.truth(jax.tree.map(lambda *leaves: np.stack(leaves), *places), y, v)
    moved = [jax.tree.map(lambda a, b, i=i: a[i] - b, there.h, h) for i in range(_LENGTHS)]
    changes = np.array([host_norm(change) for change in moved])
    usable = np.flatnonzero(np.isfinite(there.norm2) & (changes > 0) & (changes <= length))
    if len(usable) == 0:
        return rounded(float(ts[0] / length))
    return rounded(float(ts[usable[-1]] / changes[usable[-1]]))
