"""The terms on which methods are compared: what they have to reach, and how they start."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpy.typing import NDArray

from biloop.estimate import step_sizes
from biloop.methods.reference import Truth, is_small
from biloop.problem import Problem
from biloop.problem.variables import as_variable
from biloop.run.diagnosis import Excess
from biloop.schedules.arguments import as_function
from biloop.sweeps.cells import is_function
from biloop.vectors import zeros_like

if TYPE_CHECKING:
    from biloop.comparison.measuring import Gauge

RELATIVE = 1e-4
DECREASE = 0.95
_SMALLER = (0.5, 0.2, 0.1)  # ∇Φ is not measured for less
_SLACK = 1.5  # not all seeds get as far as the first
TARGET_RULE = (
    "‖∇Φ‖² is 1e-4 of what it is at the start, or one and a half times the smallest that half of "
    "the schemes get to within the budget by runs that do not fail, if that is more"
)
VALUE_RULE = (
    "and Φ has fallen by 95 % of the decrease that half of the schemes get: far away a gradient "
    "can vanish at any value"
)
_OFF = 0.1
STARTS_RULE = (
    "the first seed starts at x0 and y0, each other a tenth of the way off in a random direction: "
    "of the length over which ∇Φ changes by its own size, and of ‖y0 − y*(x0)‖"
)
_FIRST = 0.03  # a change of each coordinate of x that is neither nothing nor far away
_LENGTHS, _REACH = 9, 4.0  # that are tried, and from one to the next
PRODUCTS = 30  # of each look at a spectrum: one program for step sizes and constants
GIVEN = "given"
_SPECTRUM = "1/L from the spectrum of ∇²_y g at the start and at y*(x0)"


class Target(NamedTuple):
    """‖∇Φ(x)‖² ≤ norm2 and Φ(x) ≤ value."""

    norm2: float
    value: float

    def holds(self, norm2: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Where both hold; what was not measured does not."""
        return (norm2 <= self.norm2) & (value <= self.value)

    def level(self, norm2: float, start: "Target") -> "Target":
        """One on the way here from the start: Φ falls by a share of all, as ‖∇Φ‖² of its digits."""
        if norm2 <= self.norm2 or start.norm2 <= self.norm2:
            return Target(norm2, self.value)
        share = math.log(start.norm2 / norm2) / math.log(start.norm2 / self.norm2)
        return Target(norm2, start.value - max(share, 0.0) * (start.value - self.value))

    def smaller(self) -> "list[Target]":
        """Where to look farther on, if luck decides who is here first."""
        return [Target(share * self.norm2, self.value) for share in _SMALLER]


class Score(NamedTuple):
    """How good a run is, smallest first: its cost to the target; for those that miss it, how far Φ
    is above the target at the end, and ‖∇Φ‖² there. A run that failed has no good side.
    """

    cost: float
    excess: float
    end: float


WORST = Score(math.inf, math.inf, math.inf)


def value_bar(start: float, lowest: Sequence[float]) -> float:
    """The Φ to get to, from the smallest Φ of each scheme.

    Φ(x_0) − 0.95 (Φ(x_0) − median), and not above the start: not all seeds get as far as the first
    """
    return start - DECREASE * max(start - _half(lowest), 0.0)


def choose_norm2(start: float, smallest: Sequence[float]) -> float:
    """The ‖∇Φ‖² to get to, with two digits, from the smallest of each scheme.

    max(10⁻⁴ ‖∇Φ(x_0)‖², 1.5 · median), and at most half of that at the start
    """
    return _up(max(RELATIVE * start, min(_SLACK * _half(smallest), start / 2)))


