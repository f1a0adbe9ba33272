"""The outer step size: nine around a scale, and more where the best of them is at the edge."""

from collections.abc import Callable, Sequence

import jax
import numpy as np

from biloop.compare.judge import Judge, Score, host_norm
from biloop.compare.measure import Truth
from biloop.compare.race import Point

GRID = 9
PER_DECADE = 3
FINER = 10 ** (0.5 / PER_DECADE)  # halfway from one step size of the grid to the next
_ABOVE = 3  # of the nine, how many are above the scale: a lagging y or v may allow larger steps
_MOVES = 4
_FIRST = 0.03  # a change of each coordinate of x that is neither nothing nor far away
_REACH = 4.0  # from one length that is tried to the next


def rounded(value: float) -> float:
    """Three digits: what is run is what the line of code says."""
    return float(f"{value:.3g}")


def outer_grid(scale: float) -> list[float]:
    """Nine step sizes, three per decade, the sixth of them the scale."""
    exponents = (np.arange(GRID) - (GRID - 1 - _ABOVE)) / PER_DECADE
    return [rounded(scale * 10**exponent) for exponent in exponents]


def tune(
    scores_of: Callable[[Sequence[float]], Sequence[Score]], scale: float
) -> list[tuple[Score, float]]:
    """Step sizes with their scores, best first.

    Where the smallest or the largest is the best, or all runs failed, the grid goes on beyond it.
    """
    known: dict[float, Score] = {}
    beyond = 10 ** ((GRID - 1) / PER_DECADE)  # to a grid that has one step size in common
    for _ in range(_MOVES):
        grid = outer_grid(scale)
        known |= dict(zip(grid, scores_of(grid), strict=True))
        best = min(known, key=lambda step: known[step])
        failed = not np.isfinite(min(known[best]))
        if failed or best == min(known):
            scale /= beyond
        elif best == max(known):
            scale *= beyond
        else:
            break
    return sorted((score, step) for step, score in known.items())


def first_scale(judge: Judge, start: Point, truth: Truth) -> float:
    """A step size with which ∇Φ changes by about its own size: β = t/‖∇Φ(x − t d) − ∇Φ(x)‖.

    d = ∇Φ(x)/‖∇Φ(x)‖, and t the longest of several lengths over which ∇Φ does not change by more.
    """
    x, h = jax.tree.map(np.asarray, start.x), jax.tree.map(lambda leaf: leaf[0], truth.h)
    length, lanes = host_norm(h), judge.width
    typical = _FIRST * max(host_norm(x), sum(leaf.size for leaf in jax.tree.leaves(x)) ** 0.5)
    ts = typical * _REACH ** (np.arange(lanes) - lanes // 2)
    places = [
        jax.tree.map(lambda a, d, t=t: a - np.asarray(t / length * d, a.dtype), x, h) for t in ts
    ]
    y, v = jax.tree.map(lambda leaf: np.repeat(leaf, lanes, axis=0), (truth.y, truth.v))
    there = judge.truth(jax.tree.map(lambda *leaves: np.stack(leaves), *places), y, v)
    moved = [jax.tree.map(lambda a, b, i=i: a[i] - b, there.h, h) for i in range(lanes)]
    changes = np.array([host_norm(change) for change in moved])
    usable = np.flatnonzero(np.isfinite(there.norm2) & (changes > 0) & (changes <= length))
    if len(usable) == 0:
        return rounded(float(ts[0] / length))
    return rounded(float(ts[usable[-1]] / changes[usable[-1]]))
