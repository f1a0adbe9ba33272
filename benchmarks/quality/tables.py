"""What was found, beside each other: Φ − Φ* after so many passes, the crossover, and seconds."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import biloop as bl
from benchmarks.quality.contenders import AUTO, AUTO_BATCH, MOST, method_of, outer_of

Found = Mapping[str, dict[str, Any]]
"""By method: where it starts, and a row for each number of passes."""


def read(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """What a folder holds, by problem and by method."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(content["problem"], {})[content["method"]] = content
    return found


def lowest(methods: Found) -> float:
    """Φ*: the lowest that anybody found."""
    return min(value for each in methods.values() for row in each["rows"] for value in row["phi"])


def gap_at(rows: Sequence[dict[str, Any]], passes: float, star: float) -> float:
    """The least median of Φ − Φ* among rows that took no more passes; ∞ if there is none."""
    medians = [float(np.median(row["phi"])) for row in rows if row["passes"] <= passes]
    return min(medians, default=np.inf) - star


def passes_to(rows: Sequence[dict[str, Any]], gap: float, star: float) -> float:
    """The passes until Φ − Φ* is at most `gap`; ∞ if it never is."""
    there = [row["passes"] for row in rows if np.median(row["phi"]) - star <= gap]
    return min(there, default=np.inf)


def best_rows(methods: Found) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """For each number of passes, the tuned method that is lowest there."""
    drawn = {n: each["rows"] for n, each in methods.items() if n not in (AUTO, AUTO_BATCH)}
    for passes in sorted({row["passes"] for rows in drawn.values() for row in rows}):
        here = {n: r for n, rows in drawn.items() for r in rows if r["passes"] == passes}
        name = min(here, key=lambda n, here=here: np.median(here[n]["phi"]))
        yield passes, name, here[name]


def crossover(best: Mapping[int, float], auto: Sequence[dict[str, Any]], star: float) -> str:
    """From which accuracy on loops on all rows are cheaper, in words.

    `best` has the Φ − Φ* of tuned sampling after so many passes.
    """
    ahead = [passes for passes, gap in best.items() if passes_to(auto, gap, star) > passes]
    if not ahead:
        return "Loops on all rows are as good after every number of passes."
    last = max(ahead)
    needs = passes_to(auto, best[last], star)
    told = f"{needs:.0f} passes" if np.isfinite(needs) else "more than they were given"
    if last == max(best):
        return (
            f"Tuned sampling is ahead up to the last number of passes, {last}: to its Φ − Φ* = "
            f"{best[last]:.1e} loops on all rows take {told}."
        )
    return (
        f"The crossover is after {last} passes, at Φ − Φ* = {best[last]:.1e}: to it loops on all "
        f"rows take {told}, to anything lower less than tuned sampling."
    )


def print_table(problem: str, methods: Found) -> None:
    """Φ − Φ* of each method after so many passes, the lowest first."""
    star, best = lowest(methods), list(best_rows(methods))
    columns = [passes for passes, _, _ in best]
    start = max(each["start"] for each in methods.values())
    print(f"\n{problem}: Φ − Φ* after so many passes, from {start - star:.1e} (Φ* = {star:.6f})")
    print(f"{'':24}" + "".join(f"{passes:>9}" for passes in columns))
    gaps = {n: [gap_at(each["rows"], p, star) for p in columns] for n, each in methods.items()}
    for name in sorted(gaps, key=lambda n: (n not in (AUTO, AUTO_BATCH), gaps[n][-1])):
        print(f"{name:24}" + "".join(f"{gap:9.1e}" for gap in gaps[name]))
    print(
        "\nthe best tuned one, with its step sizes, Φ − Φ* over the seeds, and auto's passes to it"
    )
    auto = methods[AUTO]["rows"] if AUTO in methods else []
    for passes, name, row in best:
        low, middle, high = (float(f(row["phi"])) - star for f in (np.min, np.median, np.max))
        print(
            f"{passes:4} {name:22} {row['inner']:g}, {row['outer']:g}: {middle:.1e} "
            f"({low:.1e} to {high:.1e}) {passes_to(auto, middle, star):.0f}"
        )
    if auto:
        levels = {p: float(np.median(row["phi"])) - star for p, _, row in best}
        print(crossover(levels, auto, star))


def print_seconds(problem: str, methods: Found, batch: int) -> None:
    """Seconds of single runs on this machine: of each best tuned method, and of `auto` to its Φ."""
    star, found = lowest(methods), bl.problems.load(problem)
    start = found.problem, found.x0, found.y0
    alone = {}
    for name, method in ((AUTO, None), (AUTO_BATCH, bl.schemes.auto(batch=batch))):
        if name in methods:
            limit = int(methods[name]["rows"][-1]["passes"]) + 1
            again = lambda m=method, most=limit: bl.solve(*start, m, budget=most, progress=False)  # noqa: E731
            alone[name] = _fastest(again)
    for passes, name, row in best_rows(methods):
        method, outer = method_of(name, row["inner"], batch), outer_of(name, row["outer"])

        def solve(method=method, outer=outer, passes=passes) -> bl.Run:
            return bl.solve(*start, method, outer=outer, steps=MOST, budget=passes, progress=False)

        gap = float(np.median(row["phi"])) - star
        took = f"{_fastest(solve).seconds:.2f} s"
        told = [f"{who} {_seconds(run, methods[who], gap, star)}" for who, run in alone.items()]
        print(f"{problem}, {gap:.1e}: {'; '.join([f'{name} {took}, {passes} passes', *told])}")


def _seconds(run: bl.Run, found: Mapping[str, Any], gap: float, star: float) -> str:
    """When a run has made the passes that take it there."""
    enough = passes_to(found["rows"], gap, star) - 1e-6
    there = run.trace["gradients"] + run.trace["products"] >= enough
    return f"{run.trace['seconds'][np.argmax(there)]:.2f} s" if there.any() else "not reached"


def _fastest(call: Callable[[], bl.Run]) -> bl.Run:
    """The fastest of three runs, of which the first compiles."""
    return min((call() for _ in range(3)), key=lambda run: run.seconds)
