"""Φ − Φ* of every sampled method, tuned, beside loops that size themselves, in passes and seconds.

Each method of `bl.schemes.TABLE` that draws rows runs with 5 × 5 step sizes and ten seeds, 250 runs
in one program, until it has spent 1, 3, 10, … passes over the samples. After each of these Φ(x) is
measured in double precision, with y*(x) by Newton's method. The pair of step sizes counts whose
worst of the first three seeds is lowest there, so that a method may have other step sizes for each
number of passes; its median and extremes over all seeds are told (∞: a run failed). Loops that size
themselves (`auto`) are given nothing. Φ* is the lowest Φ that anybody found.

    BILOOP_DATA=folder python -m benchmarks.quality run ijcnn1
    BILOOP_DATA=folder python -m benchmarks.quality run cleaning-mnist
    python -m benchmarks.quality table
    BILOOP_DATA=folder python -m benchmarks.quality seconds

`run` leaves a file for each method in `--out`, which grows with each number of passes, so that
parts of them (`--part 0/8`) can run side by side, on any machine; `seconds` is for a quiet one.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jax

import biloop as bl
from benchmarks.quality.contenders import GRIDS, contenders
from benchmarks.quality.objective import Phi
from benchmarks.quality.tables import print_seconds, print_table, read


def run(options: argparse.Namespace) -> None:
    """A file for each method."""
    grid = GRIDS[options.problem]
    passes = tuple(each for each in grid.passes if each <= options.most)
    grid = replace(grid, passes=passes, seeds=options.seeds, batch=options.batch)
    found = bl.problems.load(options.problem)
    phi = Phi(found.problem, found.y0)
    start = float(phi([(found.x0, found.y0)])[0])
    chosen = {n: c for n, c in contenders().items() if n in (options.methods or contenders())}
    part, parts = map(int, options.part.split("/"))
    options.out.mkdir(parents=True, exist_ok=True)
    for name, contender in list(chosen.items())[part::parts]:
        path, rows = options.out / f"{options.problem}.{name.replace(' ', '_')}.json", []
        for row in contender(name, found, grid, phi):
            rows.append(row)
            content = {"problem": options.problem, "method": name, "start": start, "rows": rows}
            path.write_text(json.dumps(content), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=("run", "table", "seconds"))
    parser.add_argument("problem", nargs="?", choices=GRIDS)
    parser.add_argument("--out", type=Path, default=Path("out/quality"))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--methods", nargs="+", choices=contenders())
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--most", type=int, default=10**6, help="the most passes")
    parser.add_argument("--part", default="0/1", help="of the methods: i/n")
    options = parser.parse_args(arguments)
    if options.command == "run":
        if options.problem is None:
            parser.error(f"run what? One of {', '.join(GRIDS)}.")
        run(options)
        return
    for problem, methods in read(options.out).items():
        if options.problem in (None, problem):
            if options.command == "table":
                print_table(problem, methods)
            else:
                print_seconds(problem, methods, options.batch)


if __name__ == "__main__":
    # Data that are float32 stay so; Φ needs more.
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")
    main()
