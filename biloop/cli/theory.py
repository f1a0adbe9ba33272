"""`biloop theory`: what the paper's theorems promise."""

import json
from pathlib import Path
from typing import Annotated

import typer

from biloop.cli.options import integer, number
from biloop.paper.reports.theory_plot import draw_theory
from biloop.paper.reports.theory_table import print_theory
from biloop.paper.theory_costs import as_dict, theory_costs
from biloop.report.output import check_figure
from biloop.theory import Constants, Start

EXAMPLE = (
    "Example: biloop theory --L 10 --mu 1 --rho 1 --M 1 --eps 1e-2\n\n"
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
