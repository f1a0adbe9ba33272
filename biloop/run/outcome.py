"""Run: what is handed back, with a message that says how it ended and what was noticed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import PyTree

from biloop.oracles import Cost
from biloop.results import Status
from biloop.run.record import Record
from biloop.run.trace import Trace

_GROWTH = 1e3  # of a residual over a run, which is told


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run: where it ended, why, what it cost, and its trace.

    `x` is the last iterate, `y` and `v` the inner solution and the adjoint that the method finds
    there (None for a method without one), and `value` is f(x, y).
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

    def __repr__(self) -> str:
        """The outcome in one line; the arrays are in the fields."""
        return (
            f"Run({self.status.name}, steps={self.steps}, value={self.value:.6g}, "
            f"gradients={self.cost.gradients}, products={self.cost.products}, "
            f"seconds={self.seconds:.3g})"
        )


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
    compile_seconds: float = 0.0,
) -> Run:
    """What is handed back of a run that ended like this."""
    return Run(
        x=x,
        y=method_state.y,
        v=method_state.v if "v" in method_state._fields else None,
        value=value,
        status=status,
        message=message(status, steps, remarks, record),
        cost=record.cost,
        trace=Trace(record.columns(), label),
        steps=steps,
        seconds=record.seconds,
        compile_seconds=compile_seconds,
    )


def message(status: Status, k: int, remarks: tuple[str, ...], record: Record) -> str:
    """The sentence of the status, where it was a failure, and what else there is to say."""
    at = f"Outer step k = {k}: " if status.failed else ""
    return " ".join(filter(None, (at + status.sentence, *remarks, *_notes(record))))


def _notes(record: Record) -> list[str]:
    results = record.columns()["result"]
    told = (
        (Status.UNCONVERGED, "a loop stopped before its residual reached the tolerance"),
        (Status.UNDONE, "the step before was taken back because it had led to a worse point"),
    )
    notes = [
        f"In {times} of {record.rows} steps {what}."
        for status, what in told
        if (times := int(np.sum(results == status)))
    ]
    return notes + [note for name in ("inner", "linear") if (note := _grown(record, name))]


def _grown(record: Record, loop: str) -> str:
    """A residual that is far larger at the end than at the start: no failure, but worth a word."""
    residuals = record.columns()[f"{loop}_residual"]
    if len(residuals) < 2 or not residuals[-1] > _GROWTH * residuals[0] > 0:
        return ""
    return f"The {loop} residual grew from {residuals[0]:.3g} to {residuals[-1]:.3g}."
