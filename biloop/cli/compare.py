"""`biloop compare`: which loops pay on a problem."""

import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from biloop.cli.cache import keep_compiled
from biloop.cli.options import integer, lengths, number, prepare, seed_list
from biloop.comparison import compare as compare_
from biloop.comparison.measuring import DIVERGED
from biloop.problems import load
from biloop.report.comparison_text import WIDTH, comparison_text

DEFAULT = "cleaning-digits"
EXAMPLE = "Example: biloop compare quadratic-16 --quick --report out/quadratic.html"


def compare(
    problem: Annotated[
        str,
        typer.Argument(
            metavar="[PROBLEM]",
            help="A name from biloop problems, file.py:name or package.module:name.",
        ),
    ] = DEFAULT,
    N: Annotated[str, typer.Option("--N", help="Lengths of the N-loop.", metavar="LIST")] = "",
    Q: Annotated[str, typer.Option("--Q", help="Lengths of the Q-loop.", metavar="LIST")] = "",
    seeds: Annotated[
        str, typer.Option("--seeds", help="Starts: 0,1,2 or 0-4.", metavar="SEEDS")
    ] = "",
    budget: Annotated[
        int | None, integer("--budget", "Gradients and products for each run.")
    ] = None,
    batch: Annotated[
        int | None, integer("--batch", "Rows of a draw: sampled methods race as well.")
    ] = None,
    seconds: Annotated[
        float | None, number("--seconds", "About how long it may take; no limit unless given.")
    ] = None,
    target: Annotated[
        float | None, number("--target", "The ‖∇Φ‖² to reach; chosen by a rule unless given.")
    ] = None,
    inner_step: Annotated[
        float | None, number("--inner-step", "α; from the spectrum unless given.")
    ] = None,
    linear_step: Annotated[
        float | None, number("--linear-step", "η; from the spectrum unless given.")
    ] = None,
    x0: Annotated[
        str | None, typer.Option("--x0", help="Name of the start of x in a file: x0.")
    ] = None,
    y0: Annotated[
        str | None, typer.Option("--y0", help="Name of the start of y in a file: y0.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write a page with all curves: .html.")
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write everything as JSON.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write one row per run.")] = None,
    certificates: Annotated[
        bool, typer.Option("--certificates", help="The bounds of the theory beside the runs.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Loops 1 and 10, two seeds, a small budget.")
    ] = False,
) -> None:
    """Will your optimizer benefit from loops? All schemes, tuned, measured and timed.

    A problem of your own is biloop compare my_file.py:name, where name is a Problem with x0 and y0
    beside it, or a function that returns (problem, x0, y0).
    """
    given = {
        "N": lengths(N) if N else (1, 10) if quick else None,
        "Q": lengths(Q) if Q else (1, 10) if quick else None,
        "seeds": seed_list(seeds) if seeds else (0, 1) if quick else None,
        "budget": budget if budget is not None else _quick_budget(batch) if quick else None,
        "batch": batch,
        "seconds": seconds,
        "target": target,
        "inner_step": inner_step,
        "linear_step": linear_step,
        "certificates": certificates,
    }
    prepare(report, json, csv)
    keep_compiled()
    found = load(problem, x0=x0, y0=y0)
    comparison = compare_(
        found.problem,
        found.x0,
        found.y0,
        name=found.name,
        description=found.description,
        **{name: value for name, value in given.items() if value is not None},
    )
    written = {
        "--N": N,
        "--Q": Q,
        "--seeds": seeds,
        "--budget": budget,
        "--batch": batch,
        "--seconds": seconds,
        "--target": target,
        "--inner-step": inner_step,
        "--linear-step": linear_step,
    }
    options = [part for name, value in written.items() if value for part in (name, str(value))]
    flags = [*["--certificates"] * certificates, *["--quick"] * quick]
    comparison = replace(
        comparison,
        command=shlex.join(["biloop", "compare", problem, *options, *flags]),
        setup=comparison.setup + found.python,
    )
    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH) if terminal else WIDTH
    typer.echo(comparison_text(comparison.payload(), width, color=terminal))
    if json is not None:
        comparison.to_json(json)
    if csv is not None:
        comparison.to_csv(csv)
    if report is not None:
        comparison.report(report)
    for path in (json, csv, report):
        if path is not None:
            typer.echo(f"wrote {path}", err=True)
    if comparison.interrupted or all(s.status == DIVERGED for s in comparison.schemes):
        raise typer.Exit(1)


def _quick_budget(batch: int | None) -> int:
    return 600 if batch is None else 60
