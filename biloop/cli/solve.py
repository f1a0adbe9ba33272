"""`biloop solve`: one run of one method, and its trace in a file."""

import difflib
from pathlib import Path
from typing import Annotated

import typer

from biloop import schemes
from biloop.cli.cache import keep_compiled
from biloop.cli.options import integer, number, prepare
from biloop.estimate import step_sizes
from biloop.methods import Method
from biloop.problems import Loaded, load
from biloop.run.solve import solve as solve_

EXAMPLE = "Example: biloop solve quadratic-16 --method n-loop --N 20 --outer 0.1 --steps 200"
LENGTH = 20  # of a loop, where it is not given
METHODS = {scheme.key: scheme for scheme in schemes.TABLE}
AUTO = "auto"
NAMES = (AUTO, *(name for name in METHODS if name != AUTO))


def solve(
    problem: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEM",
            help="A name from biloop problems, file.py:name or package.module:name.",
        ),
    ],
    method: Annotated[
        str, typer.Option("--method", help=", ".join(NAMES), metavar="METHOD")
    ] = AUTO,
    N: Annotated[int, integer("--N", "Length of the N-loop.")] = LENGTH,
    Q: Annotated[int, integer("--Q", "Length of the Q-loop.")] = LENGTH,
    inner_step: Annotated[
        float | None, number("--inner-step", "α; from the spectrum unless given.")
    ] = None,
    linear_step: Annotated[
        float | None, number("--linear-step", "η; from the spectrum unless given.")
    ] = None,
    batch: Annotated[
        int | None, integer("--batch", "Rows of a draw, for a method that draws rows, or auto.")
    ] = None,
    outer: Annotated[str, typer.Option("--outer", help='β, or "auto".', metavar="NUMBER")] = AUTO,
    steps: Annotated[int, integer("--steps", "Outer steps.")] = 1000,
    epsilon: Annotated[float | None, number("--eps", "Stop at ‖h‖² ≤ ε.")] = None,
    budget: Annotated[
        int | None, integer("--budget", "Stop at so many gradients and products.")
    ] = None,
    seconds: Annotated[float | None, number("--seconds", "Stop after so many seconds.")] = None,
    x0: Annotated[
        str | None, typer.Option("--x0", help="Name of the start of x in a file: x0.")
    ] = None,
    y0: Annotated[
        str | None, typer.Option("--y0", help="Name of the start of y in a file: y0.")
    ] = None,
    trace: Annotated[Path, typer.Option("--trace", help="Where to write the trace.")] = Path(
        "trace.npz"
    ),
) -> None:
    """Solve a problem with one method; the trace goes into a file that biloop plot can draw."""
    if method not in NAMES:
        near = difflib.get_close_matches(method, NAMES, n=1, cutoff=0)[0]
        raise ValueError(
            f"There is no method {method!r}; did you mean {near!r}? There are: {', '.join(NAMES)}."
        )
    beta = _outer(outer)
    prepare(trace)
    keep_compiled()
    found = load(problem, x0=x0, y0=y0)
    made = _method(method, found, N, Q, inner_step, linear_step, batch)
    run = solve_(
        found.problem,
        found.x0,
        found.y0,
        made,
        outer=beta,
        steps=steps,
        epsilon=epsilon,
        budget=budget,
        seconds=seconds,
        label=f"{found.name}, {method}",
    )
    run.trace.save(trace)
    values = run.trace[name := "batch_value" if "batch_value" in run.trace.columns else "value"]
    ends = f"{values[0]:.6g} to {values[-1]:.6g}" if len(values) else "–"
    typer.echo(
        f"{run.message}\n"
        f"outer steps  {run.steps:,}\n"
        f"gradients    {run.cost.gradients:,}\n"
        f"products     {run.cost.products:,}\n"
        f"seconds      {run.seconds:.3g} (and {run.compile_seconds:.3g} to compile)\n"
        f"{name:13}{ends}"
    )
    typer.echo(f"wrote {trace}", err=True)
    if run.status.failed:
        raise typer.Exit(1)


def _outer(text: str) -> float | str:
    if text == AUTO:
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f'--outer must be a number or "auto", got {text!r}') from None


def _method(
    name: str,
    found: Loaded,
    N: int,
    Q: int,
    inner_step: float | None,
    linear_step: float | None,
    batch: int | None,
) -> Method:
    if name == AUTO:
        return schemes.auto(batch=batch)
    if batch is not None and "batch" not in METHODS[name].arguments:
        raise ValueError(f"--batch is for methods that draw rows; {name} sees all in each step.")
    if inner_step is None or linear_step is None:
        sizes = step_sizes(found.problem, found.x0, found.y0)
        inner_step = float(sizes.inner) if inner_step is None else inner_step
        linear_step = float(sizes.linear) if linear_step is None else linear_step
    drawn = {} if batch is None else {"batch": batch}
    return METHODS[name].make(N=N, Q=Q, inner_step=inner_step, linear_step=linear_step, **drawn)
