"""docs/benchmarks.md, written from what was measured."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.machine import machine, versions
from benchmarks.peers.table import Measured, conclusion, table
from benchmarks.peers.turns import CHECKED_STEPS, TOLERANCE, Pace

INTRODUCTION = Path(__file__).with_name("introduction.md")


class Session(NamedTuple):
    """What one run of the program measured, and how it was called."""

    command: str
    device: str
    load: float  # before it began
    pace: Pace
    rates: dict[str, str]
    measured: Sequence[Measured]


def write(path: Path, session: Session, append: bool) -> None:
    """The whole page, or one more section at its end for another machine."""
    before = path.read_text(encoding="utf-8") if append else introduction()
    path.write_text(f"{before.rstrip()}\n\n{section(session)}", encoding="utf-8")


def introduction() -> str:
    """What is compared, and how."""
    text = INTRODUCTION.read_text(encoding="utf-8")
    return text.format(
        steps=CHECKED_STEPS, tolerance=f"{TOLERANCE['full']:.0e}", loose=f"{TOLERANCE['tf32']:.0e}"
    )


def section(session: Session) -> str:
    """Where and when it was measured, and a table for each work."""
    facts = {
        "date": datetime.date.today().isoformat(),
        "machine": machine(session.device),
        "load before the run": f"{session.load:.1f}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
        "command": f"`{session.command}`",
        "turns": f"{session.pace.turns} of {session.pace.seconds:g} s, or of one outer step",
        **session.rates,
    }
    how = ", products in TF32" if session.pace.precision == "tf32" else ""
    lines = [f"## Measured on a {session.device.upper()}{how}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {fact} |" for name, fact in facts.items()]
    for m in session.measured:
        lines += ["", f"### {m.work.title}", "", "```text", table(m), "```", ""]
        lines += [f"- {sentence}" for sentence in conclusion(m)]
    return "\n".join(lines) + "\n"
