"""The figure of sampled rates: a line for each method, and its published slope."""

from typing import TYPE_CHECKING

from biloop.paper.sampled import Found
from biloop.report.axes import plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#000000", "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00")  # Okabe and Ito


def draw_sampled(found: Found) -> "Figure":
    """The mean of ‖∇Φ‖² against the samples used."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 5.0), layout="constrained")
    axes = figure.subplots()
    for colour, name in zip(COLOURS, found.means, strict=True):
        used, means, p = found.samples[name], found.means[name], found.published(name)
        label = f"{name}: {found.slope(name):.2f} ({p:.2f})"
        axes.loglog(used, means, "o-", color=colour, markersize=4, label=label)
        axes.loglog(used, means[-1] * (used / used[-1]) ** p, "--", color=colour, linewidth=0.8)
    axes.set_xlabel("samples used")
    axes.set_ylabel("mean of ‖∇Φ(x_k)‖² over the run")
    axes.legend(title="measured slope (published)", fontsize=9, frameon=False)
    plain_axes(axes)
    return figure
