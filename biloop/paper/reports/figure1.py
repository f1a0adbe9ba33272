"""Figure 1 for readers: how it was run, tables, and three drawings."""

from typing import Any

import numpy as np

from biloop.paper.figure1_claims import claims
from biloop.paper.figure1_found import NAMES, Found, Key, influence
from biloop.paper.figure1_runs import FIXED_COST, FIXED_K, LOOPS
from biloop.paper.reports.figure1_plot import draw_moving, draw_printed, draw_ridge
from biloop.paper.section import Picture, Table
from biloop.paper.target import Outcome
from biloop.schedules.arguments import short

PRINTED = Picture(
    "reproduction_figure1_printed",
    "Data cleaning with step sizes of the printed grid, mean over the seeds: training loss (on the "
    "noisy labels) and test loss against seconds, gradients, products and outer iterations. "
    "Seconds are those of a run alone on the machine named below.",
)
MOVING = Picture(
    "reproduction_figure1_moving",
    "Data cleaning with outer step sizes that move x, W from 0, mean over the seeds; dotted: "
    "weights that are not learned, trained to the end. Right: the mean weight σ(x_i) of training "
    "samples with right and with wrong labels.",
)
RIDGE = Picture(
    "reproduction_figure1_ridge",
    "The text's formulation with one penalty λ = exp(x), mean over the seeds that stayed finite.",
)


def report(found: Found) -> Outcome:
    """All of it."""
    by_kind = {key: {each: found.means(*key, each) for each in LOOPS} for key in found.grids}
    records = _records(found)
    return Outcome(
        method=_method(found),
        claims=claims(found),
        tables=_tables(found),
        drawings=(
            (PRINTED, draw_printed(by_kind["cleaning", "printed"])),
            (MOVING, draw_moving(by_kind["cleaning", "large"], found.references)),
            (RIDGE, draw_ridge(by_kind["ridge", "printed"], by_kind["ridge", "large"])),
        ),
        results={"references": found.references, "rows": records},
        records=records,
        seeds=found.seeds,
    )


def _method(found: Found) -> tuple[str, ...]:
    """How it was run."""
    sizes, budgets = found.sizes, found.budgets
    data = "MNIST" if sizes.data == "mnist" else "scikit-learn's digits, in place of MNIST"
    large = found.grids["cleaning", "large"]
    return (
        f"**Data.** {data}: {sizes.train} training, {sizes.validation} validation and {sizes.test} "
        f"test samples; the labels of 10 % of the training samples are drawn anew, uniformly and "
        "once. Pixels are centred and scaled to standard deviation one, as in the code behind the "
        "paper. Seeds draw samples, noise and W. float32, full batches, warm starts of y and v "
        "(Algorithm 1), η = α.",
        "**Two formulations.** The text has one penalty: g = mean CE + ½λ‖W‖² with λ = exp(x), "
        "x_0 = −4.6. The code behind the paper (that of Ji et al. and Yang et al.) does data "
        "hyper-cleaning: g = mean σ(x_i) CE_i + 0.001‖W‖², a weight for each training sample, "
        "x_0 = 0. Both are run. That code applies the label noise anew at every visit of a sample, "
        "and its linear solver is not the Neumann sum; here the paper is implemented. W starts "
        "normal with standard deviation 0.447, as in that code.",
        "**Step sizes.** α = η and β are chosen from {0.1, 0.01, 0.001}² as printed, for each "
        f"(N, Q) by the least validation loss after Gc + MV = {budgets.tuning} on the first seed. "
        "A second choice is made from outer step sizes that move x: for cleaning, where ∂Φ/∂x_i is "
        f"of the order 1/n, β from {_list(large.outer)} and α as printed, W from 0, "
        f"by the validation loss after Gc + MV = {budgets.moving}; for one penalty β from "
        f"{_list(found.grids['ridge', 'large'].outer)}. Final runs have Gc + MV = {budgets.final} "
        f"(cleaning) and {budgets.ridge} (one penalty). Seconds are k times the measured time of "
        "one outer step of a run alone; the runs themselves go side by side.",
    )


