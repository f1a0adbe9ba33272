"""solve: the base loop with stopping, progress and checkpoints, from a start to a run."""

import os
import signal
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop.methods import Hypergradient
from biloop.oracles import Cost
from biloop.outer import OuterStep, as_outer_step
from biloop.problem import Problem, as_variable, same_space
from biloop.results import RunFailed, Status
from biloop.run.checkpoint import Checkpoint
from biloop.run.chunk import CAPACITY, Row, State, advance, budget_left, make_limits
from biloop.run.diagnosis import DivergenceWatch, explain
from biloop.run.processes import Processes
from biloop.run.progress import Pace, Progress, ProgressLine
from biloop.run.record import Record
from biloop.run.sharding import layout_of, mesh_of, place
from biloop.run.trace import Trace
from biloop.schedules import is_concrete
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
    x0: PyTree,
    y0: PyTree,
    method: Hypergradient,
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
    problem, method, outer, x0, y0, v0 = (place(part, mesh, name) for name, part in given.items())
    numbers = f"{steps=}, {epsilon=}, {budget=}, {seconds=}, {every=}"
    numbers += f", {callback is None=}, {checkpoint is None=}"
    processes.require_equal([numbers.encode()], f"The processes differ; this one has {numbers}.")
    state = place(first_state(problem, method, outer, x0, y0, v0), mesh, "The start")
    layout = layout_of(state, mesh)
    saved = Checkpoint(
        checkpoint, every, processes, problem=problem, method=method, outer=outer, start=state
    )
    record, watch, pace = Record(), DivergenceWatch(), Pace()
    line = ProgressLine(progress if processes.first else False)
    if (found := saved.restore(state)) is not None:
        state, columns = found
        record.restore(columns)

    def run_chunk(n: int) -> tuple[State, Row, int, Status]:
        limits = make_limits(n, epsilon, budget, record.cost)
        chunk = advance(problem, method, outer, state, limits, layout=layout)
        after, rows, done, stop = jax.block_until_ready(chunk)
        return after, rows, int(done), Status(int(stop))

    def first_failing(done: int) -> int:
        """The step that failed; x may have stopped to be finite before, and stays so."""

        def failed(n: int) -> bool:
            return run_chunk(n)[-1].failed

        return bisect_left(range(done), True, key=failed) if failed(done - 1) else done

    status = _already_over(record, int(state.k), steps, epsilon, budget, seconds)
    cause = ""
    with line, interruptible() as caught:
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
            # All processes go by one clock, and stop where one of them was interrupted.
            elapsed, interrupted = processes.largest(elapsed, len(caught))
            if stop.failed:
                # Run again up to the failure, and up to the last finite state: to keep a copy of it
                # and to look at x in each step would slow small problems by a tenth.
                done = first_failing(done)
                _, rows, _, stop = run_chunk(done)
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
            asked = callback is not None and processes.together(partial(callback, here))
            if asked and status is None:
                status = Status.STOPPED
                saved.save(k, state, record, at_the_end=True)

    if status.failed and not cause:
        status, cause = explain(status, problem, method, state, record)
    run = as_run(state, status, cause, record, saved.trouble, label, compile_seconds)
    if throw and status.failed:
        raise RunFailed(run)
    return run


def as_run(
    state: State,
    status: Status,
    cause: str,
    record: Record,
    trouble: str,
    label: str,
    compile_seconds: float,
) -> Run:
    """What is handed back of a run that ended in this state."""
    return Run(
        x=state.x,
        y=state.warm.y,
        v=state.warm.v,
        status=status,
        message=_message(status, int(state.k), cause, trouble, record),
        cost=record.cost,
        trace=Trace(record.columns(), label),
        steps=int(state.k),
        seconds=record.seconds,
        compile_seconds=compile_seconds,
    )


def check_arguments(
    problem: Any, method: Any, steps: Any, epsilon: Any, budget: Any, seconds: Any, every: Any
) -> None:
    """Refuse what is no problem, no method or no limit."""
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


def first_state(
    problem: Problem, method: Hypergradient, outer: OuterStep, x0: PyTree, y0: PyTree, v0: PyTree
) -> State:
    """Where a run starts, once all of it has been checked."""
    x, y = as_variable(x0, "x0"), as_variable(y0, "y0")
    for name, variable in (("x0", x), ("y0", y)):
        if is_concrete(finite := all_finite(variable)) and not finite:
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
    at, message = f"Outer step k = {k}: " if status.failed else "", status.sentence
    notes = [
        f"In {times} of {record.rows} outer steps {what}."
        for status, what in (
            (
                Status.UNCONVERGED,
                "a loop spent its steps before its residual reached the tolerance",
            ),
            (Status.UNDONE, "the step before was taken back because it had led to a worse point"),
        )
        if (times := int(np.sum(record.columns()["result"] == status)))
    ]
    return " ".join(filter(None, (at + message, cause, trouble, *notes)))


@contextmanager
def interruptible() -> Iterator[list[int]]:
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
