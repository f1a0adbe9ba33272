"""Loops that size themselves beside the best of all fixed loops, on every problem that ships.

For each problem `bl.compare` tunes AID with every N and Q out of {1, 3, 10, 30, 100} (25 pairs, the
outer step size of each by racing nine and more) and runs `bl.schemes.auto()` with `outer="auto"`,
which is told nothing. What counts is what each takes to where it first is at a common target, with
∇Φ measured at every snapshot: gradients and products, and the seconds of `bl.solve` for as many
outer steps as lead there, compiled, the least of five runs or more taken in turns. The ratios are
those of the automatic method to the best fixed one (of the four schemes, each with the N and Q that
are best for it); the tuning of the fixed ones is not charged.

The last columns are what `bl.compare` says of N-loops and of Q-loops, and whether the grid of all
pairs says the same.

    python benchmarks/adaptive.py [--loops 1 10 100] [--budget B] [--accuracy A] [PROBLEM ...]
"""

import argparse
import math
import time
from typing import NamedTuple

import jax
import numpy as np

import biloop as bl
from biloop.comparison.measuring import Snapshot
from biloop.comparison.result import Outcome
from biloop.comparison.verdict import NOISE
from biloop.compilation import compiled
from biloop.methods.reference import Truth, measure
from biloop.problems import Loaded, catalogue, load
from biloop.vectors import zeros_like

LOOPS = (1, 3, 10, 30, 100)
# Gradients and products of a run: more than the best fixed pair takes to the target.
BUDGET = 2000
BUDGETS = {
    "quadratic-4": 600,
    "quadratic-256": 8000,
    "quadratic-1024": 30_000,
    "log-cosh": 600,
    "ridge": 1000,
    "logistic": 1000,
    "badly-scaled": 10_000,
    "logistic-digits": 4000,
    "cleaning-mnist": 1200,
}
COARSE = {"cleaning-mnist": (1, 10, 100)}  # an outer step of 100 gradients takes a second there
LEFT_OUT = {"worst-case", "penalty-mnist"}  # of dimension two, and a twin of penalty-digits
REPETITIONS, SECONDS = 5, 2.0  # at least, of the timed runs of a problem
AUTO = "Adaptive"
HEADER = """\
| problem | dim x | dim y | best N, Q | its cost | of auto | ratio | its ms | of auto | ratio \
| N-loop, Q-loop | grid |
|---|---|---|---|---|---|---|---|---|---|---|---|"""


class Ratios(NamedTuple):
    """Of the automatic method to the best fixed one, and whether verdict and grid agree."""

    cost: float
    seconds: float
    agree: bool


def row(
    name: str, loops: tuple[int, ...], budget: int | None = None, accuracy: float | None = None
) -> Ratios:
    """Compare on one problem and print its line."""
    shipped = load(name)
    begin = time.perf_counter()
    target = None
    if accuracy is not None:
        start = Snapshot(0, shipped.x0, shipped.y0, zeros_like(shipped.y0))
        target = accuracy * float(truth(shipped, start).size) ** 2
    found = bl.compare(
        shipped.problem,
        shipped.x0,
        shipped.y0,
        N=loops,
        Q=loops,
        seeds=(0,),
        budget=budget or BUDGETS.get(name, BUDGET),
        target=target,
        certificates=False,
        progress=False,
    )
    assert found.grid is not None
    fixed = [scheme for scheme in found.schemes if scheme.name.endswith("loop AID")]
    auto = found[AUTO]
    arrivals = {scheme.name: first_arrival(shipped, scheme) for scheme in (auto, *fixed)}
    best = min(fixed, key=lambda scheme: arrivals[scheme.name].cost)
    best_cost, auto_cost = arrivals[best.name].cost, arrivals[AUTO].cost
    seconds = least_seconds(shipped, [auto, *fixed], arrivals)
    fastest = min((seconds[s.name] for s in fixed if s.name in seconds), default=math.nan)
    automatic = seconds.get(AUTO, math.nan)

    said = [answer(found.verdict, loop) for loop in ("An N-loop", "A Q-loop")]
    cost = found.grid.cost
    by_grid = [pays(cost[1:].min(), cost[0].min()), pays(cost[:, 1:].min(), cost[:, 0].min())]
    agree = said == by_grid
    left = " and left it" if math.isinf(auto.cost) and math.isfinite(auto_cost) else ""
    ratios = Ratios(auto_cost / best_cost, automatic / fastest, agree)
    print(
        f"| {name} | {found.problem['dim_x']} | {found.problem['dim_y']} | {best.N}, {best.Q} | "
        f"{best_cost:.0f} | {auto_cost:.0f} | {ratios.cost:.2f} | {1e3 * fastest:.3g} | "
        f"{1e3 * automatic:.3g} | {ratios.seconds:.2f} | {', '.join(said)} | "
        f"{'agrees' if agree else ', '.join(by_grid)} |"
        f"  <!-- ‖∇Φ‖² ≤ {found.target:.2g}, auto {auto.status}{left}, "
        f"{time.perf_counter() - begin:.0f} s -->",
        flush=True,
    )
    return ratios


