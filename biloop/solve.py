"""The base loop: x ← step(x, h) in compiled chunks, with stopping, progress and checkpoints."""

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from biloop import checkpoint as checkpoints
from biloop import diagnose, vectors
from biloop.hypergradient import Hypergradient, Warm
from biloop.oracles import Cost
from biloop.outer import OuterStep, as_outer_step
from biloop.problem import Problem, as_variable, same_space
from biloop.progress import Progress, ProgressLine
from biloop.results import FIRST_FAILURE, Code, RunFailed, Status, code, code_if
from biloop.trace import COLUMNS, Trace

_CHUNK = 4096  # the most outer steps in one compiled call: the length of its record
_CHUNK_SECONDS = 0.25  # how long one should take: the delay of Ctrl-C and of the progress line
_UNLIMITED = np.iinfo(np.int32).max
_SUSPICIOUS_GROWTH = 1e3


class State(NamedTuple):
    """All that the next outer step needs; a checkpoint holds this and the trace."""

    k: Int[Array, ""]
    x: PyTree
    warm: Warm
    outer: PyTree


class Row(NamedTuple):
    """What one outer step leaves in the record."""

    value: Float[Array, ""]
    hypergradient_norm: Float[Array, ""]
    inner_residual: Float[Array, ""]
    linear_residual: Float[Array, ""]
    gradients: Int[Array, ""]
    products: Int[Array, ""]
    result: Code


class Limits(NamedTuple):
    """When a chunk ends: after so many steps, at ‖h‖² ≤ epsilon, or when the cost is used up."""

    steps: Int[Array, ""]
    epsilon: Float[Array, ""]
    gradients: Int[Array, ""]
    products: Int[Array, ""]
    total: Int[Array, ""]


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


def outer_step(
    problem: Problem, method: Hypergradient, outer: OuterStep, state: State, epsilon: Array
) -> tuple[State, Row, Code]:
    """One step of the base loop: the next state, a row for the record, and why to stop (or 0).

    h ← method(x);   x ← outer step along −h, unless ‖h‖² ≤ epsilon

    After a failure the next state is of no use; `solve` goes back to the one before it.
    """
    h, warm, info = method(problem, state.x, state.warm, state.k)
    size = vectors.norm(h)
    converged = size**2 <= epsilon.astype(size.dtype)
    x, memory = outer.step(state.x, h, state.outer)
    x = vectors.where(converged, state.x, x)

    row = Row(
        info.value,
        size,
        info.inner_residual,
        info.linear_residual,
        jnp.asarray(info.cost.gradients),
        jnp.asarray(info.cost.products),
        info.result,
    )
    failed = info.result >= FIRST_FAILURE
    stop = jnp.where(failed, info.result, code_if(converged, Status.CONVERGED))
    return State(state.k + 1, x, warm, memory), row, stop


