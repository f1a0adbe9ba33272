"""Why a run ends between chunks, beside what the compiled loop notices itself."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from biloop import vectors
from biloop.loops.results import Status
from biloop.run.buffers import copied
from biloop.run.certify import is_certain, kink, measured_norm, measured_slope
from biloop.run.chunk import UNLIMITED, budget_left
from biloop.run.diagnosis import far_away
from biloop.run.divergence import NO_LEVELS, DivergenceWatch
from biloop.run.engine import Engine
from biloop.run.prox_doubts import has_no_value
from biloop.run.race import Race
from biloop.run.record import Record
from biloop.run.restarts import MOST_STEPS_BACK
from biloop.run.step import Row

_EARLY = (5, 10)  # outer steps after which a run that ends by itself is looked at ...
_PATIENCE = 20  # ... and then after so many each time, however fast the machine is
_ALIKE = 0.3  # of ‖∇Φ‖: an h that is so close to it is not the cause of a standstill
_NEAR = 100.0  # times the epsilon of a run without one: where a run that stands still may end
_WINDOW = 20  # steps in which something must become smaller
_FALLEN = 1e-4  # of the largest ‖h‖: far enough for a run that is given no end
_ENDLESS = 1e12  # times what the first step brought, and |f| there: no valley is so wide
_BACK = 3  # calls of the method that bring y back, each all but a share of the way
_LESS = 0.9  # ... ‖h‖ by a tenth, or f by more than its rounding


_BIASED = (
    "There the inner Hessian is not positive definite, and h is the hypergradient of a damped or "
    "truncated system: how small ∇Φ is cannot be said."
)
_TRAINED = (
    "f rises as y is trained further, however short the step of x is. A penalty on y, or more "
    "samples, would leave more to learn."
)
_TRAINED_ANEW = "Training y anew with the x so far has brought nothing more."


class Ends:
    """Why a run ends between chunks, beside what the compiled loop notices itself."""

    def __init__(self, engine: Engine, race: Race, by_itself: bool, finds_its_size: bool) -> None:
        self._engine, self.race, self._by_itself = engine, race, by_itself
        self.restarts = race.restarts
        self._settles = by_itself or finds_its_size
        marks = engine.marks
        if engine.k == 0:
            marks.levels[:] = NO_LEVELS
        if by_itself and engine.k and not np.isnan(marks.epsilon):
            engine.goal = engine.goal._replace(epsilon=float(marks.epsilon))
        self._watch = DivergenceWatch(marks.levels)
        self.cause = ""

    def due(self, k: int) -> int:
        """The steps until the next look at whether the run stands still."""
        if not self._settles:
            return UNLIMITED
        # Too few for a point to become the last one kept and as many steps to be taken back.
        back = min(self.restarts.steps_back, MOST_STEPS_BACK - 1) if self._is_nonconvex else 0
        early = [n - k for n in _EARLY if n > k]
        return self.race.due(k, min([*early, _PATIENCE - k % _PATIENCE, MOST_STEPS_BACK - back]))

    @property
    def _is_nonconvex(self) -> bool:
        """Whether the last x that was kept has a biased h."""
        results = self._engine.records[0].judged()["result"]
        kept = results[results != Status.UNDONE]
        return len(kept) > 0 and kept[-1] == Status.NONCONVEX

    @property
    def went_back_with_y(self) -> bool:
        """Whether the last step was taken back, and y with it."""
        return self._settles and self._is_nonconvex and self.restarts.steps_back > 0

    def check(self) -> Status | None:
        """The reason to end now, if there is one."""
        engine, record = self._engine, self._engine.records[0]
        problem, method, _ = engine.shared
        state, stop = engine.state, engine.ended()
        if record.rows == record.aside[1]:  # there is nothing new to judge
            return None if stop is Status.COMPLETED else stop
        if self.race.by_momentum:
            return self._by_momentum()
        if stop is Status.CONVERGED:
            assert engine.goal.epsilon is not None
            if self._is_nonconvex:
                self.cause = _BIASED
                return Status.UNCERTAIN
            if is_certain(engine, engine.goal.epsilon):
                return stop
            engine.defer_epsilon()
            return None
        if stop is not Status.COMPLETED:
            return stop
        if self.race.is_due and self._is_nonconvex:
            self.race.begin()
            return None
        is_due = engine.k in _EARLY or engine.k % _PATIENCE == 0
        if self.went_back_with_y and self.restarts.steps_back >= MOST_STEPS_BACK:
            if self.restarts.again():
                return None
            self.cause = _TRAINED
            return Status.SETTLED
        if self._by_itself and is_due:
            epsilon = relative_epsilon(record, state.x)
            engine.marks.epsilon[()] = np.nan if epsilon is None else epsilon
            engine.goal = engine.goal._replace(epsilon=epsilon)
        if found := self._watch.check(record, problem, method, state.x, state.method.y):
            status, self.cause = found
            return status
        if self._settles and is_due and (found := falls_for_ever(record)):
            self.cause = found
            return Status.UNBOUNDED
        if self._settles and is_due and has_settled(record, state.x):
            return self._settled()
        return None

    def _by_momentum(self) -> Status | None:
        """The reason to end, where it is momentum that trains y."""
        status = self.race.check()
        if status is Status.SETTLED:
            self.cause = _TRAINED_ANEW
        if status is None and self.race.by_momentum and self._engine.k % _PATIENCE == 0:
            self.cause = falls_for_ever(self._engine.records[0])
            return Status.UNBOUNDED if self.cause else None
        return status

    def _settled(self) -> Status:
        """Whether a run that stands still is at its end, or h leads nowhere."""
        engine, record = self._engine, self._engine.records[0]
        epsilon = relative_epsilon(record, engine.state.x) or np.inf
        if self._is_nonconvex:
            self.cause = _BIASED
            return Status.SETTLED
        if found := has_no_value(engine.shared.problem, engine.state.x, engine.state.method.y):
            self.cause = found
            return Status.UNCONVERGED
        size = measured_norm(engine, epsilon)
        if size is not None and engine.shared.outer.is_projected:
            size = measured_slope(engine, epsilon)  # at the border of a set ∇Φ need not vanish
        if size is not None and size <= (_NEAR * epsilon) ** 0.5:
            return Status.SETTLED
        if found := kink(engine):
            self.cause = found
            return Status.SETTLED
        with engine.aside():  # at this x, not at the one before it
            h = float(engine.evaluate()[1].hypergradient_norm)
        standing = "Neither f nor ‖h‖ has become smaller in the last steps, but"
        if size is not None and abs(h - size) <= _ALIKE * size:
            self.cause = (
                f"{standing} ‖∇Φ‖ is {size:.3g} there. h is right, and leads nowhere: Φ has a kink "
                f"(as where the second derivative of g jumps, with a squared hinge or a Huber "
                f"loss), or its scales differ so much that f cannot show what a step gains. "
                f"{far_away(engine.shared.problem, engine.state.x, engine.state.method.y)}"
            )
        else:
            told = "cannot be measured there" if size is None else f"is {size:.3g} there"
            self.cause = (
                f"{standing} ‖∇Φ‖ {told} and ‖h‖ is {h:.3g}: h is too inexact to lead on; use "
                f"longer loops."
            )
        return Status.UNCONVERGED


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


def last_look(engine: Engine, which: np.ndarray | None = None) -> Row:
    """A row at the x where each run ends, of many runs only `which`.

    The last step may have led to a point that is not accepted: then it is the x before that, to
    whose y*(x) the y of that point has to find back.
    """
    _, row = engine.evaluate(which)
    left = np.asarray(row.result) == Status.UNDONE
    if which is not None:
        left[: len(which)] &= which
        left[len(which) :] = False
    point = engine.shared.outer.accepted(engine.state.outer)
    if point is None or not left.any():
        return row
    x = point[0]
    if which is not None:
        x = jax.tree.map(partial(_of_lanes, left), x, engine.state.x)
        which = left[: len(which)]
    engine.state = engine.state._replace(x=copied(x))
    engine.went_back = engine.alone
    engine.evaluate(which, times=_BACK)
    _, before = engine.evaluate(which)
    return jax.tree.map(lambda a, b: np.where(left, a, b), before, row)


def _of_lanes(which: np.ndarray, a: Array, b: Array) -> Array:
    return jnp.where(which.reshape(-1, *[1] * (a.ndim - 1)), a, b)


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
