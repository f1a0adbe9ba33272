"""The figure of Table 2: cost of the N-N-loop, and what N = 1 leaves of ‖∇Φ‖²."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from biloop.report.axes import plain_axes
from biloop.theory import exponent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CRITERIA = {"mean": ("running mean", "#000000"), "first": ("first hit", "#0072b2")}
QUANTITIES = {"Gc": ("gradients", "-"), "MV": ("products", "--")}
FLOORS = {"quadratics": ("#e69f00", "o"), "worst case": ("#d55e00", "s")}
BOUNDS = {2: "Ω(κ²), Theorem 4", 3: "O(κ³), Corollary 6"}


def draw_floors(
    kappas: Sequence[float],
    costs: Mapping[str, Mapping[str, np.ndarray]],
    floors: Mapping[str, np.ndarray],
) -> "Figure":
    """Costs by criterion and quantity on the left, floors by problem on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for criterion, (words, colour) in CRITERIA.items():
        for quantity, (name, style) in QUANTITIES.items():
            cost = costs[criterion][quantity]
            label = f"{name}, {words}: κ^{exponent(kappas, cost.tolist()):.1f}"
            left.loglog(kappas, cost, style, color=colour, marker="D", markersize=4, label=label)
    for name, (colour, marker) in FLOORS.items():
        label = f"{name}: κ^{exponent(kappas, floors[name].tolist()):.1f}"
        right.loglog(kappas, floors[name], color=colour, marker=marker, label=label)
    for power, name in BOUNDS.items():
        line = floors["worst case"][0] * (np.asarray(kappas) / kappas[0]) ** power
        right.loglog(
            kappas, line, color="#999999", linestyle=":" if power == 2 else "-.", label=name
        )
    left.set_title("N-N-loop ITD: cost until ε (printed: κ⁴)", fontsize=11)
    right.set_title("No-loop ITD: what is left of ‖∇Φ‖²", fontsize=11)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(kappas), [f"{kappa:g}" for kappa in kappas])
        axes.minorticks_off()
        axes.set_xlabel("κ = L/μ")
        axes.legend(fontsize=9, frameon=False)
        plain_axes(axes)
    return figure