@eqx.filter_jit
def advance(
    problem: Problem,
    method: Hypergradient,
    outer: OuterStep,
    state: State,
    limits: Limits,
    capacity: int = _CHUNK,
) -> tuple[State, Row, Int[Array, ""], Code]:
    """Outer steps until a limit is reached: the state, the rows, how many there are, and why."""
    shapes = eqx.filter_eval_shape(outer_step, problem, method, outer, state, limits.epsilon)[1]
    rows = jax.tree.map(lambda s: jnp.zeros((capacity, *s.shape), s.dtype), shapes)

    def unfinished(carry: tuple[State, Row, Array, Cost, Code]) -> Array:
        _, _, done, _, stop = carry
        return (done < limits.steps) & (stop == code(Status.COMPLETED))

    def body(
        carry: tuple[State, Row, Array, Cost, Code],
    ) -> tuple[State, Row, Array, Cost, Code]:
        state, rows, done, spent, _ = carry
        state, row, stop = outer_step(problem, method, outer, state, limits.epsilon)
        rows = jax.tree.map(
            lambda rows, entry: lax.dynamic_update_index_in_dim(rows, entry, done, axis=0),
            rows,
            row,
        )
        spent = spent + Cost(row.gradients, row.products)
        over = (
            (spent.gradients >= limits.gradients)
            | (spent.products >= limits.products)
            | (spent.total >= limits.total)
        )
        stop = jnp.where(stop != code(Status.COMPLETED), stop, code_if(over, Status.BUDGET_SPENT))
        return state, rows, done + 1, spent, stop

    zero = jnp.zeros((), jnp.int32)
    start = (state, rows, zero, Cost(zero, zero), code(Status.COMPLETED))
    state, rows, done, _, stop = lax.while_loop(unfinished, body, start)
    ruined = (stop < FIRST_FAILURE) & ~vectors.all_finite(state.x)
    return state, rows, done, jnp.where(ruined, code(Status.UPDATE_NOT_FINITE), stop)


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
    record = _Record()

    path, fingerprint = None, {}
    if checkpoint is not None:
        path = checkpoints.prepare(checkpoint)
        fingerprint = checkpoints.fingerprint(
            problem=problem, method=method, outer=outer, start=state
        )
        if (saved := checkpoints.read(path, state, fingerprint)) is not None:
            state, columns = saved
            record.restore(columns)

    line = ProgressLine(progress)
    watch = _DivergenceWatch()
    pace = _Pace()
    status = _already_over(record, int(state.k), steps, epsilon, budget)
    detail = ""

    def save() -> None:
        nonlocal detail
        if path is None:
            return
        try:
            checkpoints.write(path, state, record.columns(), fingerprint)
        except OSError as error:
            detail = f"The checkpoint after {int(state.k)} steps was not written: {error}."
            warnings.warn(f"{detail} The run goes on.", RuntimeWarning, stacklevel=3)

    def run_chunk(n: int) -> tuple[State, Row, int, Status]:
        limits = _limits(n, epsilon, budget, record.cost)
        chunk = advance(problem, method, outer, state, limits)
        after, rows, done, stop = jax.block_until_ready(chunk)
        return after, rows, int(done), Status(int(stop))

    def before_failure(done: int, stop: Status) -> tuple[State, Status]:
        """The last finite state, by running the chunk again up to it.

        Keeping a copy of the state in each step instead would slow small problems by a tenth.
        """
        good, _, _, again = run_chunk(done - 1)
        return (run_chunk(done - 2)[0], again) if again.failed else (good, stop)

    with _interruptible() as interrupted:
        start = time.perf_counter()
        run_chunk(0)
        compile_seconds = time.perf_counter() - start

        while status is None:
            k = int(state.k)
            until = min(steps, (k // every + 1) * every) if path else steps
            start = time.perf_counter()
            after, rows, done, stop = run_chunk(pace.steps(until - k, seconds, record))
            elapsed = time.perf_counter() - start
            if stop.failed:
                after, stop = before_failure(done, stop)
            state = after
            record.add(k, rows, done, elapsed)
            pace.measured(done, elapsed)

            k = int(state.k)
            here = record.progress(k, steps, state)
            line.update(here, pace.rate)
            diverged = watch.check(record, problem, method, state)
            asked_to_stop = callback is not None and bool(callback(here))
            if stop is not Status.COMPLETED:
                status = stop
            elif diverged:
                status, detail = Status.DIVERGED, diverged
            elif k >= steps:
                status = Status.COMPLETED
            elif interrupted:
                status = Status.INTERRUPTED
            elif asked_to_stop:
                status = Status.STOPPED
            elif seconds is not None and record.seconds >= seconds:
                status = Status.TIME_SPENT
            if path and (k % every == 0 or status is not None):
                save()
        line.close()

    if status.failed and not detail:
        detail = diagnose.explain(status, problem, method, state.x, state.warm.y)
        detail = detail or _outer_growth(record)
    run = Run(
        x=state.x,
        y=state.warm.y,
        v=state.warm.v,
        status=status,
        message=_message(status, detail, int(state.k), record),
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


def _already_over(
    record: "_Record", k: int, steps: int, epsilon: float | None, budget: int | Cost | None
) -> Status | None:
    """Why a run that comes from a checkpoint has nothing left to do, if so."""
    if record.rows and epsilon is not None and record.last("hypergradient_norm") ** 2 <= epsilon:
        return Status.CONVERGED
    if min(_left(budget, record.cost)) <= 0:
        return Status.BUDGET_SPENT
    return Status.COMPLETED if k >= steps else None


def _start(
    problem: Problem, method: Hypergradient, outer: OuterStep, x0: PyTree, y0: PyTree, v0: PyTree
) -> State:
    x, y = as_variable(x0, "x0"), as_variable(y0, "y0")
    warm = method.init(problem, x, y)
    if v0 is not None:
        v = as_variable(v0, "v0")
        same_space(v, y, "v0", "y0")
        warm = warm._replace(v=v)
    return State(jnp.zeros((), jnp.int32), x, warm, outer.init(x))


def _limits(steps: int, epsilon: float | None, budget: int | Cost | None, spent: Cost) -> Limits:
    never = -1.0  # no squared norm is that small
    # NumPy: these are made anew for each chunk, and JAX takes ten times as long to make one.
    return Limits(
        np.int32(steps),  # pyright: ignore[reportArgumentType]
        np.float64(never if epsilon is None else epsilon),  # pyright: ignore[reportArgumentType]
        *(np.int32(n) for n in _left(budget, spent)),  # pyright: ignore[reportArgumentType]
    )


def _left(budget: int | Cost | None, spent: Cost) -> tuple[int, int, int]:
    """The gradients, the products, and the sum of both that may still be spent."""
    if isinstance(budget, Cost):
        left = budget.gradients - spent.gradients, budget.products - spent.products, _UNLIMITED
    else:
        left = _UNLIMITED, _UNLIMITED, _UNLIMITED if budget is None else budget - spent.total
    gradients, products, total = (min(int(n), _UNLIMITED) for n in left)
    return gradients, products, total


def _message(status: Status, detail: str, k: int, record: "_Record") -> str:
    at = f"Outer step k = {k}: " if status.failed else ""
    columns = record.columns()
    unconverged = int(np.sum(columns["result"] == Status.UNCONVERGED))
    note = (
        f"In {unconverged} of {record.rows} outer steps a loop spent its steps before its residual "
        f"reached the tolerance."
        if unconverged
        else ""
    )
    return " ".join(filter(None, (at + status.sentence, detail, note)))


def _wide(column: np.ndarray) -> np.ndarray:
    """NumPy's files have no bfloat16; half precision is recorded as float32."""
    return column.astype(np.float32) if column.dtype.itemsize < 4 else column


def _outer_growth(record: "_Record") -> str:
    """What remains when both loops are stable: an outer step that throws x farther each time."""
    norms = record.columns()["hypergradient_norm"]
    norms = norms[np.isfinite(norms)]
    if len(norms) < 2 or not norms[-1] > _SUSPICIOUS_GROWTH * norms[0]:
        return ""
    return (
        f"Both loops are stable, but ‖h‖ grew from {norms[0]:.3g} to {norms[-1]:.3g}: the outer "
        f"step size is too large; try a tenth of it, or project x onto a bounded set."
    )


class _Record:
    """The rows so far on the host, with costs and times added up in Python numbers."""

    def __init__(self) -> None:
        self.rows = 0
        self.cost = Cost(0, 0)
        self.seconds = 0.0
        self._chunks: list[dict[str, np.ndarray]] = []

    def restore(self, columns: dict[str, np.ndarray]) -> None:
        trace = Trace(columns)
        self._chunks = [columns]
        self.rows, self.cost = len(trace), trace.cost
        self.seconds = float(trace["seconds"][-1]) if self.rows else 0.0

    def add(self, k: int, rows: Row, count: int, elapsed: float) -> None:
        chunk = {name: _wide(np.asarray(column)[:count]) for name, column in rows._asdict().items()}
        for name, before in self.cost._asdict().items():
            chunk[name] = before + np.cumsum(chunk[name], dtype=np.int64)
        chunk["k"] = k + np.arange(count)
        chunk["seconds"] = self.seconds + elapsed * np.arange(1, count + 1) / max(count, 1)
        self._chunks.append({name: chunk[name] for name in COLUMNS})
        self.rows += count
        self.seconds += elapsed
        if count:
            self.cost = Cost(int(chunk["gradients"][-1]), int(chunk["products"][-1]))

    def columns(self) -> dict[str, np.ndarray]:
        if len(self._chunks) != 1:
            empty = {name: np.zeros(0) for name in COLUMNS}
            parts = self._chunks or [empty]
            self._chunks = [{n: np.concatenate([p[n] for p in parts]) for n in COLUMNS}]
        return self._chunks[0]

    def last(self, name: str) -> float:
        return float(self._chunks[-1][name][-1])

    def progress(self, k: int, steps: int, state: State) -> Progress:
        return Progress(
            k,
            steps,
            state.x,
            state.warm.y,
            self.last("value"),
            self.last("hypergradient_norm"),
            self.cost,
            self.seconds,
        )


class _Pace:
    """How many outer steps the next chunk should have: about a quarter of a second's worth."""

    def __init__(self) -> None:
        self.rate = 0.0  # outer steps per second; unknown before the first chunk

    def measured(self, done: int, elapsed: float) -> None:
        self.rate = done / elapsed if elapsed > 0 else self.rate

    def steps(self, left: int, seconds: float | None, record: _Record) -> int:
        if self.rate == 0:
            return 1
        span = _CHUNK_SECONDS
        if seconds is not None:
            span = min(span, seconds - record.seconds)
        # Costs are counted in 32 bits within a chunk; leave room for steps that cost twice as much.
        fits = 2**30 // max(1, 2 * record.cost.total // max(1, record.rows))
        return int(max(1, min(left, _CHUNK, fits, span * self.rate)))


class _DivergenceWatch:
    """Notices residuals that grow, and calls it divergence only if a step size is proven too large.

    Growth alone proves nothing (a run may start at the solution), so it only leads to a look at the
    spectrum; the run goes on if that does not explain it.
    """

    def __init__(self) -> None:
        self._first: dict[str, float] = {}

    def check(self, record: _Record, problem: Problem, method: Hypergradient, state: State) -> str:
        for loop in ("inner", "linear"):
            residual = record.last(f"{loop}_residual")
            first = self._first.setdefault(loop, residual)
            if not residual > _SUSPICIOUS_GROWTH * first:
                continue
            self._first[loop] = residual
            _, high = diagnose.extreme_eigenvalues(problem, state.x, state.warm.y)
            for excess in diagnose.excessive_steps(method, float(high)):
                if excess.loop == loop:
                    return f"{excess} Its residual grew from {first:.3g} to {residual:.3g}."
        return ""


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
