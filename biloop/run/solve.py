"""solve: one run from a start to its end, with stopping, progress, checkpoints and a last look."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from biloop import schemes
from biloop.methods import Method, Residuals
from biloop.oracles import Cost
from biloop.outer import as_outer_step
from biloop.problem import Problem
from biloop.results import RunFailed, Status
from biloop.run.arguments import check_arguments, check_order
from biloop.run.certify import is_certain, measured_norm
from biloop.run.checkpoint import Checkpoint
from biloop.run.chunk import UNLIMITED, budget_left
from biloop.run.diagnosis import DivergenceWatch, explain
from biloop.run.doubts import doubted
from biloop.run.engine import Engine, Goal, copied, drive
from biloop.run.fingerprint import fingerprint, parts_of_run
from biloop.run.interrupt import interruptible
from biloop.run.outcome import Run, make_run
from biloop.run.processes import Processes
from biloop.run.progress import Pace, Progress, ProgressLine
from biloop.run.settled import has_settled, relative_epsilon
from biloop.run.sharding import mesh_of, place
from biloop.run.step import Settings, first_state
from biloop.schedules import is_concrete

MOST = 1000  # outer steps where none are given
_PATIENCE = 40  # steps of a run that may come to stand still
_NEAR = 100.0  # times the epsilon of a run without one: where a run that stands still may end


def solve(
    problem: Problem,
    x0: PyTree,
    y0: PyTree,
    method: Method | None = None,
    *,
    outer: Any = "auto",
    steps: int | None = None,
    v0: PyTree | None = None,
    epsilon: float | None = None,
    budget: int | Cost | None = None,
    seconds: float | None = None,
    progress: bool | None = None,
    callback: Callable[[Progress], bool | None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = 1000,
    label: str = "",
    throw: bool = False,
) -> Run:
    """Minimise Φ(x) = f(x, y*(x)) from x0, y0.

    Parameters
    ----------
    problem : Problem
        The inner and the outer function with their data.
    x0, y0 : pytree of floating arrays
        Where to start.
    method : Method, optional
        How hypergradients are found: `AID(…)`, `ITD(…)`, a scheme of `bl.schemes`. By default
        `bl.schemes.auto()`, which has nothing to set.
    outer : number, "auto", optax transformation or OuterStep
        The outer step. "auto" finds its own size.
    steps : int, optional
        The most outer steps. Where none are given the run ends by itself, at the latest after 1000:
        when ‖h‖ has fallen far enough (by a factor of 10⁴ in float64, 200 in float32), or when only
        rounding is left.
    v0 : pytree like y0, optional
        The adjoint to start from, zero unless given.
    epsilon : number, optional
        End at ‖h‖² ≤ epsilon. CONVERGED is said only if ∇Φ, measured apart, is as small.
    budget : int or Cost, optional
        End when the cost reaches it: gradients and products together, or each of them.
    seconds : number, optional
        End after this time, compilation not counted.
    progress : bool, optional
        Show a line on standard error; by default on a terminal, after two seconds.
    callback : function of a `Progress`, optional
        Called after each compiled chunk; the run ends when it returns True.
    checkpoint : folder, optional
        Where the state is saved, atomically, after every `every` outer steps and at the end, and
        from where the same call goes on where it was killed, to the same bits.
    label : str
        The name of the run in tables and figures.
    throw : bool
        Raise `RunFailed` on a failure. By default what was done is returned, whatever ended it.

    Returns
    -------
    Run
        `run.x`, `run.y`, `run.value`, `run.status`, `run.message`, `run.cost`, `run.trace`.

    Examples
    --------
    >>> problem = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: jnp.sum((y - 1) ** 2))
    >>> bl.solve(problem, jnp.zeros(3), jnp.zeros(3)).status.name
    'CONVERGED'
    """
    check_order(problem, x0, y0, method)
    method = schemes.auto() if method is None else method
    outer = as_outer_step(outer)
    by_itself = steps is None and epsilon is None
    steps = MOST if steps is None else steps
    check_arguments(problem, method, steps, epsilon, budget, seconds, every)
    if not all(map(is_concrete, jax.tree.leaves((problem, method, outer, x0, y0, v0)))):
        raise TypeError(
            "solve is a loop in Python around compiled programs and cannot run inside jit, vmap or "
            "grad. For many runs at once use sweep; inside jit call the method itself, which "
            "returns a hypergradient."
        )
    mesh = mesh_of((problem, x0, y0))
    processes = Processes(mesh)
    given = {"problem": problem, "method": method, "outer": outer, "x0": x0, "y0": y0, "v0": v0}
    placed = {name: place(part, mesh, name) for name, part in given.items()}
    settings = Settings(placed["problem"], placed["method"], placed["outer"])
    numbers = f"{steps=}, {epsilon=}, {budget=}, {seconds=}, {every=}"
    numbers += f", {callback is None=}, {checkpoint is None=}"
    processes.require_equal([numbers.encode()], f"The processes differ; this one has {numbers}.")

    start = first_state(settings, placed["x0"], placed["y0"], placed["v0"])
    state = place(start, mesh, "The start")
    identity = {}
    if checkpoint is not None or processes.several:  # tracing takes time
        identity = fingerprint(lambda: parts_of_run(settings, state), processes)
    saved = Checkpoint(checkpoint, every, identity, processes)
    engine = Engine(settings, state, Goal(int(steps), epsilon, budget))
    if (found := saved.restore(engine.saved, int(steps))) is not None:
        engine.restore(*found)
    ends = _Ends(engine, by_itself, outer.finds_its_size)
    status = _run(engine, ends, saved, processes, seconds, progress, callback)
    run = _finish(engine, status, ends.cause, saved.trouble, label)
    if throw and run.status.failed:
        raise RunFailed(run)
    return run


class _Ends:
    """Why a run ends between chunks, beside what the compiled loop notices itself."""

    def __init__(self, engine: Engine, by_itself: bool, finds_its_size: bool) -> None:
        self._engine, self._by_itself = engine, by_itself
        self._settles = by_itself or finds_its_size
        self._watch = DivergenceWatch()
        self.cause = ""

    @property
    def patience(self) -> int:
        """The most steps between two looks at whether the run stands still."""
        return _PATIENCE if self._settles else UNLIMITED

    def check(self) -> Status | None:
        """The reason to end now, if there is one."""
        engine, record = self._engine, self._engine.records[0]
        problem, method, _ = engine.shared
        state, stop = engine.state, engine.ended()
        if stop is Status.CONVERGED:
            assert engine.goal.epsilon is not None
            if is_certain(engine, engine.goal.epsilon):
                return stop
            engine.defer_epsilon()
            return None
        if stop is not Status.COMPLETED:
            return stop
        if self._by_itself:
            epsilon = relative_epsilon(record, state.x)
            engine.goal = engine.goal._replace(epsilon=epsilon)
        if found := self._watch.check(record, problem, method, state.x, state.method.y):
            status, self.cause = found
            return status
        if self._settles and has_settled(record, state.x):
            return self._settled()
        return None

    def _settled(self) -> Status:
        """Whether a run that stands still is at its end, or h leads nowhere."""
        engine, record = self._engine, self._engine.records[0]
        epsilon = relative_epsilon(record, engine.state.x) or np.inf
        size = measured_norm(engine, epsilon)
        if size is not None and size <= (_NEAR * epsilon) ** 0.5:
            return Status.SETTLED
        told = "cannot be measured there" if size is None else f"is {size:.3g} there"
        self.cause = (
            f"Neither f nor ‖h‖ has become smaller in the last steps, but ‖∇Φ‖ {told} and ‖h‖ is "
            f"{record.last('hypergradient_norm'):.3g}: h is too inexact to lead on; use longer "
            f"loops."
        )
        return Status.UNCONVERGED


def _run(
    engine: Engine,
    ends: _Ends,
    saved: Checkpoint,
    processes: Processes,
    seconds: float | None,
    progress: bool | None,
    callback: Callable[[Progress], bool | None] | None,
) -> Status:
    """Drive the run to its end, and say why it ended."""
    record, goal = engine.records[0], engine.goal
    line = ProgressLine(progress if processes.first else False)
    status = _already_over(engine, seconds)
    if status is not None:
        return status
    with line, interruptible() as caught:
        engine.compile()

        def after_chunk(pace: Pace) -> bool:
            nonlocal status
            k = engine.k
            here = record.progress(k, goal.steps, engine.state)
            line.update(here, pace.rate)
            (interrupted,) = processes.largest(len(caught))
            status = ends.check()
            if status is None and k >= goal.steps:
                status = engine.end().status
            if status is None and seconds is not None and record.seconds >= seconds:
                status = Status.TIME_SPENT
            if interrupted and (status is None or not status.failed):
                status = Status.INTERRUPTED
            # After a failure the last checkpoint stays: from there the failure can be seen again.
            if status is None or not status.failed:
                saved.save(k, engine.saved, engine.records, at_the_end=status is not None)
            if callback is not None:
                mine = here._replace(x=copied(here.x), y=copied(here.y))
                asked = processes.together(partial(callback, mine))
                if asked and status is None:
                    status = Status.STOPPED
                    saved.save(k, engine.saved, engine.records, at_the_end=True)
            return status is not None

        limit = np.inf if seconds is None else seconds
        drive(
            engine,
            due=lambda k: min(saved.steps_until_due(k, goal.steps), ends.patience),
            after_chunk=after_chunk,
            seconds=limit,
            processes=processes,
        )
    assert status is not None
    return status


def _already_over(engine: Engine, seconds: float | None) -> Status | None:
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


def _finish(engine: Engine, status: Status, cause: str, trouble: str, label: str) -> Run:
    """Explain a failure, or look at the last x: what f is there, and whether y can be trusted."""
    problem, method, _ = engine.shared
    record, steps = engine.records[0], engine.steps_of()
    end = engine.end()._replace(status=status)
    value, claimed = end.value, record.residuals()
    if end.wants_a_look:
        _, row = engine.look()
        status, value = end.judged(row)
        claimed = Residuals(float(row.inner_residual), float(row.linear_residual))
    state = engine.state
    if status.failed and not cause:
        status, cause = explain(status, problem, method, state.x, state.method.y, record)
    elif not status.failed and not cause and record.rows:
        status, cause = doubted(status, problem, method, state.x, state.method.y, record, claimed)
    return make_run(
        state.x,
        state.method,
        value,
        status,
        steps,
        record,
        remarks=(cause, trouble),
        label=label,
        compile_seconds=engine.compile_seconds,
    )
