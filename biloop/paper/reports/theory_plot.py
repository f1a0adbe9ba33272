"""The cost of each scheme against κ as a figure: gradients and products until ε is certified."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from biloop.paper.theory_costs import LARGEST_KAPPA, QUOTED, theory_costs
from biloop.report.looks import DPI, LOOKS
from biloop.schedules.arguments import short
from biloop.theory import Constants, Start, exponent, table1, table2

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALLEST_KAPPA = 2.0
FITTED_OCTAVES = 3  # slopes are those of the right end, where the leading power rules
STEPS_PER_OCTAVE = 2
PANELS = {"gradients": ("Gc", "gradients  Gc(ε)"), "products": ("MV", "products  MV(ε)")}


class Curve(NamedTuple):
    """A scheme's cost at each κ, its slope over the last octaves, and the exponent printed."""

    scheme: str
    cost: tuple[float, ...]
    fitted: float
    printed: float | None


def kappas(largest: float) -> tuple[float, ...]:
    """From 2 to the largest, evenly in the logarithm."""
    octaves = math.log2(largest / SMALLEST_KAPPA) if 0.0 < largest <= LARGEST_KAPPA else 0.0
    if octaves < 1.0:
        raise ValueError(
            f"the largest kappa must be from {short(2 * SMALLEST_KAPPA)} to "
            f"{short(LARGEST_KAPPA)}, got {largest!r}"
        )
    n = math.ceil(octaves * STEPS_PER_OCTAVE)
    return tuple(SMALLEST_KAPPA * 2.0 ** (octaves * i / n) for i in range(n + 1))


def curves(
    constants: Constants, start: Start, eps: float, grid: Sequence[float]
) -> dict[str, tuple[Curve, ...]]:
    """For each panel, a curve for each scheme: L, ρ, M fixed, μ = L/κ."""
    c = constants
    at = [theory_costs(Constants(c.L, c.L / k, c.rho, c.M), start, eps) for k in grid]
    rows = list(zip(*((*costs.proved, *costs.quoted) for costs in at), strict=True))
    fitted = slice(-1 - FITTED_OCTAVES * STEPS_PER_OCTAVE, None)
    tables = (*table1(kappas=(2.0, 4.0)), *table2(kappas=(2.0, 4.0)))
    printed = {(e.algorithm, e.quantity): e.printed for e in tables if e.variable == "kappa"}
    panels: dict[str, tuple[Curve, ...]] = {}
    for panel, (quantity, _) in PANELS.items():
        drawn: list[Curve] = []
        for scheme in rows:
            name, cost = scheme[0].scheme, tuple(getattr(row, panel) for row in scheme)
            slope = exponent(grid[fitted], cost[fitted])
            drawn.append(Curve(name, cost, slope, printed[name, quantity]))
        panels[panel] = tuple(drawn)
    return panels


def draw_theory(
    path: Path, constants: Constants, start: Start, eps: float, largest_kappa: float
) -> None:
    """Draw the cost of each scheme against κ and write the figure."""
    grid = kappas(largest_kappa)
    panels = curves(constants, start, eps, grid)
    figure = _figure(constants, start, eps)
    for axes, (panel, drawn) in zip(figure.axes, panels.items(), strict=True):
        _panel(axes, grid, drawn, PANELS[panel][1], constants.kappa)
    figure.savefig(path, dpi=DPI)


def _figure(c: Constants, start: Start, eps: float) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 6.6), layout="constrained")
    figure.subplots(1, 2, sharey=True)
    figure.suptitle(
        f"Cost until the mean of ‖∇Φ‖² is certified to be at most {short(eps)}\n"
        f"L = {short(c.L)}, ρ = {short(c.rho)}, M = {short(c.M)}, μ = L/κ, "
        f"Φ(x₀) − min Φ = {short(start.gap)}, ‖y₀ − y*(x₀)‖ = {short(start.y_distance)}",
        fontsize=11,
    )
    figure.supxlabel(
        "quoted: the order from earlier work with hidden constants set to one; "
        "its slope counts, not its height",
        fontsize=9,
        color="#666666",
    )
    return figure


def _panel(
    axes: "Axes", grid: Sequence[float], drawn: Sequence[Curve], label: str, kappa: float
) -> None:
    for curve in drawn:
        colour, marker = LOOKS[curve.scheme]
        axes.loglog(
            grid,
            [value if math.isfinite(value) else math.nan for value in curve.cost],
            color=colour,
            marker=marker,
            markevery=2,
            markersize=5,
            linewidth=1.0 if curve.scheme in QUOTED else 1.6,
            linestyle=":" if curve.scheme in QUOTED else "-",
            label=_label(curve),
        )
    if grid[0] <= kappa <= grid[-1]:
        axes.axvline(kappa, color="#bbbbbb", linewidth=0.8, zorder=0)
        axes.annotate(
            f" κ = {short(kappa)}",
            (kappa, 0.985),
            xycoords=("data", "axes fraction"),
            color="#666666",
            fontsize=9,
            va="top",
        )
    axes.set_xscale("log", base=2)
    axes.set_xlabel("κ = L/μ")
    axes.set_title(label, fontsize=11)
    axes.grid(visible=True, which="major", color="#eeeeee")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    start = grid[-1 - min(FITTED_OCTAVES * STEPS_PER_OCTAVE, len(grid) - 1)]
    axes.legend(
        title=f"exponent of κ from {short(start, 4)} on (as printed)",
        title_fontsize=9,
        fontsize=9,
        ncols=2,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.12),
        frameon=False,
    )


def _label(curve: Curve) -> str:
    if not any(math.isfinite(value) for value in curve.cost):
        return f"{curve.scheme}: N/A, floor ≥ ε"
    quoted = ", quoted" if curve.scheme in QUOTED else ""
    fitted = f"{curve.fitted:.2f}" if math.isfinite(curve.fitted) else "N/A"
    printed = "N/A" if curve.printed is None else f"{curve.printed:g}"
    return f"{curve.scheme}{quoted}: {fitted} ({printed})"
