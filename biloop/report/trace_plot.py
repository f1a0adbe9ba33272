"""Traces of runs as a figure: any column against what it cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from biloop.report.axes import plain_axes
from biloop.report.looks import DPI, LOOKS
from biloop.run.trace import Trace
from biloop.schedules.arguments import nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AGAINST = {
    "seconds": "seconds",
    "gradients": "gradients",
    "products": "products",
    "cost": "gradients + products",
    "k": "outer step k",
}
SHOWN = {
    "value": "f(x_k, y_k^N)",
    "hypergradient_norm": "‖h‖ at x_k",
    "inner_residual": "‖∇_y g‖ after the N-loop",
    "linear_residual": "‖Hv − b‖ after the Q-loop",
}
STYLES = tuple({colour: (colour, marker) for colour, marker in LOOKS.values()}.values())
DASHES = ("-", "--", ":")  # for more traces than colours
MARKERS_PER_CURVE = 12


def load_traces(paths: Sequence[Path]) -> list[Trace]:
    """Read traces that `Trace.save` wrote; one without a label is named after its file."""
    traces: list[Trace] = []
    for path in paths:
        try:
            trace = Trace.load(path)
        except FileNotFoundError:
            raise ValueError(f"there is no file {path}") from None
        traces.append(Trace(trace.columns, trace.label or path.stem))
    labels = [trace.label for trace in traces]
    return [
        Trace(t.columns, t.label if labels.count(t.label) == 1 else f"{t.label} ({path})")
        for t, path in zip(traces, paths, strict=True)
    ]


def check_axes(x: str, y: str) -> None:
    """Refuse a column that cannot be drawn, with the name that is nearest to it."""
    for option, name, known in (("--x", x, AGAINST), ("--y", y, SHOWN)):
        if name not in known:
            raise ValueError(
                f"{option} cannot be {name!r}; did you mean {nearest(name, list(known))!r}? "
                f"There are {', '.join(known)}."
            )


def draw_traces(path: Path, traces: Sequence[Trace], x: str, y: str, linear: bool = False) -> int:
    """Draw column y of each trace against x; how many points the logarithmic axis leaves out."""
    from matplotlib.figure import Figure

    check_axes(x, y)
    curves = [_curve(trace, x, y) for trace in traces]
    if not any(len(curve.y) for curve in curves):
        without = ": ITD solves no linear system" if y == "linear_residual" else ""
        raise ValueError(f"no trace has a finite {y}{without}")
    shown = curves if linear else [_positive(curve) for curve in curves]
    if not any(len(curve.y) for curve in shown):
        raise ValueError(f"no {y} is positive, as a logarithmic axis needs it; --linear draws it")

    figure = Figure(figsize=(7.5, 5.0), layout="constrained")
    axes = figure.subplots()
    axes.set_yscale("linear" if linear else "log")
    for i, curve in enumerate(shown):
        _draw(axes, curve, i)
    axes.set_xlabel(AGAINST[x])
    axes.set_ylabel(f"{y.replace('_', ' ')}  {SHOWN[y]}")
    plain_axes(axes)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=DPI)
    return sum(len(curve.y) for curve in curves) - sum(len(curve.y) for curve in shown)


class Curve(NamedTuple):
    """The points of a trace that exist."""

    label: str
    x: np.ndarray
    y: np.ndarray


def _curve(trace: Trace, x: str, y: str) -> Curve:
    cost = trace["gradients"] + trace["products"] if x == "cost" else trace[x]
    label = trace.label
    if y not in trace.columns and f"batch_{y}" in trace.columns:
        y, label = f"batch_{y}", f"{label} (on batches)"
    finite = np.isfinite(trace[y])
    return Curve(label, cost[finite], trace[y][finite])


def _positive(curve: Curve) -> Curve:
    return Curve(curve.label, curve.x[curve.y > 0], curve.y[curve.y > 0])


def _draw(axes: "Axes", curve: Curve, i: int) -> None:
    colour, marker = STYLES[i % len(STYLES)]
    label = curve.label.replace("$", r"\$")  # a name, not a formula
    axes.plot(
        curve.x,
        curve.y,
        color=colour,
        marker=marker,
        markevery=max(1, len(curve.x) // MARKERS_PER_CURVE),
        markersize=4.5,
        linewidth=1.5,
        linestyle=DASHES[i // len(STYLES) % len(DASHES)],
        label=label if len(curve.y) else f"{label} (nothing to draw)",
    )
