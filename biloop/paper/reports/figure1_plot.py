"""The figures of the MNIST experiment: as printed, with x that moves, and with one penalty."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from biloop.report.axes import plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Loops = tuple[int, int]
LOOKS: Mapping[Loops, tuple[str, str, str]] = {
    (20, 20): ("#000000", "-", "N-Q-loop (20, 20)"),
    (20, 1): ("#0072b2", "--", "N-loop (20, 1)"),
    (1, 20): ("#cc79a7", "-", "Q-loop (1, 20)"),
    (1, 1): ("#d55e00", "--", "No-loop (1, 1)"),
}
AXES = ("seconds", "gradients", "products", "outer iterations")
REFERENCES = {"uniform ½": "uniform weights", "oracle 0, 1": "oracle weights"}


Curves = Mapping[Loops, Mapping[str, np.ndarray]]
"""By N and Q: the mean over the seeds of each quantity, beside what was spent until then."""


def against(axes: "Axes", curves: Curves, x: str, y: str) -> None:
    """Draw one curve for each pair of loops."""
    for loops, found in curves.items():
        colour, style, label = LOOKS[loops]
        axes.plot(found[x], found[y], style, color=colour, linewidth=1.8, label=label)
    plain_axes(axes)


def draw_printed(curves: Curves) -> "Figure":
    """Train and test loss against seconds, gradients, products and outer iterations."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 6.2), layout="constrained")
    panels = figure.subplots(2, len(AXES), sharey="row")
    for row, quantity in zip(panels, ("train_loss", "test_loss"), strict=True):
        for axes, x in zip(row, AXES, strict=True):
            against(axes, curves, x, quantity)
            axes.set_yscale("log")
            if x == AXES[-1]:
                axes.set_xscale("log")
        row[0].set_ylabel(quantity.replace("_", " "))
    for axes, x in zip(panels[-1], AXES, strict=True):
        axes.set_xlabel(x)
    _legend(figure, panels[0][0])
    return figure


def draw_moving(curves: Curves, references: Mapping[str, Mapping[str, float]]) -> "Figure":
    """Test loss, accuracy and weights against gradients + products, with the reference points."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 4.6), layout="constrained")
    loss, accuracy, weight = figure.subplots(1, 3)
    against(loss, curves, "cost", "test_loss")
    against(accuracy, curves, "cost", "accuracy")
    for loops, found in curves.items():
        colour, style, _ = LOOKS[loops]
        weight.plot(found["cost"], found["right_weight"], style, color=colour, linewidth=1.2)
        weight.plot(found["cost"], found["wrong_weight"], style, color=colour, linewidth=2.4)
    plain_axes(weight)
    top, lowest = (references[name]["test_loss"] for name in REFERENCES)
    for axes, quantity in ((loss, "test_loss"), (accuracy, "accuracy")):
        for name, words in REFERENCES.items():
            level = references[name][quantity]
            axes.axhline(level, color="#888888", linestyle=":", linewidth=1)
            axes.annotate(
                words,
                (0.99, level),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="top" if level == lowest else "bottom",  # above it are the curves
                fontsize=9,
                color="#666666",
            )
    loss.set_ylim(lowest - 0.3 * (top - lowest), top + 3 * (top - lowest))
    accuracy.set_ylim(bottom=references["uniform ½"]["accuracy"] - 0.08)
    weight.set_ylim(0, 1)
    loss.set_title("test loss", fontsize=11)
    accuracy.set_title("test accuracy", fontsize=11)
    weight.set_title("mean weight: right (thin), wrong labels (thick)", fontsize=11)
    for axes in (loss, accuracy, weight):
        axes.set_xlabel("gradients + products")
    _legend(figure, loss)
    return figure


def draw_ridge(printed: Curves, large: Curves) -> "Figure":
    """Test loss and penalty against gradients + products, on both grids of outer step sizes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 4.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    against(left, printed, "cost", "test_loss")
    against(middle, printed, "outer iterations", "test_loss")
    against(right, large, "cost", "right_weight")
    for axes in (left, middle):
        axes.set_yscale("log")
    middle.set_xscale("log")
    right.set_yscale("log")
    left.set_title("test loss, printed step sizes", fontsize=11)
    middle.set_title("test loss, printed step sizes", fontsize=11)
    right.set_title("penalty λ, larger outer step sizes", fontsize=11)
    left.set_xlabel("gradients + products")
    middle.set_xlabel("outer iterations")
    right.set_xlabel("gradients + products")
    _legend(figure, left)
    return figure


def _legend(figure: "Figure", axes: "Axes") -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=10)
