"""The figure of Theorem 4: who stops at the floor and who does not."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from biloop.report.axes import plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#d55e00", "#e69f00", "#0072b2", "#000000")  # Okabe and Ito
SHOWN = 250  # outer iterations: what comes later is the same
LIMITS = (1e-8, 1e3)


def draw_lower_bound(
    itd: Mapping[int, np.ndarray],
    zero: Mapping[int, np.ndarray],
    warm: Mapping[tuple[int, int], np.ndarray],
    floors: Mapping[int, float],
) -> "Figure":
    """‖∇Φ(x_k)‖² against k: ITD by N on the left, AID with both starts of v on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for colour, (n, floor) in zip(COLOURS, floors.items(), strict=True):
        left.semilogy(itd[n][:SHOWN], color=colour, linewidth=2, label=f"N = {n}")
        right.semilogy(zero[n][:SHOWN], color=colour, linewidth=2, label=f"v from zero, Q = {n}")
        for axes in (left, right):
            axes.axhline(floor, color=colour, linestyle="--", linewidth=0.8)
    for (N, Q), curve in warm.items():
        # On this instance y does not enter the hypergradient: curves that differ in N lie on top
        # of each other.
        style = {"linewidth": 4, "alpha": 0.35} if N == 1 else {"linestyle": ":", "linewidth": 2}
        label = f"v warm, N = {N}, Q = {Q}"
        right.semilogy(
            curve[:SHOWN], color="#009e73" if Q == 1 else "#cc79a7", label=label, **style
        )
    for axes, title in ((left, "ITD"), (right, "AID")):
        axes.set_title(f"{title} (dashed: the floor of Theorem 4)", fontsize=11)
        axes.set_xlabel("outer iteration k")
        axes.legend(loc="lower left", fontsize=9, frameon=False)
        plain_axes(axes)
    left.set_ylabel("‖∇Φ(x_k)‖²")
    left.set_ylim(*LIMITS)
    return figure
