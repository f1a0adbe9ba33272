"""What the whole tuned comparison costs beside its cells one after another.

Data cleaning with random numbers of 20 000 × 400 × 10, loops of 1 and 10: eight methods. Their
cells are 9 outer step sizes × 5 starts for seven of them, and 5 starts for the one that finds its
own step size: 320 runs of `solve` with the whole budget, which is what a search by hand takes. Of
those the runs from the first start are timed, all 9 step sizes of each, and stand for the other
starts.

The comparison is counted as a user meets it, with compilation, tuning, measuring ‖∇Φ‖² and timing
the runs; the cells are counted without compilation and without measuring anything. Both are done
in one process. On a machine that is shared, the ratio of the processor times is the steadier one.

    python benchmarks/compare.py [--budget 800] [--samples 20000]
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import biloop as bl
from biloop.comparison.result import Outcome
from biloop.comparison.tuning import grid_around

FEATURES, CLASSES, NOISE = 400, 10, 0.3
LOOP, SEEDS = 10, range(5)
ENDLESS = 10**9  # outer steps: the budget ends a run


class Times(NamedTuple):
    """Seconds on the clock, and of the processor."""

    wall: float
    cpu: float


def timed(work: Callable[[], Any]) -> tuple[Any, Times]:
    """What the work returns and takes; all work here ends on the host."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, Times(time.perf_counter() - wall, time.process_time() - cpu)


def cleaning(samples: int, seed: int = 0) -> bl.problems.DataCleaning:
    """Labels by a linear rule, 30 % of them redrawn; a quarter as many clean ones to validate."""
    rng = np.random.default_rng(seed)
    total = samples + samples // 4
    X = rng.normal(size=(total, FEATURES)).astype(np.float32)
    labels = np.argmax(X @ rng.normal(size=(FEATURES, CLASSES)), axis=1)
    noisy, _ = bl.data.noisy_labels(labels[:samples], NOISE, CLASSES, seed)
    return bl.problems.data_cleaning(
        bl.data.Samples(X[:samples], noisy), bl.data.Samples(X[samples:], labels[samples:])
    )


def cells_of(made: bl.problems.DataCleaning, scheme: Outcome, budget: int) -> tuple[int, Times]:
    """The runs of one method from the first start: how many, and what they take."""
    method = eval(scheme.code, {"bl": bl})  # the line that the comparison prints
    number = scheme.number
    outers = ["auto"] if number is None else grid_around(number)

    def solve(outer: float | str, budget: int) -> bl.Run:
        start = made.x0, made.y0
        return bl.solve(
            made.problem, *start, method, outer=outer, steps=ENDLESS, budget=budget, progress=False
        )

    solve(outers[0], 1)  # compiles
    _, times = timed(lambda: [solve(outer, budget) for outer in outers])
    return len(outers), times


def main() -> None:
    """Time the comparison, then the cells, and print the ratio."""
    parser = argparse.ArgumentParser(
        description="Time bl.compare beside its cells one after another."
    )
    parser.add_argument("--budget", type=int, default=800)
    parser.add_argument("--samples", type=int, default=20_000)
    given = parser.parse_args()

    made = cleaning(given.samples)
    comparison, whole = timed(
        lambda: bl.compare(
            made.problem, made.x0, made.y0, N=LOOP, Q=LOOP, seeds=SEEDS, budget=given.budget
        )
    )
    print(f"{'method':14} {'cells':>5} {'seconds each':>12}")
    cells, alone = 0, Times(0.0, 0.0)
    for scheme in comparison.schemes:
        count, times = cells_of(made, scheme, given.budget)
        print(f"{scheme.name:14} {count * len(SEEDS):5} {times.wall / count:12.3f}", flush=True)
        cells += count * len(SEEDS)
        alone = Times(*(a + len(SEEDS) * b for a, b in zip(alone, times, strict=True)))
    print(f"\n{'':34} {'seconds':>8} {'processor':>10}")
    print(f"{f'{cells} cells one after another':34} {alone.wall:8.1f} {alone.cpu:10.1f}")
    print(f"{'bl.compare, with compilation':34} {whole.wall:8.1f} {whole.cpu:10.1f}")
    print(f"{'ratio':34} {whole.wall / alone.wall:8.2f} {whole.cpu / alone.cpu:10.2f}")


if __name__ == "__main__":
    main()
