"""Figure 1: AID on MNIST with N, Q ∈ {1, 20}², as printed and with outer steps that move x."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from biloop.paper import figure1_tables as tables
from biloop.paper.figure1_claims import claims
from biloop.paper.figure1_data import FORMULATIONS, Sizes, load
from biloop.paper.figure1_runs import LOOPS, Budgets, Grid, Runs, Steps, cost
from biloop.paper.figure1_tables import Found
from biloop.paper.reports.figure1 import draw_moving, draw_printed, draw_ridge
from biloop.paper.reports.section import Picture, Section
from biloop.paper.target import Options, Outcome, Target
from biloop.paper.work import Work

NAME = "reproduction_figure1"
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
    sizes, _ = QUICK if options.quick else FULL
    load(sizes, options.data)


def run(options: Options, work: Work) -> Outcome:
    """Tune on the first seed, then run all seeds with what was chosen."""
    sizes, budgets = QUICK if options.quick else FULL
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
            curves[formulation, kind, loops] = _columns(found, lane, loops)
            if formulation == "cleaning":
                columns = curves[formulation, kind, loops]
                columns["seconds"] = columns["outer iterations"] * seconds[loops]
    references = _mean_references([runs.references(seed) for seed in seeds])
    return _outcome(Found(sizes, budgets, seeds, GRIDS, tuned, chosen, curves, references, seconds))


def _best(grid: Grid, value: np.ndarray) -> Steps:
    """The step sizes with the least validation loss; the first of equals."""
    i, j = np.unravel_index(np.argmin(value), value.shape)
    return Steps(grid.inner[i], grid.outer[j])


def _columns(
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


def _outcome(found: Found) -> Outcome:
    pictures = (
        Picture(f"{NAME}_printed", tables.PRINTED_CAPTION),
        Picture(f"{NAME}_moving", tables.MOVING_CAPTION),
        Picture(f"{NAME}_ridge", tables.RIDGE_CAPTION),
    )
    section = Section(
        target=FIGURE1.name,
        title=FIGURE1.title,
        method=tables.method(found),
        claims=claims(found),
        tables=tables.tables(found),
        pictures=pictures,
        results={"references": found.references, "rows": records(found)},
    )
    by_kind = {key: {loops: found.means(*key, loops) for loops in LOOPS} for key in GRIDS}
    drawings = (
        draw_printed(by_kind["cleaning", "printed"]),
        draw_moving(by_kind["cleaning", "large"], found.references),
        draw_ridge(by_kind["ridge", "printed"], by_kind["ridge", "large"]),
    )
    named = {picture.name: each for picture, each in zip(pictures, drawings, strict=True)}
    return Outcome(section, named, records(found))


def records(found: Found) -> list[dict[str, Any]]:
    """A row for each point of each curve and each seed."""
    rows = []
    for (formulation, kind, (N, Q)), columns in found.curves.items():
        step = found.chosen[formulation, kind, (N, Q)]
        head = {"formulation": formulation, "grid": kind, "N": N, "Q": Q, **step._asdict()}
        shared = [n for n in ("k", "gradients", "products", "seconds") if n in columns]
        own = [name for name, column in columns.items() if np.ndim(column) == 2]
        for i, seed in enumerate(found.seeds):
            for at in range(len(columns["k"])):
                row = {name: columns[name][at].item() for name in shared}
                row |= {name: columns[name][i, at].item() for name in own}
                rows.append({**head, "seed": seed, **row})
    return rows


FIGURE1 = Target(
    "figure1",
    "Figure 1: AID on MNIST",
    minutes=15.0,
    quick_minutes=0.8,
    run=run,
    prepare=prepare,
)
