"""What came out for each scheme: its runs over the seeds, how they ended, and what they took."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from biloop.comparison.race import Track
from biloop.comparison.target import Target
from biloop.run.trace import Trace

CONVERGED, SPENT, FLOORED, DIVERGED = "converged", "budget spent", "floored", "diverged"
_STAGNANT = 0.8  # a floor: the second half of the budget removes less than a fifth
_GROWN = 10.0  # times the gradient of the start, squared: a run that has diverged


@dataclass(frozen=True, eq=False)
class SeedRun:
    """One run: its track, and ‖∇Φ‖² and Φ at its snapshots as measured (NaN: not measured).

    `hit` is the snapshot from which on it is at the `target`, None if it is not. `rate` are the
    seconds per gradient or product of such a run alone.
    """

    track: Track
    norm2: np.ndarray
    value: np.ndarray
    target: Target
    hit: int | None
    rate: float

    @property
    def trace(self) -> Trace:
        """What was recorded at every outer step."""
        return self.track.trace

    @property
    def steps(self) -> np.ndarray:
        """The outer steps done at each snapshot."""
        return self.track.steps

    def spent(self, column: str) -> np.ndarray:
        """What the x of each snapshot took: gradients, products or seconds."""
        return self.rate * self.track.cost if column == "seconds" else self.track.spent(column)

    def to_target(self, column: str) -> float:
        """What the target took; ∞ if it was not reached."""
        return math.inf if self.hit is None else float(self.spent(column)[self.hit])

    @property
    def cost(self) -> float:
        """Gradients and products to the target."""
        return self.to_target("gradients") + self.to_target("products")

    @property
    def end(self) -> float:
        """‖∇Φ‖² of the last x."""
        return float(self.norm2[-1])

    @property
    def excess(self) -> float:
        """How far Φ is above the target in the end; ∞ for a run that failed."""
        above = max(0.0, float(self.value[-1]) - self.target.value)
        return math.inf if self.track.status.failed or math.isnan(above) else above

    @property
    def status(self) -> str:
        """Converged, floored, diverged, or out of budget on its way."""
        if self.hit is not None:
            return CONVERGED
        if self.track.status.failed or not self.end <= _GROWN * self.norm2[0]:
            return DIVERGED
        early = (self.track.cost <= self.track.cost[-1] / 2) & np.isfinite(self.norm2)
        halfway = self.norm2[np.flatnonzero(early)[-1]] if early.any() else math.inf
        return FLOORED if self.end > _STAGNANT * halfway else SPENT


@dataclass(frozen=True, eq=False)
class Scheme:
    """A scheme with the loops and the outer step size that were best for it.

    `outer_step` is None where the method finds its own, `code` makes the method.
    """

    name: str
    code: str
    N: int | str
    Q: int | str | None
    outer_step: float | None
    runs: tuple[SeedRun, ...]

    @property
    def status(self) -> str:
        """How most of the seeds ended; the worse of two that are as frequent."""
        order = [CONVERGED, SPENT, FLOORED, DIVERGED]
        found = Counter(run.status for run in self.runs)
        return max(found, key=lambda status: (found[status], order.index(status)))

    @property
    def loops(self) -> str:
        """The lengths of the loops in words."""
        if self.outer_step is None:
            return "loops and step sizes by themselves"
        return f"N = {self.N}" if self.Q is None else f"N = {self.N}, Q = {self.Q}"

    @property
    def outer(self) -> str:
        """The argument `outer` of solve, as code."""
        return '"auto"' if self.outer_step is None else f"{self.outer_step:g}"

    @property
    def costs(self) -> np.ndarray:
        """Gradients and products to the target for each seed, ∞ where it was not reached."""
        return np.array([run.cost for run in self.runs])

    @property
    def cost(self) -> float:
        """The median of it."""
        return median(self.costs)

    def to_target(self, column: str) -> float:
        """The median over seeds of what the target took."""
        return median([run.to_target(column) for run in self.runs])

    @property
    def ends(self) -> list[float]:
        """‖∇Φ‖² at the end of each run."""
        return [run.end for run in self.runs]

    @property
    def excesses(self) -> list[float]:
        """How far Φ is above the target at the end of each run."""
        return [run.excess for run in self.runs]


def median(values: Sequence[float] | np.ndarray) -> float:
    """The median; the larger of the two in the middle, so that ∞ wins and nothing is averaged."""
    ordered = np.sort(np.asarray(values, float))  # NaN last
    return float(ordered[len(ordered) // 2])
