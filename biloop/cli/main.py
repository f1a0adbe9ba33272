"""The command `biloop`: arguments in, calls out.

It exits 0 when all is well, 2 on bad input, 1 when a run failed; an error is one sentence on
stderr, with a traceback before it if --debug is given. `main` alone decides this, for every
command: a command raises what the library raises.
"""

import io
import json
import sys
import traceback
from pathlib import Path
from typing import Annotated, cast

import biloop
from biloop.results import RunFailed
from biloop.theory import Constants, Start

try:
    import typer

    from biloop.cli import compare, problems, reproduce, solve
    from biloop.cli.options import integer, number
    from biloop.paper.reports.theory_table import print_theory
except ModuleNotFoundError as error:
    if error.name not in {"typer", "rich", "click"}:
        raise
    print(
        "biloop: the command line needs typer and rich: pip install 'biloop[cli]'", file=sys.stderr
    )
    raise SystemExit(2) from None

from biloop.paper.reports.theory_costs import as_dict, theory_costs
from biloop.paper.reports.theory_plot import draw_theory
from biloop.report.output import check_figure
from biloop.report.trace_plot import AGAINST, SHOWN, check_axes, draw_traces, load_traces

FAILED, BAD_INPUT = 1, 2

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"biloop {biloop.__version__}")
        raise typer.Exit


@app.callback(epilog="Example: biloop compare --help")
def _biloop(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print a traceback before the sentence of an error.")
    ] = False,
) -> None:
    """Bilevel optimization with loops of any length, and what they cost."""


@app.command(
    epilog="Example: biloop theory --L 10 --mu 1 --rho 1 --M 1 --eps 1e-2\n\n"
    "Example: biloop theory --L 1 --mu 0.1 --rho 1 --M 1 --plot cost.png"
)
def theory(
    L: Annotated[float, number("--L", "Lipschitz constant of ∇f and ∇g.")],
    mu: Annotated[float, number("--mu", "Strong convexity of g in y.")],
    rho: Annotated[float, number("--rho", "Lipschitz constant of g's second derivatives.")],
    M: Annotated[float, number("--M", "Bound on ∇_y f at y*(x).")],
    eps: Annotated[float, number("--eps", "Target of the mean of ‖∇Φ‖².")] = 1e-2,
    gap: Annotated[float, number("--gap", "Φ(x_0) − min Φ.")] = 1.0,
    y_distance: Annotated[float, number("--y-distance", "‖y_0 − y*(x_0)‖.")] = 1.0,
    N: Annotated[int | None, integer("--N", "Length of every N-loop.")] = None,
    Q: Annotated[int | None, integer("--Q", "Length of every Q-loop.")] = None,
    conditions: Annotated[
        bool, typer.Option("--conditions", help="Print every condition with both sides.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in full precision.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Draw the cost against κ; loops of the schemes' own lengths."),
    ] = None,
    kappa_max: Annotated[float, number("--kappa-max", "Right end of --plot.")] = 1024.0,
) -> None:
    """What the paper's theorems promise: step sizes, conditions and cost of every loop scheme."""
    constants, start = Constants(L, mu, rho, M), Start(gap, y_distance)
    if plot is not None:
        check_figure(plot)
    costs = theory_costs(constants, start, eps, N, Q)
    if plot is not None:
        draw_theory(plot, constants, start, eps, kappa_max)
        typer.echo(f"wrote {plot}", err=True)
    if as_json:
        typer.echo(json.dumps(as_dict(costs), indent=2))
    else:
        print_theory(costs, conditions)


@app.command(epilog="Example: biloop plot no-loop.npz n-loop.npz --x gradients --out runs.png")
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


app.command(epilog=compare.EXAMPLE)(compare.compare)
app.command(epilog=solve.EXAMPLE)(solve.solve)
app.command(epilog=reproduce.EXAMPLE)(reproduce.reproduce)
app.command(epilog="Example: biloop problems")(problems.problems)


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek gets question marks
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given  # wherever it stands: it is added to a command that has failed
    given = [each for each in given if each != "--debug"] or ["--help"]
    try:
        return app(given, prog_name="biloop", standalone_mode=False) or 0
    except Exception as error:
        if debug:
            traceback.print_exc()
        status, sentence = _explain(error)
        print(f"biloop: {' '.join(sentence.split())}", file=sys.stderr)
        return status


def _explain(error: Exception) -> tuple[int, str]:
    """The exit status and the sentence of an error."""
    if isinstance(error, typer.Abort):
        return FAILED, str(error) or "interrupted"
    if isinstance(error, _USAGE):
        return BAD_INPUT, error.format_message()
    if isinstance(error, (ValueError, TypeError, ImportError, FileNotFoundError)):
        return BAD_INPUT, str(error)
    if isinstance(error, RunFailed):
        return FAILED, str(error)
    return FAILED, f"{type(error).__name__}: {error} (--debug shows where)"


# What typer raises for arguments that it cannot read. It has no public name in every version.
_USAGE = cast(type[typer.BadParameter], typer.BadParameter.__bases__[0])

if __name__ == "__main__":
    sys.exit(main())
