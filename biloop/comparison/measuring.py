"""A measured run: where it was on its way, what ∇Φ was there, and where it reached the target.

∇Φ is measured apart from the runs and is no part of their cost. Nor is it taken from a run's own h,
whose error is the very thing that loops are for.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import PyTree

from biloop.comparison.terms import Target
from biloop.loops.results import Status
from biloop.methods import Method
from biloop.run.record import Record
from biloop.run.trace import Trace

CONVERGED, SPENT, FLOORED, DIVERGED = "converged", "budget spent", "floored", "diverged"
CUT = "cut short"
UNKNOWN = "not measured"
_STAGNANT = 0.8  # a floor: the second half of the budget removes less than a fifth
IN_A_ROW = 3  # snapshots of a run on batches that must be at the target
_GROWN = 10.0  # times the squared gradient of the start, where Φ has not fallen: it has diverged


class Snapshot(NamedTuple):
    """Where a run is after some outer steps, on the host."""

    steps: int
    x: PyTree
    y: PyTree
    v: PyTree


class Score(NamedTuple):
    """How good a run is, smallest first: its cost to the target; for those that miss it, how far Φ
    is above the target at the end, and ‖∇Φ‖² there. A run that failed has no good side.
    """

    cost: float
    excess: float
    end: float


WORST = Score(math.inf, math.inf, math.inf)


@dataclass(eq=False)
class MeasuredRun:
    """A run from its start to its end, with ‖∇Φ‖² and Φ at its snapshots (NaN: not measured).

    `method` and `record` are what a failure is explained from.
    """

    snapshots: tuple[Snapshot, ...]
    status: Status
    method: Method
    record: Record

    def __post_init__(self) -> None:
        """Nothing has been measured yet."""
        self.norm2 = np.full(len(self.snapshots), np.nan)
        self.value = np.full(len(self.snapshots), np.nan)
        self.measured = np.zeros(len(self.snapshots), bool)
        self.adjoint: PyTree = None  # as it was last measured: closer than that of the run

    @property
    def last(self) -> int:
        """The number of the last snapshot."""
        return len(self.snapshots) - 1

    @property
    def began(self) -> bool:
        """Whether there was time for a step, if only for one that failed."""
        return self.record.rows > 0

    @property
    def trace(self) -> Trace:
        """What was recorded at every outer step."""
        return Trace(self.record.columns())

    @property
    def steps(self) -> np.ndarray:
        """The outer steps done at each snapshot."""
        return np.array([snapshot.steps for snapshot in self.snapshots])

    def spent(self, column: str) -> np.ndarray:
        """What the x of each snapshot took: a column of the trace that adds up."""
        return np.concatenate([[0], self.trace[column]])[self.steps]

    @property
    def cost(self) -> np.ndarray:
        """Gradients and products together, at each snapshot."""
        return self.spent("gradients") + self.spent("products")

    @property
    def end(self) -> float:
        """‖∇Φ‖² of the last x."""
        return float(self.norm2[-1])

    def seen(self) -> float:
        """f as it saw it itself over the last tenth of its steps."""
        values = self.trace["value"]
        last = values[-max(1, len(values) // 10) :]
        return float(np.mean(last)) if len(last) and np.all(np.isfinite(last)) else math.inf

    def arrival(self, target: Target) -> int | None:
        """The first snapshot from which on the run is at the target, as far as was measured.

        Who passes by and leaves again has not arrived, nor has a run that fails afterwards. On
        batches several snapshots in a row must be at the target: a single one may be luck.
        """
        if self.status.failed:
            return None
        arrived = self._last_off(target) + 1
        on = np.flatnonzero(self.measured[arrived:])
        enough = max(1, min(IN_A_ROW, self.last)) if self.method.counts_rows else 1
        return arrived + int(on[0]) if len(on) >= enough else None

    def is_at(self, target: Target) -> bool:
        """Whether it is at the target in the end."""
        return self._last_off(target) < self.last

    def to_target(self, target: Target) -> float:
        """Gradients and products to the target; ∞ if it was not reached."""
        arrived = self.arrival(target)
        return math.inf if arrived is None else float(self.cost[arrived])

    def earliest(self, target: Target) -> float:
        """The least that `to_target` may be, by what is known."""
        return float(self.cost[min(self._last_off(target) + 1, self.last)])

    def score(self, target: Target) -> Score:
        """The score by what is known."""
        value, end = float(self.value[-1]), self.end
        if self.status.failed or math.isnan(end):
            return WORST
        return Score(self.to_target(target), max(0.0, value - target.value), end)

    def ending(self, target: Target) -> str:
        """Converged, floored, diverged, out of budget or time on its way, or nobody knows."""
        if self.arrival(target) is not None:
            return CONVERGED
        grown = self.end > _GROWN * self.norm2[0]
        if self.status.failed or (grown and not self.value[-1] < self.value[0]):
            return DIVERGED
        if math.isnan(self.end):
            return UNKNOWN
        if self.status is Status.INTERRUPTED:
            return CUT
        early = (self.cost <= self.cost[-1] / 2) & np.isfinite(self.norm2)
        halfway = self.norm2[np.flatnonzero(early)[-1]] if early.any() else math.inf
        return FLOORED if self.end > _STAGNANT * halfway and not grown else SPENT

    def unknown(self, target: Target) -> int | None:
        """The snapshot to be measured next to find the arrival; None if it is known.

        At the end; then where the run's own ‖h‖² says, and beside it; then halfway.
        """
        if not self.measured[self.last]:
            return self.last
        arrived, off = self.arrival(target), self._last_off(target)
        if arrived is None or arrived - off == 1:
            return None
        guess = self._guess(target)
        near = min(max(guess, off + 1), arrived - 1)
        return near if abs(near - guess) <= 1 else (off + arrived) // 2

    def _guess(self, target: Target) -> int:
        """The snapshot from which on ‖h‖² is small enough, by what the run itself computed."""
        # The h of a row was computed at the x before it: the last x has none.
        own = self.trace["hypergradient_norm"][self.steps[:-1]]
        off = np.flatnonzero(~(own <= math.sqrt(target.norm2)))
        return int(off[-1]) + 1 if len(off) else 0

    def _last_off(self, target: Target) -> int:
        """The last snapshot that was measured and is not at the target; −1 if there is none."""
        off = np.flatnonzero(self.measured & ~target.holds(self.norm2, self.value))
        return int(off[-1]) if len(off) else -1
