"""Which cells run side by side, and the file that remembers it."""

import json
import os
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax

from biloop.run.checkpoint import Checkpoint
from biloop.run.chunk import advance
from biloop.run.files import read_npz, write_npz
from biloop.run.fingerprint import contents, fingerprint, parts_of_run
from biloop.run.goal import Goal
from biloop.run.step import first_state
from biloop.schedules.arguments import as_folder
from biloop.sweeps.batches import Batch, Program, even_split
from biloop.sweeps.cells import Cell
from biloop.sweeps.lanes import start
from biloop.sweeps.memory import lanes_that_fit, peak_bytes, planned_given, tree_bytes

FILE = "sweep.npz"


class Planned(NamedTuple):
    """A batch before it runs: the number of its program, its cells, and how many lanes it has."""

    program: int
    indices: tuple[int, ...]
    width: int


def make_plan(programs: Sequence[Program], batch: int | None) -> list[Planned]:
    """Batches of at most `batch` cells, or of as many as fit into memory."""
    plan = []
    for number, program in enumerate(programs):
        groups = program.groups()
        largest = max(groups, key=len)
        most = batch or lanes_that_fit(partial(_needs, program, largest), len(largest))
        for group in groups:
            plan += _in_batches(number, group, most)
    return plan


def halve(plan: list[Planned], here: Planned) -> list[Planned]:
    """The plan with narrower batches from `here` on: what is as wide would not fit either."""
    first, half = plan.index(here), -(-here.width // 2)
    rest = [
        _in_batches(batch.program, batch.indices, half)
        if batch.program == here.program
        else [batch]
        for batch in plan[first:]
    ]
    return plan[:first] + [batch for batches in rest for batch in batches]


def _in_batches(program: int, indices: Sequence[int], most: int) -> list[Planned]:
    parts = even_split(indices, most)
    return [Planned(program, part, len(parts[0])) for part in parts]


def _needs(program: Program, indices: Sequence[int], width: int) -> int:
    """The bytes for so many lanes, found without making them: what is stacked, and the steps."""
    varying = jax.eval_shape(lambda: program.batch(indices[:width], width).varying)
    batch = program.batch(indices[:1], 1)._replace(width=width, varying=varying)
    state = eqx.filter_eval_shape(start, batch)
    given = planned_given(batch.shared.settings, varying.settings, width)
    traced, *_ = eqx.filter_make_jaxpr(advance.function)(given, state)
    return tree_bytes((varying, state)) + peak_bytes(traced.jaxpr)


class PlanFolder:
    """Where a sweep keeps its plan and a checkpoint for each batch; without a folder, nowhere.

    Memory may be shorter when the sweep is resumed, and other batches would round otherwise.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        labels: list[dict[str, Any]],
        programs: Sequence[Program],
    ) -> None:
        self._folder = as_folder("checkpoint")(folder)
        groups = [program.groups() for program in programs]
        self._programs = {i: n for n, each in enumerate(programs) for i in each.indices}
        self._grid = json.loads(json.dumps({"labels": labels, "groups": groups}))

    def restore(self) -> list[Planned] | None:
        """The plan that the same sweep made before, or None."""
        if self._folder is None:
            return None
        try:
            _, meta = read_npz(self._folder / FILE)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ValueError(f"{error}. Delete the folder to start the sweep anew.") from error
        if meta.get("grid") != self._grid:
            raise ValueError(
                f"{self._folder} belongs to another sweep, with other axes or another method than "
                f"was passed now. Use another folder, or delete it to start anew."
            )
        if not self._is_plan(meta.get("plan")):
            raise ValueError(
                f"{self._folder / FILE} is damaged: it has no plan of these {len(self._programs)} "
                f"cells. Delete the folder to start the sweep anew."
            )
        return [Planned(n, tuple(indices), width) for n, indices, width in meta["plan"]]

    def _is_plan(self, found: Any) -> bool:
        """Whether each cell is in one batch, with others of its program, and no batch is wider.

        A file may hold anything; a width is how much memory is taken.
        """
        try:
            cells = sorted(i for _, indices, _ in found for i in indices)
            return cells == sorted(self._programs) and all(
                {n} == {self._programs[i] for i in indices}
                and type(width) is int
                and len(indices) <= width <= len(cells)
                for n, indices, width in found
            )
        except (TypeError, ValueError):  # lists of other things than lists of numbers
            return False

    def save(self, plan: list[Planned]) -> None:
        """Remember a new plan."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_npz(self._folder / FILE, {}, {"grid": self._grid, "plan": plan})

    def checkpoint(self, planned: Planned, goal: Goal, every: int, batch: Batch) -> Checkpoint:
        """Where this batch is saved."""
        folder = None
        if self._folder is not None:
            folder = self._folder / f"batch-{planned.indices[0]}-{planned.width}"
        identity = {} if folder is None else fingerprint(lambda: _parts(batch, goal))
        return Checkpoint(folder, every, identity)


def _parts(batch: Batch, goal: Goal) -> dict[str, Any]:
    """What makes a batch: the programs of its first cell, which all share, and all their arrays."""
    of_first = jax.tree.map(lambda leaf: leaf[0], batch.varying)
    first: Cell = eqx.combine(of_first, batch.shared)
    run = parts_of_run(first.settings, first_state(first.settings, first.x0, first.y0, first.v0))
    for name in ("start", "state"):
        del run[name]
    arrays = {
        "data" if name == "problem" else name: contents(
            (getattr(batch.shared, name), getattr(batch.varying, name))
        )
        for name in Cell._fields
    }
    return run | arrays | {"epsilon": goal.epsilon, "budget": goal.budget}
