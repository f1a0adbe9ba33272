"""Compare biloop with its peers: arguments in, calls out.

python -m benchmarks.peers --short
python -m benchmarks.peers --write docs/benchmarks.md
python -m benchmarks.peers --device gpu --works cleaning-20-20 --contenders biloop,torch
"""

import argparse
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.peers.contenders import CONTENDERS
from benchmarks.peers.document import Session, write
from benchmarks.peers.machine import load, machine, versions
from benchmarks.peers.table import Measured, conclusion, table
from benchmarks.peers.turns import Pace, Worker, measure
from benchmarks.peers.works import SHORT, WORKS, Work


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the works one after the other and print a table for each."""
    arguments = _parse(argv)
    device, precision = arguments.device, arguments.precision
    pace = Pace(arguments.turns, arguments.seconds, precision)
    known = ", ".join(f"{name} {version}" for name, version in versions().items())
    print(f"{machine(device)}\n{known}\n", flush=True)
    if (before := load()) > 0.5:
        print(f"The load is {before:.1f}: other programs are running, so times are too long.\n")

    floor = Worker("c", device, precision)  # measures the floor also where it is not a contender
    workers = [
        floor if name == "c" else Worker(name, device, precision) for name in arguments.contenders
    ]
    measured = []
    try:
        rates = floor.ask("rates", work=WORKS["gradient"].as_json()).get("rates", {})
        for name, rate in rates.items():
            print(f"{name}: {rate}")
        for work in arguments.works:
            print(f"\n{work.title}", flush=True)
            measured.append(_measure(work, workers, floor, pace))
            print("", table(measured[-1]), "", *conclusion(measured[-1]), sep="\n", flush=True)
    finally:
        for worker in {floor, *workers}:
            worker.close()

    if path := arguments.write or arguments.append:
        command = shlex.join(["python", "-m", "benchmarks.peers", *arguments.given])
        write(
            path,
            Session(command, device, before, pace, rates, measured),
            append=not arguments.write,
        )
        print(f"\nWritten to {path}")


def _measure(work: Work, workers: Sequence[Worker], floor: Worker, pace: Pace) -> Measured:
    """All contenders at a work, and its floor before and after them."""
    answers = [floor.ask("floor", work=work.as_json())]
    results = measure(work, workers, pace, say=lambda line: print(line, flush=True))
    answers.append(floor.ask("floor", work=work.as_json()))
    in_turns = [r.best for r in results if CONTENDERS[r.contender].family == "floor" and r.seconds]
    units = in_turns or [a["unit"] for a in answers if a.get("unit") is not None]
    how = answers[0].get("how") or answers[0].get("error", "")
    return Measured(work, results, min(units) * work.passes if units else None, how)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--short", action="store_true", help="fewer works and turns: three minutes")
    parser.add_argument("--works", type=_chosen(WORKS), help=", ".join(WORKS))
    parser.add_argument("--contenders", type=_chosen(CONTENDERS), help=", ".join(CONTENDERS))
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--precision", choices=["full", "tf32"], default="full", help="on a GPU")
    parser.add_argument("--turns", type=int, help="turns of each contender at each work")
    parser.add_argument("--seconds", type=float, help="the least length of a turn")
    parser.add_argument("--write", type=Path, help="write the page, e.g. docs/benchmarks.md")
    parser.add_argument("--append", type=Path, help="add a section to a page that is there")
    given = list(sys.argv[1:] if argv is None else argv)
    a = parser.parse_args(given)
    a.given = given
    a.works = [WORKS[name] for name in a.works or (SHORT if a.short else WORKS)]
    a.contenders = a.contenders or list(CONTENDERS)
    a.turns = a.turns or (3 if a.short else 7)
    a.seconds = a.seconds or (0.3 if a.short else 1.0)
    return a


def _chosen(table: Mapping[str, object]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := [name for name in chosen if name not in table]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(table)}")
        return chosen

    return names


if __name__ == "__main__":
    main()
