"""`biloop problems`: what ships, and how large it is."""

import typer

from biloop.problems import catalogue

EXAMPLE = "Example: biloop problems"
HEAD = ("name", "x", "y", "samples", "", "needs")


def problems() -> None:
    """List the problems that ship, with their sizes."""
    rows = [
        (
            entry.name,
            f"{entry.x_size:,}",
            f"{entry.y_size:,}",
            f"{entry.samples:,}" if entry.samples else "–",
            entry.description,
            entry.needs,
        )
        for entry in catalogue().values()
    ]
    widths = [max(map(len, column)) for column in zip(HEAD, *rows, strict=True)]
    for row in (HEAD, *rows):
        cells = [
            cell.rjust(width) if 1 <= i <= 3 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        typer.echo("  ".join(cells).rstrip())
    typer.echo(
        "\nAny of them, or file.py:name with a problem of your own, goes into biloop compare "
        "and biloop solve."
    )
