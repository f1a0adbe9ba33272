"""sweep: from a grid of settings to a table of runs, batch by batch."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from biloop.loops.results import Status
from biloop.oracles import Cost
from biloop.run.arguments import as_plain, check_arguments, check_order, refuse_several
from biloop.run.checkpoint import Checkpoint
from biloop.run.goal import Goal
from biloop.run.interrupt import interruptible
from biloop.run.outcome import Run, make_run
from biloop.run.progress import ProgressLine, duration
from biloop.run.record import Record
from biloop.run.sampling import check_sampled
from biloop.run.step import first_state
from biloop.run.trace import Trace
from biloop.sweeps.axes import label_cells, make_axes
from biloop.sweeps.batches import Program, programs
from biloop.sweeps.cells import Cell, make_cells
from biloop.sweeps.lanes import run_batch
from biloop.sweeps.plan import PlanFolder, Planned, halve, make_plan
from biloop.sweeps.table import RESULTS, Sweep


def sweep(
    problem: Any,
    x0: Any,
    y0: Any,
    method: Any,
    *,
    over: Mapping[Any, Any] | None = None,
    seeds: Iterable[int] | None = None,
    outer: Any = None,
    steps: int,
    v0: Any = None,
    epsilon: float | None = None,
    budget: int | Cost | None = None,
    batch: int | None = None,
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = 1000,
) -> Sweep:
    """`solve` for every cell of a grid, side by side in one compiled program.

    `over` maps paths to values: "inner.step_size" and the like lead into the method, "outer",
    "x0", "y0", "v0", "method" and "problem" are the arguments themselves, and
    "problem.inner_data[1]" is a part of one. A tuple of paths varies them together. With `seeds`,
    problem, x0, y0 and v0 may be functions of the seed, an integer, and a method that draws rows
    has `jax.random.fold_in(key, seed)` in the place of its key.

    Each cell ends like a run of `solve` with the same `steps`, `epsilon` and `budget`; one that
    fails is marked and does not touch the others. `batch` is the number of cells side by side
    (None: as many as fit into half of the free memory). `checkpoint` names a folder from which the
    same call goes on where it was killed; a batch is saved after every `every` outer steps and at
    its end. Ctrl-C ends the sweep with what was done.

    Parameters
    ----------
    problem, x0, y0, method
        As for `solve`, or functions of the seed (the method excepted).
    over : mapping, optional
        Paths to lists of values.
    seeds : iterable of int, optional
        An axis more.
    outer : number, "auto", optax transformation or OuterStep
        As for `solve`.
    steps : int
        The most outer steps of a cell.
    v0, epsilon, budget
        As for `solve`, for each cell.
    batch : int, optional
        Cells side by side.
    progress : bool, optional
        Show a line on standard error.
    checkpoint : folder, optional
    every : int
        Outer steps between two checkpoints.

    Returns
    -------
    Sweep
        `sweep["value"]` with an axis for each path, and one of steps; `sweep.table`,
        `sweep.best()`, `sweep.runs`.

    Examples
    --------
    >>> method = bl.schemes.n_q_loop(5, 5, inner_step=0.1, linear_step=0.1)
    >>> over = {"inner.step_size": [0.1, 0.3], "outer": [0.1, 0.3, 1.0]}
    >>> sweep = bl.sweep(problem, x0, y0, method, over=over, steps=10)
    >>> sweep["value"].shape  # with the 10 outer steps last
    (2, 3, 10)
    >>> sweep.best()["outer"]
    1.0
    """
    if batch is not None and (not isinstance(batch, int) or isinstance(batch, bool) or batch < 1):
        raise ValueError(f"batch must be an integer of at least 1, got {batch!r}.")

    check_order(problem, x0, y0, method)

    def check(problem: Any, method: Any) -> None:
        check_arguments(problem, method, steps, epsilon, budget, None, every)

    axes = make_axes(over, seeds, taken=RESULTS)
    cells = make_cells(Cell(problem, method, outer, x0, y0, v0), axes, check)
    instead = "Give each process cells and data of its own, or call solve cell by cell."
    refuse_several("sweep", cells, instead)
    served = programs(cells)
    for program in served:
        cell = cells[program.indices[0]]
        check_sampled(cell.method, cell.outer, epsilon, None, cell.problem)
        # Refuses what does not fit together.
        first_state(cell.settings, cell.x0, cell.y0, cell.v0)

    labels = label_cells(axes)
    folder = PlanFolder(checkpoint, labels, served)
    plan = folder.restore() or make_plan(served, batch)
    folder.save(plan)
    goal = Goal(int(steps), as_plain(epsilon), budget)
    with ProgressLine(progress) as line, interruptible() as caught:
        watch = _Watch(line, caught, len(cells))
        saving = partial(folder.checkpoint, goal=goal, every=int(every))
        runs = _run_plan(plan, folder, saving, served, cells, goal, watch, may_split=batch is None)
    return Sweep(
        axes,
        tuple(
            _named(runs[i] if i in runs else _not_started(cell), label)
            for i, (cell, label) in enumerate(zip(cells, labels, strict=True))
        ),
    )


class _Watch:
    """Shows how far the sweep is, and looks for Ctrl-C."""

    def __init__(self, line: ProgressLine, caught: list[int], cells: int) -> None:
        self._line, self._caught, self._cells = line, caught, cells
        self._began = time.monotonic()

    @property
    def interrupted(self) -> bool:
        return bool(self._caught)

    def update(self, finished: int, running: int, k: int, steps: int) -> None:
        done = (finished + running * k / steps) / self._cells
        left = duration((time.monotonic() - self._began) * (1 - done) / done)
        self._line.show(f"cells {finished}/{self._cells}  {running} at k {k}/{steps}  {left} left")


def _run_plan(
    plan: list[Planned],
    folder: PlanFolder,
    saving: Callable[..., Checkpoint],
    served: Sequence[Program],
    cells: Sequence[Cell],
    goal: Goal,
    watch: _Watch,
    may_split: bool,
) -> dict[int, Run]:
    """The runs by the index of their cell, as far as they came before Ctrl-C."""
    runs: dict[int, Run] = {}

    def interrupted(k: int) -> bool:
        watch.update(len(runs), len(here.indices), k, goal.steps)
        return watch.interrupted

    while len(runs) < len(cells) and not watch.interrupted:
        here = next(planned for planned in plan if planned.indices[0] not in runs)
        batch = served[here.program].batch(here.indices, here.width)
        saved = saving(here, batch=batch)
        try:
            ended = run_batch(batch, cells, goal, saved, interrupted)
        except RuntimeError as error:
            if not may_split or here.width == 1 or "RESOURCE_EXHAUSTED" not in str(error):
                raise
            plan = halve(plan, here)
            folder.save(plan)
        else:
            runs |= dict(zip(here.indices, ended, strict=True))
    return runs


def _not_started(cell: Cell) -> Run:
    state = first_state(cell.settings, cell.x0, cell.y0, cell.v0)
    return make_run(state.x, state.method, np.nan, Status.INTERRUPTED, 0, Record())


def _named(run: Run, label: dict[str, Any]) -> Run:
    name = ", ".join(f"{path}={part}" for path, part in label.items())
    return replace(run, trace=Trace(run.trace.columns, name))
