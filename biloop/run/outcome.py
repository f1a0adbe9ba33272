"""Run: what is handed back, with a message that says how it ended and what was noticed."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PyTree

from biloop.loops.results import Status
from biloop.oracles import Cost
from biloop.problem.variables import thawed
from biloop.run.record import Record
from biloop.run.trace import Trace

_GROWTH = 1e3  # of a residual over a run, which is told
_FEW = 5  # outer steps say little of where f goes
_RISE = 0.5  # of the range of f: a rise that is told


class Best(NamedTuple):
    """A point of a run, after how many steps it was reached, and the value by which it is best."""

    x: PyTree
    y: PyTree
    k: int
    value: float


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run: where it ended, why, what it cost, and its trace.

    `x` is the last iterate, `y` and `v` the inner solution and the adjoint that the method finds
    there (None for a method without one), and `value` is f(x, y). For these the method is called
    once more; where it draws rows they are those of its last step. `best` is the point with the
    smallest watched value, and `watched` has all that were measured, by column: "k" and "value", or
    the names that the function gave. Where nothing is watched `best` is the end of the run, or the
    point before it where the end is a trial that would have been taken back.
    """

    x: PyTree
    y: PyTree
    v: PyTree
    value: float
    status: Status
    message: str
    cost: Cost
    trace: Trace
    steps: int
    seconds: float
    compile_seconds: float
    best: Best | None = None
    watched: dict[str, np.ndarray] = field(default_factory=dict)

    def __repr__(self) -> str:
        """The outcome in one line; the arrays are in the fields."""
        return (
            f"Run({self.status.name}, steps={self.steps}, value={self.value:.6g}, "
            f"gradients={self.cost.gradients}, products={self.cost.products}, "
            f"seconds={self.seconds:.3g})"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        # For notebooks: nothing else here knows how a run is presented.
        from biloop.report import notebook

        facts = {
            "message": self.message,
            "value": self.value,
            "outer steps": self.steps,
            "gradients": self.cost.gradients,
            "products": self.cost.products,
            "seconds": f"{self.seconds:.3g} (compilation {self.compile_seconds:.3g})",
        }
        return notebook.summary(f"Run: {self.status.name}", facts, self.trace.curves)


def make_run(
    x: PyTree,
    method_state: Any,
    value: float,
    status: Status,
    steps: int,
    record: Record,
    *,
    remarks: tuple[str, ...] = (),
    label: str = "",
    y: PyTree = None,
    compile_seconds: float = 0.0,
    best: Best | None = None,
    watched: dict[str, np.ndarray] | None = None,
) -> Run:
    """What is handed back of a run that ended like this; y is that of the state unless given."""
    y = method_state.y if y is None else y
    return Run(
        x=thawed(x),
        y=thawed(y),
        v=thawed(method_state.v) if "v" in method_state._fields else None,
        value=value,
        status=status,
        message=message(status, steps, remarks, record),
        cost=record.cost,
        trace=record.trace(label),
        steps=steps,
        seconds=record.seconds,
        compile_seconds=compile_seconds,
        best=_thawed_best(Best(x, y, steps, value) if best is None else best),
        watched=watched or {},
    )


def _thawed_best(best: Best) -> Best:
    return best._replace(x=thawed(best.x), y=thawed(best.y))


def message(status: Status, k: int, remarks: tuple[str, ...], record: Record) -> str:
    """The sentence of the status, where it was a failure, and what else there is to say."""
    at = f"Outer step k = {k}: " if status.failed else ""
    return " ".join(filter(None, (at + status.sentence, *remarks, *_notes(status, record))))


def _notes(status: Status, record: Record) -> list[str]:
    results = record.columns()["result"]
    told = (
        (
            Status.NONCONVEX,
            "the inner Hessian was not positive definite, there or before, and the adjoint was "
            "damped, truncated or that of one step",
        ),
        (Status.UNCONVERGED, "a loop stopped before its residual reached the tolerance"),
        (Status.UNDONE, "the step before was taken back because it had led to a worse point"),
    )
    notes = [
        f"In {times} of {record.rows} steps {what}."
        for status, what in told
        if (times := int(np.sum(results == status)))
    ]
    if status is not Status.CONVERGED:  # of which ∇Φ was measured: its loops are good enough
        notes += [note for name in ("inner", "linear") if (note := _grown(record, name))]
    return notes + list(filter(None, [risen(record), _blind(status, record)]))


def _blind(status: Status, record: Record) -> str:
    """Nothing led anywhere: a truth about Φ, or a derivative that JAX does not see."""
    norms = record.columns()["hypergradient_norm"]
    if status.failed or len(norms) == 0 or np.any(norms != 0):  # a failed loop leaves v = 0
        return ""
    return (
        "h was exactly zero in every step: x0 is stationary, or JAX sees no way from x to f (a "
        "stop_gradient, a rounding, a comparison?)."
    )


def risen(record: Record) -> str:
    """A run that ended at its largest f: no failure, as y was new at first, but worth a word."""
    values = record.columns()["value"]
    if record.on_batches or len(values) < _FEW or not np.isfinite(values).all():
        return ""
    first, last = values[0], values[-1]
    if last < np.max(values) or not last - first > _RISE * np.ptp(values) > 0:
        return ""
    return (
        f"f rose from {first:.3g} to {last:.3g}, its largest value: unless y was far from y*(x) at "
        f"first, the outer step size is too large, or h is wrong."
    )


def _grown(record: Record, loop: str) -> str:
    """A residual that is far larger at the end than at the start: no failure, but worth a word."""
    residuals = record.columns()[f"{loop}_residual"]
    if len(residuals) < 2 or not residuals[-1] > _GROWTH * residuals[0] > 0:
        return ""
    return f"The {loop} residual grew from {residuals[0]:.3g} to {residuals[-1]:.3g}."
