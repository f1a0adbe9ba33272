"""What follows for methods that draw rows: whether variance reduction and sampling pay."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from biloop.comparison.measuring import IN_A_ROW
from biloop.comparison.terms import Target, median
from biloop.methods import Growing, Method
from biloop.schedules.arguments import short
from biloop.schemes import REDUCED

if TYPE_CHECKING:
    from biloop.comparison.measuring import MeasuredRun
    from biloop.comparison.result import Outcome

_LEVELS = 40  # at which costs are compared


def is_sampled(outcome: "Outcome") -> bool:
    """Whether its method draws rows, if only in the beginning."""
    method = outcome.variant.settings.method
    return isinstance(method, Method) and method.counts_rows


def sampled_verdict(outcomes: Sequence["Outcome"], judge) -> list[str]:
    """Whether variance reduction and sampling pay; `judge(what, having, lacking)` decides.

    Nothing where no method draws rows. One that ends on all rows is on both sides of the crossover.
    """
    sampled = [each for each in outcomes if is_sampled(each)]
    always = [each for each in sampled if not isinstance(each.variant.settings.method, Growing)]
    if not sampled:
        return []
    reduced = [each for each in always if each.name in REDUCED]
    plain = [each for each in always if each.name not in REDUCED]
    sentences = judge("Variance reduction", reduced, plain)
    full = [each for each in outcomes if not is_sampled(each)]
    if full:
        sentences += judge("Sampling", sampled, full)
        # A single tuned step that is at the target says nothing of the way to it.
        groups = [[each for each in group if not each.is_lucky] for group in (always, full)]
        left = " Who is at the target after a single tuned step is left out of this."
        note = left if any(each.is_lucky for each in outcomes) else ""
        sentences += [crossover(*groups) + note] if all(groups) else []
    return sentences


def crossover(sampled: Sequence["Outcome"], full: Sequence["Outcome"]) -> str:
    """From which accuracy on full batches are cheaper, by the least median cost to each level.

    To be at one, Φ must have fallen as well, as it must at the target: a run that was thrown far
    away, where ∇Φ vanishes, is at no accuracy.
    """
    runs = [(run, each.target) for each in (*sampled, *full) for run in each.runs]
    start = max(run.norm2[0] for run, _ in runs)
    there = [run.norm2[run.value <= target.value] for run, target in runs]
    lowest = min((end for ends in there for end in ends if end > 0), default=start / 2)
    levels = np.geomspace(start / 2, lowest, _LEVELS)
    costs = np.array([[_cheapest(group, level) for level in levels] for group in (sampled, full)])
    known = np.isfinite(costs).any(axis=0)
    cheaper = costs[0] < costs[1]  # sampling
    if not known.any():
        return (
            "Neither with samples nor without does ‖∇Φ‖² fall to half of what it is at the start."
        )
    if cheaper[known].all():
        last = short(levels[known][-1])
        return f"Sampling is cheaper at every accuracy that was reached, down to ‖∇Φ‖² = {last}."
    if not cheaper[known].any():
        return "Full batches are cheaper at every accuracy."
    # The last level at which sampling is ahead: beyond it full batches are.
    last = int(np.flatnonzero(cheaper & known)[-1])
    if last == int(np.flatnonzero(known)[-1]):
        first = short(levels[int(np.flatnonzero(cheaper)[0])])
        return (
            f"Sampling is cheaper below ‖∇Φ‖² = {first}, full batches above it: loops that size "
            f"themselves need a few passes for a first step, and samples get farther in the end."
        )
    return (
        f"The crossover is at ‖∇Φ‖² = {short(levels[last])}: down to it sampling is cheaper "
        f"({short(costs[0][last], 2)} passes against {short(costs[1][last], 2)}), beyond it full "
        f"batches are."
    )


def _cheapest(group: Sequence["Outcome"], level: float) -> float:
    """The smallest median cost over the starts to get to ‖∇Φ‖² ≤ level."""
    return min(median([_to_level(r, level, each.target) for r in each.runs]) for each in group)


def _to_level(run: "MeasuredRun", norm2: float, target: Target) -> float:
    """Gradients and products to the first measured snapshot at the level; ∞ for a failed run.

    On batches those measured next must be at the level as well.
    """
    if run.status.failed:
        return math.inf
    known = np.flatnonzero(run.measured)
    level = target.level(norm2, Target(float(run.norm2[0]), float(run.value[0])))
    at = level.holds(run.norm2[known], run.value[known])
    if run.method.counts_rows:
        row = min(IN_A_ROW, len(at))
        at = np.array([at[i : i + row].all() for i in range(len(at) - row + 1)])
    there = np.flatnonzero(at)
    return float(run.cost[known[there[0]]]) if len(there) else math.inf