class Arrival(NamedTuple):
    """The outer steps and the cost to where a run first is at the target; ∞ if it never is."""

    steps: int
    cost: float


def first_arrival(shipped: Loaded, scheme: Outcome) -> Arrival:
    """Where the first run of a scheme first is at the target, though it may leave it again."""
    run = scheme.runs[0]
    for i, snapshot in enumerate(run.snapshots):
        found = truth(shipped, snapshot)
        norm2, value = np.asarray(float(found.size) ** 2), np.asarray(found.value)
        if found.found and scheme.target.holds(norm2, value).all():
            return Arrival(int(run.steps[i]), float(run.cost[i]))
    return Arrival(0, math.inf)


def truth(shipped: Loaded, at: Snapshot) -> Truth:
    """∇Φ and Φ where a run is, to a few per cent."""
    return _truth(shipped.problem, *jax.tree.map(jax.numpy.asarray, (at.x, at.y, at.v)))


@compiled
def _truth(problem: bl.Problem, x, y, v) -> Truth:
    return measure(problem, x, y, v, accuracy=0.1)


def least_seconds(
    shipped: Loaded, schemes: list[Outcome], arrivals: dict[str, Arrival]
) -> dict[str, float]:
    """The time of each scheme to the target, alone, compiled, the least of some in turns."""
    schemes = [scheme for scheme in schemes if math.isfinite(arrivals[scheme.name].cost)]
    seconds = dict.fromkeys((scheme.name for scheme in schemes), math.inf)
    begin, done = time.perf_counter(), 0
    while done < REPETITIONS or time.perf_counter() - begin < SECONDS:
        done += 1
        for scheme in schemes:
            again = bl.solve(
                shipped.problem,
                shipped.x0,
                shipped.y0,
                eval(scheme.code, {"bl": bl}),
                outer=scheme.outer_step or "auto",
                steps=max(1, arrivals[scheme.name].steps),
                progress=False,
            )
            seconds[scheme.name] = min(seconds[scheme.name], again.seconds)
    return seconds


def answer(verdict: list[str], loop: str) -> str:
    """What the verdict says of a loop, in a word."""
    (sentence,) = [sentence for sentence in verdict if sentence.startswith(loop)]
    words = {" pays": "pays", " does not pay": "costs", " makes no difference": "equal"}
    return next((w for start, w in words.items() if sentence.startswith(loop + start)), "open")


def pays(having: float, lacking: float) -> str:
    """The same from the cheapest pair with the loop and the cheapest without it."""
    if math.isinf(having) and math.isinf(lacking):
        return "open"
    if lacking > NOISE * having:
        return "pays"
    return "costs" if having > NOISE * lacking else "equal"


def main() -> None:
    """Print the table in Markdown and what it comes to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", help="names; all that ship but twins if none")
    parser.add_argument("--loops", nargs="+", type=int, help="lengths of loops to try")
    parser.add_argument("--budget", type=int, help="gradients and products of a run")
    parser.add_argument("--accuracy", type=float, help="‖∇Φ‖² to reach, of that at x0")
    options = parser.parse_args()
    names = options.problems or [name for name in catalogue() if name not in LEFT_OUT]
    print(HEADER, flush=True)
    rows = [
        row(name, tuple(options.loops or COARSE.get(name, LOOPS)), options.budget, options.accuracy)
        for name in names
    ]
    print(f"\n{summary(rows)}")


def summary(rows: list[Ratios]) -> str:
    """Medians, largest ratios, and how often verdict and grid agree."""
    parts = []
    for what, ratios in (
        ("cost", [row.cost for row in rows]),
        ("seconds", [row.seconds for row in rows]),
    ):
        known = [ratio for ratio in ratios if math.isfinite(ratio)]
        if known:
            parts.append(
                f"ratio of {what}: median {np.median(known):.2f}, largest {max(known):.2f}"
            )
    missed = sum(not math.isfinite(row.cost) for row in rows)
    parts.append(f"auto misses the target on {missed} of {len(rows)} problems")
    parts.append(f"verdict and grid agree on {sum(row.agree for row in rows)}")
    return "; ".join(parts)


if __name__ == "__main__":
    main()
