"""solve: the base loop with stopping, progress and checkpoints, from a start to a run."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop.base_loop import CAPACITY, Row, State, advance, budget_left, make_limits
from biloop.checkpoint import Checkpoint
from biloop.diagnose import DivergenceWatch, explain
from biloop.hypergradient import Hypergradient
from biloop.oracles import Cost
from biloop.outer import OuterStep, as_outer_step
from biloop.problem import Problem, as_variable, same_space
from biloop.progress import Pace, Progress, ProgressLine
from biloop.record import Record
from biloop.results import RunFailed, Status
from biloop.trace import Trace
from biloop.vectors import all_finite


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run: where it ended, why, what it cost, and its trace."""

    x: PyTree
    y: PyTree
    v: PyTree
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
            f"Run({self.status.name}, steps={self.steps}, gradients={self.cost.gradients}, "
            f"products={self.cost.products}, seconds={self.seconds:.3g})"
        )


def solve(
    problem: Problem,
    method: Hypergradient,
    x0: PyTree,
    y0: PyTree,
    *,
    outer: Any,
    steps: int,
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
    """Minimise Φ(x) = f(x, y*(x)) from x0, y0 (and the adjoint v0, zero unless given).

    `outer` is a step size, an optax transformation or an `OuterStep`. The run ends after `steps`
    outer steps, at ‖h‖² ≤ `epsilon`, when the cost reaches `budget` (a `Cost`, or a number of
    gradients and products together) or the time `seconds`, on Ctrl-C, when `callback` returns True,
    or at the first failure. Whatever ends it, what was done is returned; `throw=True` raises
    `RunFailed` on a failure.

    `progress` shows a line on standard error (None: on a terminal, after two seconds). `callback`
    gets a `Progress` after each compiled chunk. `checkpoint` names a folder in which the state is
    saved atomically after every `every` outer steps and at the end, and from which the same call
    goes on where it was killed, to the same bits.
    """
    outer = as_outer_step(outer)
    _check_arguments(problem, method, steps, epsilon, budget, seconds, every)
    state = _start(problem, method, outer, x0, y0, v0)
    saved = Checkpoint(checkpoint, every, problem=problem, method=method, outer=outer, start=state)
    record, watch, pace, line = Record(), DivergenceWatch(), Pace(), ProgressLine(progress)
    if (found := saved.restore(state)) is not None:
        state, columns = found
        record.restore(columns)

    def run_chunk(n: int) -> tuple[State, Row, int, Status]:
        limits = make_limits(n, epsilon, budget, record.cost)
        chunk = advance(problem, method, outer, state, limits)
        after, rows, done, stop = jax.block_until_ready(chunk)
        return after, rows, int(done), Status(int(stop))

    status = _already_over(record, int(state.k), steps, epsilon, budget, seconds)
    cause = ""
    with line, _interruptible() as interrupted:
        start = time.perf_counter()
        run_chunk(0)  # compiles, unless the same program has run before
        compile_seconds = time.perf_counter() - start

        while status is None:
            k = int(state.k)
            # Costs are counted in 32 bits within a chunk; leave room for steps that cost twice.
            most = min(CAPACITY, int(2**30 / (1 + 2 * record.cost_per_step)))
            most = min(most, saved.steps_until_due(k, steps))
            seconds_left = np.inf if seconds is None else seconds - record.seconds
            start = time.perf_counter()
            after, rows, done, stop = run_chunk(pace.steps(most, seconds_left))
            elapsed = time.perf_counter() - start
            if stop.failed:
                # The last finite state, by running the chunk again up to it: keeping a copy of the
                # state in each step instead would slow small problems by a tenth.
                after, _, _, _ = run_chunk(done - 1)
            state = after
            record.add(k, rows, done, elapsed)
            pace.measured(done, elapsed)

            k = int(state.k)
            here = record.progress(k, steps, state)
            line.update(here, pace.rate)
            if stop is not Status.COMPLETED:
                status = stop
            elif cause := watch.check(record, problem, method, state):
                status = Status.DIVERGED
            elif k >= steps:
                status = Status.COMPLETED
            elif interrupted:
                status = Status.INTERRUPTED
            elif seconds is not None and record.seconds >= seconds:
                status = Status.TIME_SPENT
            # After a failure the last checkpoint stays: from there the failure can be seen again.
            if status is None or not status.failed:
                saved.save(k, state, record, at_the_end=status is not None)
            if callback is not None and callback(here) and status is None:
                status = Status.STOPPED
                saved.save(k, state, record, at_the_end=True)

    if status.failed and not cause:
        status, cause = explain(status, problem, method, state, record)
    run = Run(
        x=state.x,
        y=state.warm.y,
        v=state.warm.v,
        status=status,
        message=_message(status, int(state.k), cause, saved.trouble, record),
        cost=record.cost,
        trace=Trace(record.columns(), label),
        steps=int(state.k),
        seconds=record.seconds,
        compile_seconds=compile_seconds,
    )
    if throw and status.failed:
        raise RunFailed(run)
    return run


def _check_arguments(
    problem: Any, method: Any, steps: Any, epsilon: Any, budget: Any, seconds: Any, every: Any
) -> None:
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a biloop.Problem, got {type(problem).__name__}.")
    if not isinstance(method, Hypergradient):
        raise TypeError(f"method must be AID, ITD or another Hypergradient, got {method!r}.")
    counts = [("steps", steps), ("every", every)]
    if isinstance(budget, Cost):
        counts += [(f"budget.{name}", value) for name, value in budget._asdict().items()]
    elif budget is not None:
        counts.append(("budget", budget))
    for name, value in counts:
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
    if epsilon is not None and not 0 <= epsilon < np.inf:
        raise ValueError(f"epsilon must be finite and at least 0, got {epsilon}.")
    if seconds is not None and not seconds > 0:
        raise ValueError(f"seconds must be greater than 0, got {seconds}.")


def _start(
    problem: Problem, method: Hypergradient, outer: OuterStep, x0: PyTree, y0: PyTree, v0: PyTree
) -> State:
    x, y = as_variable(x0, "x0"), as_variable(y0, "y0")
    for name, variable in (("x0", x), ("y0", y)):
        if not all_finite(variable):
            raise ValueError(f"{name} has entries that are NaN or infinite.")
    warm = method.init(problem, x, y)
    if v0 is not None:
        v = as_variable(v0, "v0")
        same_space(v, y, "v0", "y0")
        warm = warm._replace(v=v)
    return State(jnp.zeros((), jnp.int32), x, warm, outer.init(x))


def _already_over(
    record: Record,
    k: int,
    steps: int,
    epsilon: float | None,
    budget: int | Cost | None,
    seconds: float | None,
) -> Status | None:
    """Why a run that comes from a checkpoint has nothing left to do, if so."""
    if record.rows and epsilon is not None and record.last("hypergradient_norm") ** 2 <= epsilon:
        return Status.CONVERGED
    if min(budget_left(budget, record.cost)) <= 0:
        return Status.BUDGET_SPENT
    if k >= steps:
        return Status.COMPLETED
    return Status.TIME_SPENT if seconds is not None and record.seconds >= seconds else None


def _message(status: Status, k: int, cause: str, trouble: str, record: Record) -> str:
    at = f"Outer step k = {k}: " if status.failed else ""
    unconverged = int(np.sum(record.columns()["result"] == Status.UNCONVERGED))
    note = (
        f"In {unconverged} of {record.rows} outer steps a loop spent its steps before its residual "
        f"reached the tolerance."
        if unconverged
        else ""
    )
    return " ".join(filter(None, (at + status.sentence, cause, trouble, note)))


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """Collect Ctrl-C in a list that is looked at between chunks; the second one interrupts."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught  # Python delivers signals to the main thread only
        return

    def handler(number: int, frame: Any) -> None:
        caught.append(number)
        signal.signal(signal.SIGINT, previous)

    previous = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, handler)
    try:
        yield caught
    finally:
        signal.signal(signal.SIGINT, previous)
