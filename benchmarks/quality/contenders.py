"""All that runs: the sampled schemes over a grid of step sizes and seeds, and what needs none."""

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

import biloop as bl
from benchmarks.quality.objective import Phi
from biloop.schemes import BY_NAME, TABLE

AUTO, AUTO_BATCH = "auto, all rows", "auto, batches"
JUDGES = 3  # seeds by which step sizes are chosen
MOST = 10**7  # steps: the budget ends a run


@dataclass(frozen=True)
class Grid:
    """The step sizes of y and v, and of x, and the passes after which Φ is measured."""

    inner: tuple[float, ...]
    outer: tuple[float, ...]
    passes: tuple[int, ...]
    seeds: int = 10
    batch: int = 64


# ∂Φ/∂x_i of cleaning is of the order of 1/n.
GRIDS = {
    "ijcnn1": Grid(
        (0.03, 0.1, 0.3, 1.0, 3.0), (1.0, 10.0, 1e2, 1e3, 1e4), (1, 3, 10, 30, 100, 300)
    ),
    "cleaning-mnist": Grid(
        (0.003, 0.01, 0.03, 0.1, 0.3), (1e2, 1e3, 1e4, 1e5, 1e6), (1, 3, 10, 30, 100)
    ),
    "cleaning-digits": Grid(
        (0.03, 0.1, 0.3, 1.0, 3.0), (1e1, 1e2, 1e3, 1e4, 1e5), (1, 3, 10, 30, 100)
    ),
}


def power(scheme: Any, name: str) -> float:
    """The published power of k of a step, as the defaults of its function have it."""
    default = inspect.signature(scheme.function).parameters[name].default
    return default[1] if isinstance(default, tuple) else 0.0


def method_of(name: str, step: float, batch: int) -> bl.Method:
    """A scheme with this step size for y and v, times its power of k."""
    scheme = BY_NAME[name]
    steps = [each for each in ("inner_step", "linear_step") if each in scheme.arguments]
    powers = {each: power(scheme, each) for each in steps}
    sizes = {each: (step, p) if p else step for each, p in powers.items()}
    return scheme.make(batch=batch, N=10, Q=10, **sizes)


def outer_of(name: str, step: float) -> Any:
    """The step of x, times its power of k."""
    p = BY_NAME[name].schedules[1]
    return (step, p) if p else step


def tuned(name: str, found: Any, grid: Grid, phi: Phi) -> Iterator[dict[str, Any]]:
    """For each number of passes, the best pair of step sizes with its Φ over all seeds."""
    methods = {f"{a:g}": method_of(name, a, grid.batch) for a in grid.inner}
    outers = {f"{b:g}": outer_of(name, b) for b in grid.outer}
    pairs, judges = list(product(methods, outers)), min(JUDGES, grid.seeds)
    for passes in grid.passes:
        began = time.perf_counter()
        swept = bl.sweep(
            found.problem, found.x0, found.y0, next(iter(methods.values())), steps=MOST,
            over={"method": methods, "outer": outers}, seeds=range(grid.seeds), budget=passes,
            progress=False,
        )  # fmt: skip
        ended = time.perf_counter()
        runs = [swept.sel({"method": a, "outer": b}).runs for a, b in pairs]
        judged = values(phi, [run for lane in runs for run in lane[:judges]])
        best = int(np.argmin(np.max(judged.reshape(len(runs), judges), axis=1)))
        (a, b), phis = pairs[best], values(phi, runs[best])
        failed = sum(run.status.failed for run in swept.runs)
        yield {"passes": passes, "inner": float(a), "outer": float(b), "failed": failed,
               "phi": phis.tolist()}  # fmt: skip
        print(
            f"{name:22} {passes:4} passes: Φ {np.median(phis):.6f} with {a}, {b}; {failed} of "
            f"{len(swept)} failed; {ended - began:.0f} s, and {time.perf_counter() - ended:.0f} s "
            f"for Φ",
            flush=True,
        )


def values(phi: Phi, runs: Sequence[bl.Run]) -> np.ndarray:
    """Φ at the end of each run; ∞ for one that failed."""
    value = np.full(len(runs), np.inf)
    good = [i for i, run in enumerate(runs) if not run.status.failed]
    value[good] = phi([(runs[i].x, runs[i].y) for i in good])
    return value


def untuned(name: str, found: Any, grid: Grid, phi: Phi) -> Iterator[dict[str, Any]]:
    """Φ after each outer step of `solve` with nothing set: loops that size themselves, all rows."""
    run = bl.solve(
        found.problem, found.x0, found.y0, budget=10 * grid.passes[-1], progress=False,
        watch=lambda x, y: phi([(x, y)])[0], watch_every=1,
    )  # fmt: skip
    passes = np.append(0.0, run.trace["gradients"] + run.trace["products"])[run.watched["k"]]
    print(f"{name}: Φ {run.watched['value'].min():.6f} in {passes[-1]:.0f} passes; {run.message}")
    for p, value in zip(passes, run.watched["value"], strict=True):
        yield {"passes": float(p), "phi": [float(value)]}


def untuned_on_batches(name: str, found: Any, grid: Grid, phi: Phi) -> Iterator[dict[str, Any]]:
    """The same where it begins on batches, over the seeds: runs of so many passes.

    A step on all rows that takes a run beyond them does not count: Φ is that of fewer passes then.
    """
    before = np.full(grid.seeds, phi([(found.x0, found.y0)])[0])
    for passes in (*grid.passes, 3 * grid.passes[-1]):
        runs = [
            bl.solve(
                found.problem, found.x0, found.y0, bl.schemes.auto(batch=grid.batch, key=seed),
                outer="auto", budget=passes, progress=False,
            )
            for seed in range(grid.seeds)
        ]  # fmt: skip
        within = np.array([run.cost.total < passes + 1 for run in runs])
        before = np.where(within, values(phi, runs), before)
        print(
            f"{name:22} {passes:4} passes: Φ {np.median(before):.6f}, {before.min():.6f} to "
            f"{before.max():.6f}; {np.median([run.seconds for run in runs]):.2f} s; "
            f"{runs[0].message}",
            flush=True,
        )
        yield {"passes": passes, "phi": before.tolist()}


def contenders() -> dict[str, Callable[[str, Any, Grid, Phi], Iterator[dict[str, Any]]]]:
    """All that runs, by name."""
    alone = {AUTO: untuned, AUTO_BATCH: untuned_on_batches}
    return alone | {each.name: tuned for each in TABLE if each.sampled}
