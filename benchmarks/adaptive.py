"""Loops that size themselves beside the best of all fixed loops, on every problem that ships.

For each problem `bl.compare` tunes AID with every N and Q out of {1, 3, 10, 30, 100} (25 pairs, the
outer step size of each by racing nine and more) and runs `bl.schemes.auto()` with `outer="auto"`,
which is told nothing. What counts is what each takes to a common target of ‖∇Φ‖²: gradients and
products, and the seconds of a run alone. The ratios are those of the automatic method to the
cheapest fixed one; the tuning of the fixed ones is not charged.

    python benchmarks/adaptive.py [PROBLEM ...]
"""

import argparse
import math
import time

import numpy as np

from biloop.compare import compare
from biloop.problems import catalogue, load

LOOPS = (1, 3, 10, 30, 100)
BUDGETS = {"quadratic-64": 10_000, "quadratic-256": 30_000, "quadratic-1024": 60_000}
BUDGET = 4000
LEFT_OUT = {"worst-case"}  # of dimension two, and its ITD floor is what it is for


def row(name: str) -> tuple[float, float] | None:
    """Print one problem's line; the ratios of cost and time."""
    shipped = load(name)
    begin = time.perf_counter()
    found = compare(
        shipped.problem,
        shipped.x0,
        shipped.y0,
        N=LOOPS,
        Q=LOOPS,
        seeds=(0,),
        budget=BUDGETS.get(name, BUDGET),
        certificates=False,
        progress=False,
    )
    assert found.grid is not None
    auto = next(scheme for scheme in found.schemes if scheme.outer_step is None)
    fixed = min(
        (scheme for scheme in found.schemes if scheme.name.endswith("loop AID")),
        key=lambda scheme: scheme.cost,
    )
    i, j = np.unravel_index(np.argmin(found.grid.cost), found.grid.cost.shape)
    best = float(min(found.grid.cost[i, j], fixed.cost))
    cost = auto.cost / best
    seconds = auto.to_target("seconds") / fixed.to_target("seconds")
    print(
        f"| {name} | {found.problem['dim_x']} | {found.problem['dim_y']} | "
        f"{found.grid.N[i]}, {found.grid.Q[j]} | {best:.0f} | {auto.cost:.0f} | {cost:.2f} | "
        f"{seconds:.2f} | {auto.status} |  <!-- {time.perf_counter() - begin:.0f} s -->",
        flush=True,
    )
    return (cost, seconds) if math.isfinite(best) and math.isfinite(auto.cost) else None


def main() -> None:
    """Print the table in Markdown and the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", help="names; all that ship but MNIST if none")
    names = parser.parse_args().problems or [
        name for name in catalogue() if name not in LEFT_OUT and "mnist" not in name
    ]
    print(
        "| problem | dim x | dim y | best N, Q | its cost | cost of auto | ratio | of seconds | "
        "auto |\n|---|---|---|---|---|---|---|---|---|"
    )
    ratios = [found for name in names if (found := row(name)) is not None]
    if ratios:
        costs, seconds = np.transpose(ratios)
        print(
            f"\nmedian ratio of cost {np.median(costs):.2f}, largest {np.max(costs):.2f}; "
            f"of seconds {np.median(seconds):.2f}, largest {np.max(seconds):.2f}"
        )


if __name__ == "__main__":
    main()
