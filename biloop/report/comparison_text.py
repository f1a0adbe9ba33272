"""A comparison as text: the table, the verdict, and the line of code."""

import io
import textwrap
from collections.abc import Iterator

from biloop.comparison.payload import ComparisonPayload, SchemePayload
from biloop.schedules.arguments import count, short

WIDTH = 100
NONE = "–"
HEAD = (
    "scheme",
    "N",
    "Q",
    "outer",
    "k",
    "‖∇Φ‖²",
    "Φ",
    "ends",
    "gradients",
    "products",
    "seconds",
)
_WORDS = 1  # columns of words before those of numbers


def comparison_text(payload: ComparisonPayload, width: int = WIDTH, color: bool = False) -> str:
    """All of it, in lines of at most `width` where the table fits."""
    table = rich_table(payload, color) or plain_table(payload)
    return "\n".join([*_introduction(payload, width), "", table, "", *_conclusion(payload, width)])


def rich_table(payload: ComparisonPayload, color: bool) -> str:
    """The table by rich; empty where rich is not installed."""
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ModuleNotFoundError:
        return ""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    for i, name in enumerate(HEAD):
        right = i >= _WORDS and name != "ends"
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for scheme in payload["schemes"]:
        best = scheme["code"] in payload["recommendation"]
        # Text, not markup: a name may have brackets.
        table.add_row(*map(Text, _cells(scheme)), style="bold green" if best else "")
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=10 * WIDTH,  # no number is cut short; a line too long runs over
        force_terminal=color,
        force_jupyter=False,  # where it would show the table instead of writing it
        color_system="auto" if color else None,
    )
    console.print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def plain_table(payload: ComparisonPayload) -> str:
    """The same with spaces alone."""
    rows = [HEAD, *(_cells(scheme) for scheme in payload["schemes"])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if i >= _WORDS and HEAD[i] != "ends" else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
    return "\n".join(lines)


def _introduction(payload: ComparisonPayload, width: int) -> Iterator[str]:
    problem = payload["problem"]
    samples = "" if problem["samples"] is None else f", {problem['samples']:,} samples"
    starts = max(len(scheme["seeds"]) for scheme in payload["schemes"])
    medians = "; medians over the starts" * (starts > 1)
    described = problem["description"].rstrip(".")
    described = f" {described[:1].upper()}{described[1:]}:" if described else ""
    yield from _wrapped(
        f"{payload['title']}{described} x has {problem['dim_x']:,} entries, y "
        f"{problem['dim_y']:,}{samples}.",
        width,
    )
    yield ""
    yield from _wrapped(
        f"Every scheme ran with the loops and the outer step size that are best for it, from "
        f"{starts} start{'s' * (starts > 1)}, with {payload['budget']:,} gradients and products "
        f"for each run. The last three columns are what it took to the target ‖∇Φ‖² ≤ "
        f"{short(payload['target'])}, those before them how the runs ended{medians}.",
        width,
    )


def _wrapped(text: str, width: int, first: str = "", later: str = "") -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=later, break_on_hyphens=False
    )


def _conclusion(payload: ComparisonPayload, width: int) -> Iterator[str]:
    for sentence in payload["verdict"]:
        yield from _wrapped(sentence, width, "• ", "  ")
    if payload["recommendation"]:
        yield ""
        yield payload["recommendation"]  # neither indented nor wrapped: it can be pasted


def _cells(scheme: SchemePayload) -> tuple[str, ...]:
    def number(value: float | None) -> str:
        return NONE if value is None else short(value)

    def whole(value: float | None) -> str:
        return NONE if value is None else count(value)

    outer = scheme["outer_step"]
    return (
        scheme["name"],
        str(scheme["N"]),
        NONE if scheme["Q"] is None else str(scheme["Q"]),
        outer if isinstance(outer, str) else short(outer),
        whole(scheme["steps"]),
        number(scheme["grad_norm2"]),
        number(scheme["value"]),
        scheme["status"],
        whole(scheme["gradients_to_target"]),
        whole(scheme["products_to_target"]),
        number(scheme["seconds_to_target"]),
    )
