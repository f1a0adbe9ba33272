"""The figure of Table 3: what is printed, and what the theory is about."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from biloop.report.axes import plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {20: "#0072b2", 1: "#d55e00"}
STYLES = {"restart": "-", "warm": "--", "warm, GD": ":"}
WORDS = {"restart": "restart, Adam", "warm": "warm start, Adam", "warm, GD": "warm start, GD"}


def draw_table3(
    curves: Mapping[tuple[str, int], Any],
    at: Sequence[int],
    solved: Sequence[int],
    columns: Sequence[int],
    printed: Mapping[int, Sequence[str]],
    infimum: float,
) -> "Figure":
    """Means over the seeds: the value in the iterations `at`, phi and gradient in `solved`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 4.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for (name, N), found in curves.items():
        style = {"color": COLOURS[N], "linestyle": STYLES[name], "linewidth": 1.6}
        label = f"N = {N}, {WORDS[name]}"
        left.loglog(at, found.value.mean(axis=0), label=label, **style)
        middle.loglog(solved, found.phi.mean(axis=0), **style)
        right.loglog(solved, found.gradient.mean(axis=0), **style)
    for N, numbers in printed.items():
        left.loglog(
            columns,
            [float(n) for n in numbers],
            "X",
            color=COLOURS[N],
            markersize=9,
            markeredgecolor="white",
            zorder=5,
        )
    middle.axhline(infimum, color="#666666", linestyle=":", linewidth=1)
    left.set_title("f(H_k, w_k^N) and the printed numbers (×)", fontsize=11)
    middle.set_title("Φ(H_k); dotted: inf Φ", fontsize=11)
    right.set_title("‖∇Φ(H_k)‖²", fontsize=11)
    for axes in (left, middle, right):
        axes.set_xlabel("outer iteration k")
        plain_axes(axes)
    figure.legend(
        *left.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=10,
    )
    return figure
