"""`biloop reproduce`: the paper's tables and figures run again."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from biloop.cli.cache import keep_compiled
from biloop.cli.options import seed_list
from biloop.paper import DOCUMENT, TARGETS, Options
from biloop.paper import reproduce as reproduce_
from biloop.paper.reports.summary import print_claims, print_targets
from biloop.paper.reports.work_lines import WorkLines

EXAMPLE = (
    "Example: biloop reproduce\n\nExample: biloop reproduce lower-bound --quick --out out/quick"
)


def reproduce(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TARGET]...", help="What to run, or all. Without: a list."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Less than a minute each: small data, fewer runs.")
    ] = False,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for results; finished work in it is used again.")
    ] = Path("out", "reproduction"),
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder with the files of MNIST.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="0,1,2 or 0-4.", metavar="SEEDS")
    ] = None,
) -> None:
    """Run the paper's tables and figures again, and say what agrees and what does not."""
    if not targets:
        print_targets((t.name, t.title, t.minutes, t.quick_minutes) for t in TARGETS.values())
        typer.echo("\nminutes on two CPU cores; biloop reproduce TARGET... [--quick] runs them")
        return
    options = Options(quick, None if seeds is None else seed_list(seeds), data)
    given = [*targets, *["--quick"] * quick, *(["--seeds", seeds] if seeds else [])]
    keep_compiled()
    try:
        with WorkLines() as lines:
            command = shlex.join(["biloop", "reproduce", *given])
            sections = reproduce_(targets, out, options, command, lines)
    except KeyboardInterrupt:
        raise typer.Abort("interrupted; the same command goes on after what is finished") from None
    print_claims(sections.values())
    typer.echo(f"\nwrote {out / DOCUMENT}", err=True)