def _tables(found: Found) -> tuple[Table, ...]:
    """Step sizes, the printed grid, the grid that moves x, and the other formulation."""
    return (_steps(found), _printed(found, "cleaning"), _moving(found), _printed(found, "ridge"))


def _steps(found: Found) -> Table:
    rows = []
    for formulation, kind in found.grids:
        for loops in LOOPS:
            key = (formulation, kind, loops)
            step, value = found.chosen[key], found.tuned[key]
            failed = int(np.sum(~np.isfinite(value)))
            cells = f"{step.inner:g}", f"{step.outer:g}", short(float(value.min()), 4)
            more = _influence(found, key), f"{failed} of {value.size}"
            rows.append((formulation, kind, NAMES[loops], *cells, *more))
    head = ("formulation", "grid", "loops (N, Q)", "α = η", "β", "validation loss")
    caption = "Step sizes chosen, on the first seed"
    return Table(caption, (*head, "influence of β", "failed"), tuple(rows))


def _influence(found: Found, key: Key) -> str:
    change = influence(found, key)
    return f"{100 * change:.2g} %" if np.isfinite(change) else "some fail"


def _printed(found: Found, formulation: str) -> Table:
    places, head = [("k", float(FIXED_K)), ("cost", float(FIXED_COST))], []
    if formulation == "cleaning":
        places.append(("seconds", found.common_seconds("printed")))
        head.append(f"{short(places[-1][1], 2)} seconds")
    rows = []
    for loops in LOOPS:
        key = (formulation, "printed", loops)
        test = [found.at(*key, "test_loss", where, value) for where, value in places]
        test += [found.last(*key, "test_loss"), found.at(*key, "train_loss", "cost", FIXED_COST)]
        accuracy = f"{found.at(*key, 'accuracy', 'cost', FIXED_COST):.1%}"
        moved = short(found.last(*key, "moved"), 2)
        failed = f"{found.failures(*key)} of {len(found.seeds)}"
        rows.append((NAMES[loops], *(short(value, 4) for value in test), accuracy, moved, failed))
    first = ("loops (N, Q)", f"test loss, k = {FIXED_K}", f"Gc + MV = {FIXED_COST}")
    last = ("at the end", f"train loss, Gc + MV = {FIXED_COST}", "accuracy there")
    caption = f"{_words(formulation)}, printed grid, {found.over_seeds}"
    return Table(caption, (*first, *head, *last, "max |x − x_0|", "failed"), tuple(rows))


def _moving(found: Found) -> Table:
    rows = []
    for loops in LOOPS:
        key = ("cleaning", "large", loops)
        wrong, right = (found.last(*key, f"{word}_weight") for word in ("wrong", "right"))
        cells = (
            short(found.at(*key, "test_loss", "cost", FIXED_COST), 4),
            short(found.last(*key, "test_loss"), 4),
            f"{found.last(*key, 'accuracy'):.1%}",
            f"{wrong:.3f}",
            f"{right:.3f}",
            f"{wrong / right:.2f}",
            short(found.last(*key, "moved"), 2),
        )
        rows.append((NAMES[loops], *cells))
    for name, reference in found.references.items():
        wrong, right = reference["wrong_weight"], reference["right_weight"]
        cells = f"{reference['accuracy']:.1%}", f"{wrong:.3f}", f"{right:.3f}"
        loss = short(reference["test_loss"], 4)
        rows.append((f"weights {name}, solved", "–", loss, *cells, f"{wrong / right:.2f}", "–"))
    head = ("loops (N, Q)", f"test loss, Gc + MV = {FIXED_COST}", f"{found.budgets.final}")
    more = ("accuracy", "weight of wrong labels", "of right labels", "ratio", "max |x − x_0|")
    caption = f"Data cleaning, outer steps that move x, W from 0, {found.over_seeds}"
    return Table(caption, (*head, *more), tuple(rows))


def _words(formulation: str) -> str:
    return "Data cleaning" if formulation == "cleaning" else "One penalty"


def _list(numbers: tuple[float, ...]) -> str:
    return "{" + ", ".join(f"{number:g}" for number in numbers) + "}"


def _records(found: Found) -> list[dict[str, Any]]:
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
