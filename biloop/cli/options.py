"""Options that several commands have: numbers, lists of them, and files that will be written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from biloop.report.output import check_writable


def number(name: str, help: str) -> Any:
    """An option that takes a number."""
    return typer.Option(name, help=help, metavar="NUMBER", parser=_parser(float, "a number"))


def integer(name: str, help: str) -> Any:
    """An option that takes an integer."""
    return typer.Option(name, help=help, metavar="INTEGER", parser=_parser(int, "an integer"))


def _parser(convert: Callable[[str], float], what: str) -> Callable[[str], float]:
    """typer's own conversion does not name the value that it refuses."""

    def parse(text: str) -> float:
        try:
            return convert(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not {what}") from None

    return parse


def lengths(text: str) -> tuple[int, ...]:
    """Lengths of loops: 1,3,10,30."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of integers such as 1,3,10,30") from None


def seed_list(text: str) -> tuple[int, ...]:
    """Seeds as a list or a range: 0,1,2 or 0-4."""
    try:
        ends = [part.split("-") for part in text.split(",")]
        seeds = [seed for end in ends for seed in range(int(end[0]), int(end[-1]) + 1)]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of seeds such as 0,1,2 or 0-4") from None
    if not seeds or len(set(seeds)) < len(seeds):
        raise typer.BadParameter(f"{text!r} has no seed, or one twice")
    return tuple(seeds)


def prepare(*paths: Path | None) -> None:
    """Make the folders of files that are asked for, and refuse those that cannot be written."""
    for path in paths:
        if path is None:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"cannot make the folder {path.parent}: {error.strerror}") from error
        check_writable(path)
