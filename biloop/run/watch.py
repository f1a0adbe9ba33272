"""A value that a run does not see, measured now and then: the best point by it, and when to stop.

Measuring is outside of cost, clock and state: x is looked at by the method on a copy of its state,
so that the y that is judged is the one that belongs to x.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import PyTree

from biloop.loops.results import FIRST_FAILURE, Status
from biloop.problem.variables import thawed
from biloop.run.arguments import number
from biloop.run.buffers import copied
from biloop.run.engine import Engine
from biloop.run.outcome import Best
from biloop.run.processes import ALONE, Processes
from biloop.run.sampling import resting
from biloop.schedules.arguments import as_function

Watch = Callable[[PyTree, PyTree], Any]


class Watcher:
    """Measures `watch(x, y)` after every so many steps; without a function it does nothing.

    `notes` are the names of the values and the measurements (k, values), and `point` the x and y of
    the smallest first value: together all that a checkpoint needs.
    """

    def __init__(
        self, watch: Watch | None, every: int, patience: int | None, processes: Processes = ALONE
    ) -> None:
        """Refuse what cannot be called, and a patience with nothing to wait for."""
        watch = as_function("watch", "x and y", 2)(watch)
        if patience is not None and watch is None:
            raise ValueError(f"patience={patience} needs something to watch: give watch=.")
        for name, value in (("watch_every", every), ("patience", patience)):
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if not (value is None or (whole and value >= 1)):
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
        self._watch, self._every, self._patience = watch, every, patience
        self._processes = processes
        self.names: list[str] = []
        self.rows: list[list[float]] = []
        self.point: tuple[PyTree, ...] = ()

    @property
    def parts(self) -> dict[str, Any]:
        """What tells this watcher from another, for the fingerprint of a run."""
        return {} if self._watch is None else {"watch": [inspect.unwrap(self._watch), self._every]}

    @property
    def notes(self) -> list[Any]:
        """What was measured, as JSON has it."""
        return [self.names, self.rows]

    def begin(self, engine: Engine) -> None:
        """Make room for the best point, so that a checkpoint has always the same shape."""
        if self._watch is not None:
            self.point = copied((engine.state.x, engine.state.method.y))

    def restore(self, point: tuple[PyTree, ...], notes: list[Any]) -> None:
        """Go on where a checkpoint ends."""
        if self._watch is not None:
            self.point = point
            self.names[:], self.rows[:] = notes

    def steps_until_due(self, k: int, steps: int) -> int:
        """How far the run may go before it must be measured."""
        return steps - k if self._watch is None else self._every - k % self._every

    def measure(self, engine: Engine) -> None:
        """Measure where the run is, if it is time."""
        if self._watch is None or engine.k % self._every or self._is_measured(engine.k):
            return
        k = engine.k  # which a look counts on
        problem, method, _ = engine.shared
        if method.sampled is not None:  # whose y belongs to no single x
            y = resting(method, problem, engine.state.x, engine.state.method)
            self._measure(k, engine.state.x, y)
            return
        with engine.aside():
            state, _ = engine.evaluate()
            self._measure(k, state.x, state.method.y)

    def end(self, engine: Engine, y: PyTree) -> None:
        """Measure the end of a run, with the y that belongs to its x."""
        k = engine.steps_of()
        if self._watch is not None and not self._is_measured(k):
            self._measure(k, engine.state.x, y)

    @property
    def exhausted(self) -> bool:
        """Whether the last `patience` measurements brought nothing smaller."""
        return self._patience is not None and self._since_best >= self._patience

    def is_small(self, engine: Engine, epsilon: float | None) -> bool:
        """Whether what was measured here is at most epsilon."""
        return epsilon is not None and self._is_measured(engine.k) and self.rows[-1][1] <= epsilon

    def verdict(self, engine: Engine, epsilon: float | None) -> Status | None:
        """Whether what was measured ends the run: it is small enough, or does not get smaller."""
        if self.is_small(engine, epsilon):
            return Status.CONVERGED
        return Status.STOPPED if self.exhausted else None

    @property
    def remark(self) -> str:
        """Why a run was stopped that was stopped for want of patience."""
        if not self.exhausted:
            return ""
        k, value = self.rows[self._best][:2]
        if np.isnan(value):
            return f"The watched value was NaN in all of {len(self.rows)} measurements."
        return (
            f"The watched value was smallest at k = {int(k)}, {value:.6g}; the last "
            f"{self._since_best} measurements were not smaller."
        )

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """All measurements: k and a column for each value."""
        if self._watch is None:
            return {}
        table = np.array(self.rows, np.float64).reshape(len(self.rows), 1 + len(self.names))
        columns = dict(zip(self.names, table[:, 1:].T, strict=True))
        return {"k": table[:, 0].astype(np.int64)} | columns

    def best(self, engine: Engine, y: PyTree, value: float) -> Best:
        """The point with the smallest watched value; where nothing was measured that of f."""
        if not self.rows:
            return _last_accepted(engine, Best(engine.state.x, y, engine.steps_of(), value))
        (x, y), (k, value, *_) = self.point, self.rows[self._best]
        return Best(x, y, int(k), value)

    @property
    def _best(self) -> int:
        values = np.array([row[1] for row in self.rows])
        return int(np.argmin(np.where(np.isnan(values), np.inf, values)))

    @property
    def _since_best(self) -> int:
        return len(self.rows) - 1 - self._best if self.rows else 0

    def _is_measured(self, k: int) -> bool:
        return bool(self.rows) and self.rows[-1][0] == k

    def _measure(self, k: int, x: PyTree, y: PyTree) -> None:
        x, y = copied((x, y))  # which belong to nobody else: the function may keep them
        found: list[dict[str, float]] = []
        watch = self._watch
        assert watch is not None
        # What fails in one process fails in all: the others would wait for it.
        self._processes.together(lambda: found.append(_values(watch(thawed(x), thawed(y)))))
        self.names[:] = found[0]
        self.rows.append([float(k), *found[0].values()])
        if self._since_best == 0:
            self.point = (x, y)


def _values(found: Any) -> dict[str, float]:
    """The numbers that were measured, by name; the first is the one to be small."""
    if not isinstance(found, Mapping):
        found = {"value": found}
    if not found or "k" in found:
        raise ValueError(f"watch must return a number or a dict of named numbers, got {found!r}.")
    return {str(name): number(value, f"watch's {name}") for name, value in found.items()}


def _last_accepted(engine: Engine, last: Best) -> Best:
    """The end of a run; or the point that its outer step would go back to, if f is smaller there.

    A run that ends at its budget ends at a trial that has not been judged.
    """
    columns = engine.records[0].columns()
    judged = (columns["result"] != Status.UNDONE) & (columns["result"] < FIRST_FAILURE)
    if engine.went_back and judged.any():
        return last._replace(k=int(columns["k"][judged][-1]))
    point = engine.shared.outer.accepted(engine.state.outer)
    if point is None or not np.isfinite(point[1]) or last.value <= float(point[1]):
        return last
    with engine.aside():
        engine.state = engine.state._replace(x=point[0])
        state, row = engine.evaluate()
    return Best(state.x, state.method.y, int(columns["k"][judged][-1]), float(row.value))
