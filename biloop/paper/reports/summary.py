"""What a reproduction found, in the terminal: targets with their minutes, claims with verdicts."""

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table

from biloop.paper.section import Section

WIDTH = 100
STYLES = {
    "reproduced": "green",
    "not contradicted": "green",
    "not reproduced": "red",
    "contradicted": "red",
}


def print_targets(targets: Iterable[tuple[str, str, float, float]]) -> None:
    """Name, title and minutes (full and quick) of each target, and of all together."""
    table = _table()
    for name in ("target", ""):
        table.add_column(name, no_wrap=True)
    for name in ("minutes", "--quick"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = list(targets)
    total = ("all", "all of them", sum(row[2] for row in rows), sum(row[3] for row in rows))
    for name, title, minutes, quick in (*rows, total):
        table.add_row(
            name, title, f"{minutes:.1f}", f"{quick:.1f}", end_section=name == rows[-1][0]
        )
    _console().print(table)


def print_claims(sections: Iterable[Section]) -> None:
    """One line for each claim."""
    table = _table()
    table.add_column("in the paper", no_wrap=True)
    table.add_column("claim")
    table.add_column("verdict", no_wrap=True)
    for section in sections:
        for claim in section.claims:
            style = STYLES.get(claim.verdict, "yellow")
            table.add_row(claim.where, claim.statement, f"[{style}]{claim.verdict}[/]")
    _console().print(table)


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)


def _console() -> Console:
    console = Console(highlight=False)
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    return console
