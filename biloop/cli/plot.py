"""`biloop plot`: traces of runs as a figure."""

from pathlib import Path
from typing import Annotated

import typer

from biloop.report.output import check_figure
from biloop.report.trace_plot import AGAINST, SHOWN, check_axes, draw_traces, load_traces

EXAMPLE = "Example: biloop plot no-loop.npz n-loop.npz --x gradients --out runs.png"


def plot(
    traces: Annotated[
        list[Path], typer.Argument(metavar="TRACE", help="Files that Trace.save wrote.")
    ],
    x: Annotated[str, typer.Option("--x", help=", ".join(AGAINST), metavar="COLUMN")] = "cost",
    y: Annotated[str, typer.Option("--y", help=", ".join(SHOWN), metavar="COLUMN")] = "value",
    out: Annotated[Path, typer.Option("--out", help="The figure: .png, .svg or .pdf.")] = Path(
        "trace.png"
    ),
    linear: Annotated[
        bool, typer.Option("--linear", help="A linear axis for y instead of a logarithmic one.")
    ] = False,
) -> None:
    """Draw the traces of runs: any column against what it cost."""
    check_axes(x, y)
    check_figure(out)
    if left_out := draw_traces(out, load_traces(traces), x, y, linear):
        typer.echo(f"{left_out} points that are not positive are left out; see --linear", err=True)
    typer.echo(f"wrote {out}", err=True)