def _half(numbers: Sequence[float]) -> float:
    """What at least half of the numbers do not exceed."""
    return sorted(numbers)[(len(numbers) + 1) // 2 - 1] if numbers else math.inf


def _up(value: float) -> float:
    """Rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit * (1 - 1e-12)) * unit:.2g}")


def median(values: Sequence[float] | np.ndarray) -> float:
    """The median; the larger of the two in the middle, so that ∞ wins and nothing is averaged."""
    ordered = np.sort(np.asarray(values, float))  # NaN last
    return float(ordered[len(ordered) // 2])


class Point(NamedTuple):
    """Where a run may start."""

    x: PyTree
    y: PyTree


def rounded(value: float) -> float:
    """Three digits: what is run is what the line of code says."""
    return float(f"{value:.3g}")


def at_seed(start: PyTree | Callable[[int], PyTree], seed: int, name: str) -> PyTree:
    """The start itself, or what the function gives for this seed."""
    if is_function(start):
        start = as_function(name, "the seed", 1)(start)(seed)
    return as_variable(start, name)


def spread_starts(
    x0: Any, y0: Any, seeds: Sequence[int], solved: PyTree, length: float
) -> list[Point]:
    """A start for each seed; `solved` is y*(x0), `length` what a step of x means here."""
    distance = host_norm(jax.tree.map(np.subtract, solved, at_seed(y0, seeds[0], "y0")))

    def start(seed: int) -> Point:
        rng = np.random.default_rng(seed)
        x, y = at_seed(x0, seed, "x0"), at_seed(y0, seed, "y0")
        if seed != seeds[0] and not is_function(x0):
            x = _moved(x, _OFF * length, rng)
        if seed != seeds[0] and not is_function(y0):
            y = _moved(y, _OFF * distance, rng)
        return Point(x, y)

    return [start(seed) for seed in seeds]


def _moved(a: PyTree, length: float, rng: np.random.Generator) -> PyTree:
    """a, and from there so far in a random direction."""
    d = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), a)
    scale = length / host_norm(d)
    return jax.tree.map(lambda a, d: a + jnp.asarray(scale * d, a.dtype), a, d)


def truth_at(gauge: "Gauge", start: Point) -> Truth:
    """∇Φ at the start, or why there is none to compare with."""
    x, y, v = (jax.tree.map(lambda a: a[None], part) for part in (*start, zeros_like(start.y)))
    truth = gauge.truth(x, y, v)
    if not truth.found[0]:
        raise ValueError(
            "∇Φ cannot be measured at the start: the inner problem cannot be solved there. Check "
            "that g(x, ·) is strongly convex, or give a y0 closer to its minimiser."
        )
    if host_norm(truth.h) == 0:
        raise ValueError("The start is stationary, ∇Φ(x0) = 0: give another x0.")
    return truth


def first_step_size(gauge: "Gauge", start: Point, truth: Truth) -> float:
    """An outer step with which ∇Φ changes by about its own size: β = t/‖∇Φ(x − t d) − ∇Φ(x)‖.

    d = ∇Φ(x)/‖∇Φ(x)‖, and t the longest of several lengths up to which ∇Φ does not change by more.
    """
    x, h = jax.tree.map(np.asarray, start.x), jax.tree.map(lambda leaf: leaf[0], truth.h)
    length = host_norm(h)
    typical = _FIRST * max(host_norm(x), sum(leaf.size for leaf in jax.tree.leaves(x)) ** 0.5)
    ts = typical * _REACH ** (np.arange(_LENGTHS) - _LENGTHS // 2)
    # Dense algebra on much data: a group would wait for the worst conditioned point, for long.
    group = 1 if is_small(start.y) and not gauge.cheap else gauge.width
    best = None
    for first in range(0, _LENGTHS, group):
        some = ts[first : first + group]
        for t, change in zip(some, _changes(gauge, x, h, truth, some / length), strict=True):
            if 0 < change <= length:
                best = t / change
            elif best is not None:  # what lies farther is another place
                return rounded(float(best))
    return rounded(float(ts[0] / length if best is None else best))


def _changes(
    gauge: "Gauge", x: PyTree, h: PyTree, truth: Truth, steps: NDArray[np.floating]
) -> list[float]:
    """‖∇Φ(x − s h) − h‖ for each s of `steps`; NaN where ∇Φ is not found."""
    places = [jax.tree.map(lambda a, d, s=s: a - np.asarray(s * d, a.dtype), x, h) for s in steps]
    y, v = jax.tree.map(lambda leaf: np.repeat(leaf, len(steps), axis=0), (truth.y, truth.v))
    there = gauge.truth(jax.tree.map(lambda *leaves: np.stack(leaves), *places), y, v)
    moved = (jax.tree.map(lambda a, b, i=i: a[i] - b, there.h, h) for i in range(len(steps)))
    return [
        host_norm(d) if found else math.nan for d, found in zip(moved, there.found, strict=True)
    ]


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


def host_norm(tree: PyTree) -> float:
    """‖·‖ by NumPy: for a few numbers nothing has to be compiled."""
    squares = [np.sum(np.square(leaf, dtype=float)) for leaf in jax.tree.leaves(tree)]
    return math.sqrt(sum(squares))
