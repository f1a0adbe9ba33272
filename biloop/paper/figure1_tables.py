"""Figure 1 in numbers: all that the runs gave, and the tables of it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from biloop.paper.figure1_data import Sizes
from biloop.paper.figure1_runs import FIXED_COST, FIXED_K, LOOPS, Budgets, Grid, Steps
from biloop.paper.reports.section import Table
from biloop.report.numbers import short

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


PRINTED_CAPTION = (
    "Data cleaning with step sizes of the printed grid, mean over the seeds: training loss (on the "
    "noisy labels) and test loss against seconds, gradients, products and outer iterations. "
    "Seconds are those of a run alone on the machine named below."
)
MOVING_CAPTION = (
    "Data cleaning with outer step sizes that move x, W from 0, mean over the seeds; dotted: "
    "weights that are not learned, trained to the end. Right: the mean weight σ(x_i) of training "
    "samples with right and with wrong labels."
)
RIDGE_CAPTION = (
    "The text's formulation with one penalty λ = exp(x), mean over the seeds that stayed finite."
)


def method(found: Found) -> tuple[str, ...]:
    """How it was run."""
    sizes, budgets = found.sizes, found.budgets
    data = "MNIST" if sizes.data == "mnist" else "scikit-learn's digits, in place of MNIST"
    large = found.grids["cleaning", "large"]
    return (
        f"**Data.** {data}: {sizes.train} training, {sizes.validation} validation and {sizes.test} "
        f"test samples; the labels of 10 % of the training samples are drawn anew, uniformly and "
        "once. Pixels are centred and scaled to standard deviation one, as in the code behind the "
        "paper. Seeds draw samples, noise and W. float32, full batches, warm starts of y and v "
        "(Algorithm 1), η = α.",
        "**Two formulations.** The text has one penalty: g = mean CE + ½λ‖W‖² with λ = exp(x), "
        "x_0 = −4.6. The code behind the paper (that of Ji et al. and Yang et al.) does data "
        "hyper-cleaning: g = mean σ(x_i) CE_i + 0.001‖W‖², a weight for each training sample, "
        "x_0 = 0. Both are run. That code applies the label noise anew at every visit of a sample, "
        "and its linear solver is not the Neumann sum; here the paper is implemented. W starts "
        "normal with standard deviation 0.447, as in that code.",
        "**Step sizes.** α = η and β are chosen from {0.1, 0.01, 0.001}² as printed, for each "
        f"(N, Q) by the least validation loss after Gc + MV = {budgets.tuning} on the first seed. "
        "A second choice is made from outer step sizes that move x: for cleaning, where ∂Φ/∂x_i is "
        f"of the order 1/n, β from {_list(large.outer)} and α as printed, W from 0, "
        f"by the validation loss after Gc + MV = {budgets.moving}; for one penalty β from "
        f"{_list(found.grids['ridge', 'large'].outer)}. Final runs have Gc + MV = {budgets.final} "
        f"(cleaning) and {budgets.ridge} (one penalty). Seconds are k times the measured time of "
        "one outer step of a run alone; the runs themselves go side by side.",
    )


def tables(found: Found) -> tuple[Table, ...]:
    """Step sizes, the printed grid, the grid that moves x, and the other formulation."""
    return (_steps(found), _printed(found, "cleaning"), _moving(found), _printed(found, "ridge"))


def _steps(found: Found) -> Table:
    rows = []
    for formulation, kind in found.grids:
        for loops in LOOPS:
            key = (formulation, kind, loops)
            step, value = found.chosen[key], found.tuned[key]
            failed = int(np.sum(~np.isfinite(value)))
            cells = f"{step.inner:g}", f"{step.outer:g}", short(float(value.min()), 4)
            more = _influence(found, key), f"{failed} of {value.size}"
            rows.append((formulation, kind, NAMES[loops], *cells, *more))
    head = ("formulation", "grid", "loops (N, Q)", "α = η", "β", "validation loss")
    caption = "Step sizes chosen, on the first seed"
    return Table(caption, (*head, "influence of β", "failed"), tuple(rows))


def influence(found: Found, key: Key) -> float:
    """How much β changes the validation loss at the chosen α, relative to the least."""
    grid, value = found.grids[key[:2]], found.tuned[key]
    row = value[grid.inner.index(found.chosen[key].inner)]
    return float((row.max() - row.min()) / row.min())


def _influence(found: Found, key: Key) -> str:
    change = influence(found, key)
    return f"{100 * change:.2g} %" if np.isfinite(change) else "some fail"


def _printed(found: Found, formulation: str) -> Table:
    places, head = [("k", float(FIXED_K)), ("cost", float(FIXED_COST))], []
    if formulation == "cleaning":
        places.append(("seconds", found.common_seconds("printed")))
        head.append(f"{short(places[-1][1], 2)} seconds")
    rows = []
    for loops in LOOPS:
        key = (formulation, "printed", loops)
        test = [found.at(*key, "test_loss", where, value) for where, value in places]
        test += [found.last(*key, "test_loss"), found.at(*key, "train_loss", "cost", FIXED_COST)]
        accuracy = f"{found.at(*key, 'accuracy', 'cost', FIXED_COST):.1%}"
        moved = short(found.last(*key, "moved"), 2)
        failed = f"{found.failures(*key)} of {len(found.seeds)}"
        rows.append((NAMES[loops], *(short(value, 4) for value in test), accuracy, moved, failed))
    first = ("loops (N, Q)", f"test loss, k = {FIXED_K}", f"Gc + MV = {FIXED_COST}")
    last = ("at the end", f"train loss, Gc + MV = {FIXED_COST}", "accuracy there")
    caption = f"{_words(formulation)}, printed grid, {found.over_seeds}"
    return Table(caption, (*first, *head, *last, "max |x − x_0|", "failed"), tuple(rows))


def _moving(found: Found) -> Table:
    rows = []
    for loops in LOOPS:
        key = ("cleaning", "large", loops)
        wrong, right = (found.last(*key, f"{word}_weight") for word in ("wrong", "right"))
        cells = (
            short(found.at(*key, "test_loss", "cost", FIXED_COST), 4),
            short(found.last(*key, "test_loss"), 4),
            f"{found.last(*key, 'accuracy'):.1%}",
            f"{wrong:.3f}",
            f"{right:.3f}",
            f"{wrong / right:.2f}",
            short(found.last(*key, "moved"), 2),
        )
        rows.append((NAMES[loops], *cells))
    for name, reference in found.references.items():
        wrong, right = reference["wrong_weight"], reference["right_weight"]
        cells = f"{reference['accuracy']:.1%}", f"{wrong:.3f}", f"{right:.3f}"
        loss = short(reference["test_loss"], 4)
        rows.append((f"weights {name}, solved", "–", loss, *cells, f"{wrong / right:.2f}", "–"))
    head = ("loops (N, Q)", f"test loss, Gc + MV = {FIXED_COST}", f"{found.budgets.final}")
    more = ("accuracy", "weight of wrong labels", "of right labels", "ratio", "max |x − x_0|")
    caption = f"Data cleaning, outer steps that move x, W from 0, {found.over_seeds}"
    return Table(caption, (*head, *more), tuple(rows))


def _words(formulation: str) -> str:
    return "Data cleaning" if formulation == "cleaning" else "One penalty"


def _list(numbers: tuple[float, ...]) -> str:
    return "{" + ", ".join(f"{number:g}" for number in numbers) + "}"
