"""When a run that is given no end has come to one, and when a resumed one has nothing to do."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop import vectors
from biloop.loops.results import Status
from biloop.run.chunk import budget_left
from biloop.run.engine import Engine
from biloop.run.record import Record

_WINDOW = 20  # steps in which something must become smaller
_FALLEN = 1e-4  # of the largest ‖h‖: far enough for a run that is given no end
_ENDLESS = 1e12  # times what the first step brought, and |f| there: no valley is so wide
_LESS = 0.9  # ... ‖h‖ by a tenth, or f by more than its rounding


def relative_epsilon(record: Record, x: PyTree) -> float | None:
    """ε = (share · the largest ‖h‖ so far)²: 10⁻⁴ of it in float64, 5·10⁻³ in float32.

    Points that were left again do not count: ‖h‖ may be anything there. Nor do those where the
    inner Hessian was not definite, unless there are no others: h is no ∇Φ there.
    """
    share = max(_FALLEN, vectors.eps(x) ** (1 / 3))
    columns = record.judged()
    results = columns["result"]
    counts = (results != Status.UNDONE) & (results != Status.NONCONVEX)
    counts = counts if counts.any() else results != Status.UNDONE
    norms = columns["hypergradient_norm"][counts]
    with np.errstate(over="ignore"):  # a run that diverges
        square = np.square(np.asarray(share * np.max(norms, initial=0.0), jnp.result_type(float)))
    return float(square) if np.isfinite(square) else None


def has_settled(record: Record, x: PyTree) -> bool:
    """Whether neither f nor ‖h‖ has become smaller in the last steps, beyond rounding."""
    columns = record.judged()
    # Points that were left again say nothing of where the run is.
    kept = columns["result"] != Status.UNDONE
    values, norms = columns["value"][kept], columns["hypergradient_norm"][kept]
    if len(values) < 2 * _WINDOW or not np.isfinite(values).all():
        return False
    rounding = 4 * float(jnp.finfo(vectors.accumulator(x)).eps)
    before, after = values[:-_WINDOW], values[-_WINDOW:]
    fell = before.min() - after.min() > rounding * np.abs(before).max()
    return not fell and bool(norms[-_WINDOW:].min() > _LESS * norms[:-_WINDOW].min())


def falls_for_ever(record: Record) -> str:
    """A sentence if f falls on and on where ‖h‖ does not, far beyond its first step."""
    columns = record.judged()
    kept = columns["result"] != Status.UNDONE
    values, norms = columns["value"][kept], columns["hypergradient_norm"][kept]
    if len(values) < 2 or not norms[-1] > 0.5 * norms[0]:
        return ""
    first, fell = values[0] - values[1], values[0] - values[-1]
    if not (first > 0 and fell > _ENDLESS * max(first, abs(values[0]))):
        return ""
    return (
        f"f went from {values[0]:.3g} to {values[-1]:.3g}, where ‖h‖ is {norms[-1]:.3g} and was "
        f"{norms[0]:.3g} at first."
    )


def already_over(engine: Engine, seconds: float | None) -> Status | None:
    """Why a run that comes from a checkpoint has nothing left to do, if so."""
    record, goal = engine.records[0], engine.goal
    small = -1.0 if goal.epsilon is None else goal.epsilon**0.5
    if engine.ended() is Status.CONVERGED and record.last("hypergradient_norm") <= small:
        return Status.CONVERGED
    engine.reopen()
    if engine.k >= goal.steps:
        return engine.end().status
    if record.rows and min(budget_left(goal.budget, record.cost)) <= 0:
        return Status.BUDGET_SPENT
    if seconds is not None and record.seconds >= seconds:
        return Status.TIME_SPENT
    return None
