"""All that the runs behind Figure 1 gave, and how to look things up in it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from biloop.paper.figure1_data import Sizes
from biloop.paper.figure1_runs import LOOPS, Budgets, Grid, Steps

Loops = tuple[int, int]
Key = tuple[str, str, Loops]
"""Formulation, grid of step sizes, and (N, Q)."""
NAMES: Mapping[Loops, str] = {
    (20, 20): "N-Q-loop (20, 20)",
    (20, 1): "N-loop (20, 1)",
    (1, 20): "Q-loop (1, 20)",
    (1, 1): "No-loop (1, 1)",
}


@dataclass(frozen=True, eq=False)
class Found:
    """All that the runs gave. Curves have axes (seeds, points); references are means."""

    sizes: Sizes
    budgets: Budgets
    seeds: tuple[int, ...]
    grids: Mapping[tuple[str, str], Grid]
    tuned: Mapping[Key, np.ndarray]
    chosen: Mapping[Key, Steps]
    curves: Mapping[Key, Mapping[str, np.ndarray]]
    references: Mapping[str, Mapping[str, float]]
    seconds: Mapping[Loops, float]
    """Of an outer step of data cleaning that runs alone."""

    def means(self, formulation: str, kind: str, loops: Loops) -> dict[str, np.ndarray]:
        """The columns with the mean over the seeds that stayed finite."""
        columns = self.curves[formulation, kind, loops]
        return {n: _mean(c) if np.ndim(c) == 2 else c for n, c in columns.items()}

    def at(
        self, formulation: str, kind: str, loops: Loops, quantity: str, where: str, value: float
    ) -> float:
        """The mean of a quantity at the last point where another one is at most `value`."""
        columns = self.means(formulation, kind, loops)
        point = int(np.searchsorted(columns[where], value, side="right")) - 1
        return float(columns[quantity][max(0, point)])  # or at the first point there is

    def last(self, formulation: str, kind: str, loops: Loops, quantity: str) -> float:
        """The mean of a quantity at the end."""
        return float(self.means(formulation, kind, loops)[quantity][-1])

    def failures(self, formulation: str, kind: str, loops: Loops) -> int:
        """Seeds whose run did not stay finite."""
        return int(np.sum(~np.isfinite(self.curves[formulation, kind, loops]["test_loss"][:, -1])))

    def common_seconds(self, kind: str) -> float:
        """A time that every run of data cleaning lasted."""
        return min(float(self.curves["cleaning", kind, each]["seconds"][-1]) for each in LOOPS)

    @property
    def over_seeds(self) -> str:
        """What a mean is taken over, in words."""
        count = len(self.seeds)
        return f"mean over {count} seeds" if count > 1 else f"seed {self.seeds[0]}"


def _mean(column: np.ndarray) -> np.ndarray:
    finite = np.isfinite(column)
    with np.errstate(invalid="ignore"):
        return np.where(finite, column, 0).sum(axis=0) / finite.sum(axis=0)


def influence(found: Found, key: Key) -> float:
    """How much β changes the validation loss at the chosen α, relative to the least."""
    grid, value = found.grids[key[:2]], found.tuned[key]
    row = value[grid.inner.index(found.chosen[key].inner)]
    return float((row.max() - row.min()) / row.min())
