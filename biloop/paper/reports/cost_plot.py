"""Measured cost against κ: a panel for each criterion and quantity."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from biloop.report.axes import plain_axes
from biloop.report.looks import LOOKS
from biloop.theory import table1, table2

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CRITERIA = {"mean": "running mean ≤ ε", "first": "first hit ≤ ε"}
QUANTITIES = {"Gc": "gradients", "MV": "products"}
Curves = Mapping[tuple[str, str], tuple[np.ndarray, float]]
"""By criterion and quantity: the cost at each κ and its exponent."""


def draw_costs(kappas: Sequence[float], schemes: Mapping[str, Curves]) -> "Figure":
    """Cost against κ, each scheme with its exponents in the legend of each panel."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 7.6), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True)
    for row, criterion in zip(panels, CRITERIA, strict=True):
        for axes, quantity in zip(row, QUANTITIES, strict=True):
            _panel(axes, kappas, {n: c[criterion, quantity] for n, c in schemes.items()}, quantity)
            axes.set_title(f"{QUANTITIES[quantity]}, {CRITERIA[criterion]}", fontsize=11)
    for axes in panels[-1]:
        axes.set_xlabel("κ = L/μ")
    return figure


def _panel(
    axes: "Axes",
    kappas: Sequence[float],
    curves: Mapping[str, tuple[np.ndarray, float]],
    quantity: str,
) -> None:
    printed = _printed()
    for name, (cost, exponent) in curves.items():
        colour, marker = LOOKS[name]
        shown = np.where(np.isfinite(cost), cost, np.nan)
        bound = printed.get((name, quantity))
        label = f"{name}: {exponent:.1f} ({'–' if bound is None else f'{bound:g}'})"
        axes.loglog(kappas, shown, color=colour, marker=marker, markersize=5, label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(kappas), [f"{kappa:g}" for kappa in kappas])
    axes.minorticks_off()
    axes.legend(fontsize=9, frameon=False, loc="upper left")
    plain_axes(axes)


def _printed() -> dict[tuple[str, str], float | None]:
    entries = (*table1(kappas=(2.0, 4.0)), *table2(kappas=(2.0, 4.0)))
    return {(e.algorithm, e.quantity): e.printed for e in entries if e.variable == "kappa"}
