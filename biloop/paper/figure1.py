"""Figure 1: AID on MNIST with N, Q ∈ {1, 20}², as printed and with outer steps that move x."""

from collections.abc import Mapping
from itertools import product

import numpy as np

from biloop.paper.figure1_data import FORMULATIONS, Sizes, load
from biloop.paper.figure1_found import Found
from biloop.paper.figure1_runs import LOOPS, Budgets, Grid, Runs, Steps, cost
from biloop.paper.target import Options
from biloop.paper.work import Work

FULL = Sizes("mnist", 20_000, 5_000, 10_000), Budgets(1_200, 600, 250, 750, 24, 800)
QUICK = Sizes("digits", 1_000, 297, 500), Budgets(1_200, 600, 250, 750, 12, 400)
KINDS = ("printed", "large")
PRINTED_STEPS = (0.1, 0.01, 0.001)
# All grids have nine pairs, so that one compiled program serves all of a formulation.
GRIDS: Mapping[tuple[str, str], Grid] = {
    ("cleaning", "printed"): Grid(PRINTED_STEPS, PRINTED_STEPS, from_zero=False),
    ("cleaning", "large"): Grid(PRINTED_STEPS, (1e3, 1e4, 1e5), from_zero=True),
    ("ridge", "printed"): Grid(PRINTED_STEPS, PRINTED_STEPS, from_zero=False),
    ("ridge", "large"): Grid(PRINTED_STEPS, (1.0, 10.0, 100.0), from_zero=False),
}


def prepare(options: Options) -> None:
    """Look for the data."""
    load(_chosen(options)[0], options.data)


def run(options: Options, work: Work) -> Found:
    """Tune on the first seed, then run all seeds with what was chosen."""
    sizes, budgets = _chosen(options)
    seeds = options.chosen_seeds()
    runs = Runs(work, load(sizes, options.data), sizes, budgets)
    seconds = runs.seconds(seeds[0])
    tuned = {
        (*key, loops): runs.tune(key[0], loops, grid, seeds[0])
        for key, grid in GRIDS.items()
        for loops in LOOPS
    }
    chosen = {key: _best(GRIDS[key[:2]], value) for key, value in tuned.items()}
    curves: dict[tuple[str, str, tuple[int, int]], dict[str, np.ndarray]] = {}
    for formulation, loops in product(FORMULATIONS, LOOPS):
        lanes = [
            (chosen[formulation, kind, loops], GRIDS[formulation, kind].from_zero) for kind in KINDS
        ]
        found = [runs.final(formulation, loops, seed, lanes) for seed in seeds]
        for lane, kind in enumerate(KINDS):
            curves[formulation, kind, loops] = columns_of(found, lane, loops)
            if formulation == "cleaning":
                columns = curves[formulation, kind, loops]
                columns["seconds"] = columns["outer iterations"] * seconds[loops]
    references = _mean_references([runs.references(seed) for seed in seeds])
    return Found(sizes, budgets, seeds, GRIDS, tuned, chosen, curves, references, seconds)


def _chosen(options: Options) -> tuple[Sizes, Budgets]:
    return QUICK if options.quick else FULL


def _best(grid: Grid, value: np.ndarray) -> Steps:
    """The step sizes with the least validation loss; the first of equals."""
    i, j = np.unravel_index(np.argmin(value), value.shape)
    return Steps(grid.inner[i], grid.outer[j])


def columns_of(
    found: list[dict[str, np.ndarray]], lane: int, loops: tuple[int, int]
) -> dict[str, np.ndarray]:
    """Quantities with a leading axis for the seeds, beside what was spent until each point."""
    N, Q = loops
    steps = found[0]["k"] + 1
    quantities = {
        name: np.stack([each[name][lane] for each in found]) for name in found[0] if name != "k"
    }
    spent = {"k": found[0]["k"], "outer iterations": steps}
    spent |= {"gradients": steps * (N + 2), "products": steps * (Q + 1), "cost": steps * cost(N, Q)}
    return quantities | spent


def _mean_references(found: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        name: {q: float(np.mean([each[name][q] for each in found])) for q in found[0][name]}
        for name in found[0]
    }
