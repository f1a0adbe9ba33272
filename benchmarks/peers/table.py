"""Results as plain text: a table per work, and in a sentence what it says."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.peers.contenders import CONTENDERS
from benchmarks.peers.turns import Result
from benchmarks.peers.works import Work

OURS, SHIPPED = "biloop", "biloop-shipped"


@dataclass(frozen=True)
class Measured:
    """All results of a work, and its floor: seconds per outer step (None: unknown), and of what."""

    work: Work
    results: Sequence[Result]
    floor: float | None
    floor_is: str

    def best(self, contender: str) -> float:
        """Its shortest time per outer step; NaN where there is none."""
        return next((r.best for r in self.results if r.contender == contender), math.nan)


def table(measured: Measured) -> str:
    """The contenders that were timed, a line each."""
    work = measured.work
    unit = f"per {work.method}" if work.method in ("gradient", "product") else "per outer step"
    head = ["", unit, "median", "/ biloop", "/ shipped", "/ floor", "compile", "error", ""]
    rows = [head]
    for r in measured.results:
        entry = CONTENDERS[r.contender]
        if not r.seconds:
            continue
        note = "; ".join(filter(None, (entry.note, "" if entry.warm_adjoint else _cold(work))))
        rows.append(
            [
                entry.title,
                duration(r.best),
                duration(r.median),
                ratio(r.best / measured.best(OURS)),
                ratio(r.best / measured.best(SHIPPED)),
                ratio(r.best / (measured.floor or math.nan)),
                duration(r.compile_seconds) if entry.family in ("biloop", "JAX") else "",
                f"{r.error:.0e}",
                note,
            ]
        )
    if not any(row[4] for row in rows[1:]):
        rows = [row[:4] + row[5:] for row in rows]
    return aligned(rows)


def conclusion(measured: Measured) -> list[str]:
    """Who was not timed and why, how fast biloop is beside the others, and the floor: sentences."""
    sentences = [
        f"{CONTENDERS[r.contender].title}: {r.problem}." for r in measured.results if r.problem
    ]
    sentences += [
        f"The speed of {CONTENDERS[name].title}: {', '.join(speeds)}."
        for name in (OURS, SHIPPED)
        if (speeds := _speeds(measured, name))
    ]
    if measured.floor is None:
        return [*sentences, f"No floor: {measured.floor_is}."]
    times = f"{measured.work.passes} times " if measured.work.passes > 1 else ""
    return [*sentences, f"Floor: {duration(measured.floor)}, {times}{measured.floor_is}."]


def _speeds(measured: Measured, ours: str) -> list[str]:
    """How many times as fast as the fastest with PyTorch, and as each with JAX."""
    torch = [name for name, entry in CONTENDERS.items() if entry.family == "PyTorch"]
    timed = {name: measured.best(name) for name in torch if not math.isnan(measured.best(name))}
    rivals = {name: e.title for name, e in CONTENDERS.items() if e.family == "JAX"}
    if timed:
        fastest = min(timed, key=lambda name: timed[name])
        title = f"that of the fastest with PyTorch ({CONTENDERS[fastest].title})"
        rivals = {fastest: title} | rivals
    speeds = {title: measured.best(name) / measured.best(ours) for name, title in rivals.items()}
    return [f"{ratio(s)} × {title}" for title, s in speeds.items() if not math.isnan(s)]


def _cold(work: Work) -> str:
    return "v starts at 0" if work.method == "AID" else ""


def ratio(value: float) -> str:
    """Two digits after the point, or none of a large number; empty for NaN."""
    if math.isnan(value):
        return ""
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    if math.isnan(seconds):
        return ""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * scale or unit == "µs":
            return f"{seconds / scale:#.3g}".rstrip(".") + f" {unit}"
    raise AssertionError


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns: the first and the last to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *middle, last = row
        cells = [c.rjust(w) for c, w in zip(middle, widths[1:-1], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells, last]).rstrip())
    return "\n".join(lines)
