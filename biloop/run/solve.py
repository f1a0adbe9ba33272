"""solve: one run from a start to its end, with stopping, progress, checkpoints and a last look."""

import os
from collections.abc import Callable
from typing import Any

from jaxtyping import PyTree

from biloop.loops.results import RunFailed
from biloop.methods import Method
from biloop.oracles import Cost
from biloop.outer import as_outer_step
from biloop.problem import Problem
from biloop.run.arguments import (
    as_plain,
    check_arguments,
    check_concrete,
    check_order,
    default_method,
)
from biloop.run.checkpoint import Checkpoint
from biloop.run.course import Course
from biloop.run.ends import Ends
from biloop.run.engine import Engine
from biloop.run.feed import Feed
from biloop.run.fingerprint import fingerprint, parts_of_run
from biloop.run.finish import finished
from biloop.run.goal import Goal
from biloop.run.growth import ENDLESS, Growth
from biloop.run.measurements import as_watch
from biloop.run.outcome import Run
from biloop.run.processes import Processes
from biloop.run.progress import Progress, ProgressLine
from biloop.run.race import Race
from biloop.run.sampling import check_sampled
from biloop.run.sharding import mesh_of, place
from biloop.run.step import Settings, first_state
from biloop.run.watch import Watch, Watcher
from biloop.schedules.arguments import as_flag, as_function, as_text

MOST = 1000  # outer steps where none are given


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
    budget: float | Cost | None = None,
    seconds: float | None = None,
    measure: int | None = None,
    progress: bool | None = None,
    callback: Callable[[Progress], bool | None] | None = None,
    watch: Watch | None = None,
    watch_every: int = 10,
    patience: int | None = None,
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
        End when the cost reaches it: gradients and products together, or each of them. The outer
        step that reaches it is finished, and a loop in it that sizes itself ("auto") spends at most
        what was left: AID ends below 2 · budget + 6, ITD below 3 · budget + 6.
    measure : int, optional
        Measure ‖∇Φ‖² and Φ on all samples after every so many outer steps, outside of cost and
        clock; `run.watched` has them. A method that draws rows needs it to end at `epsilon`.
    seconds : number, optional
        End after this time, compilation not counted; waiting for the batches of a stream is.
    progress : bool, optional
        Show a line on standard error; by default on a terminal and in a notebook, after two
        seconds.
    callback : function of a `Progress`, optional
        Called after each compiled chunk; the run ends when it returns True.
    watch : function of x and y, optional
        A number or a dict of them, measured outside of cost and clock. `run.best` is where the
        (first) number is smallest, `run.watched` has all.
    watch_every : int
        The outer steps between two measurements.
    patience : int, optional
        End when so many measurements in a row brought nothing smaller.
    checkpoint : folder, optional
        Where the state is saved, atomically, and from where the same call goes on where it was
        killed, to the same bits.
    every : int
        The outer steps between two checkpoints; one more is at the end.
    label : str
        The name of the run in tables and figures.
    throw : bool
        Raise `RunFailed` on a failure. By default what was done is returned, whatever ended it.

    Returns
    -------
    Run
        `run.x`, `run.y`, `run.value`, `run.status`, `run.message`, `run.cost`, `run.trace`, …

    Examples
    --------
    >>> problem = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: jnp.sum((y - 1) ** 2))
    >>> bl.solve(problem, jnp.zeros(3), jnp.zeros(3)).status.name
    'CONVERGED'
    """
    mesh = mesh_of((problem, x0, y0))
    processes = Processes(mesh)
    with processes.alike():  # an argument that one of them refuses
        check_order(problem, x0, y0, method)
        method = default_method(problem) if method is None else method
        outer = as_outer_step(outer)
        most = _most(method, budget, seconds)
        check_arguments(
            problem, method, most if steps is None else steps, epsilon, budget, seconds, every
        )
        callback = as_function("callback", "a Progress", 1)(callback)
        throw, label = as_flag("throw")(throw), as_text("label")(label)
        check_sampled(method, outer, epsilon, measure, problem)
        by_itself = steps is None and epsilon is None and method.sampled is None
        if measure is not None:
            watch, watch_every = as_watch(problem, watch, measure), measure
        check_concrete(problem, method, outer, x0, y0, v0)
        watcher = Watcher(watch, watch_every, patience, processes)
        growth = Growth(problem, method, outer, x0, mesh)
        steps = growth.steps(steps, most)
    numbers = f"{steps=}, {epsilon=}, {budget=}, {seconds=}, {every=}, {watch_every=}, {patience=}"
    numbers += f", {callback is None=}, {checkpoint is None=}, {watch is None=}"
    processes.require_equal([numbers.encode()], f"The processes differ; this one has {numbers}.")

    with Feed(problem, method) as feed:
        feed.refuse(measure, checkpoint, mesh)
        given = {"problem": feed.problem, "method": growth.method, "outer": growth.outer}
        given |= {"x0": x0, "y0": y0, "v0": v0}
        placed = {name: place(part, mesh, name) for name, part in given.items()}
        settings = Settings(placed["problem"], placed["method"], placed["outer"])
        with processes.alike():
            start = first_state(settings, placed["x0"], placed["y0"], placed["v0"])
        state = place(start, mesh, "The start")
        identity = {}
        if checkpoint is not None or processes.several:  # tracing takes time
            of_run = lambda: parts_of_run(settings, state) | watcher.parts  # noqa: E731
            identity = fingerprint(of_run, processes)
        saved = Checkpoint(checkpoint, every, identity, processes)
        exact = epsilon if method.sampled is None else None  # on batches it is what is measured
        engine = Engine(settings, state, Goal(int(steps), as_plain(exact), budget))
        x0 = placed["x0"]
        del start, state, placed, given  # the engine has copies: nothing here holds others
        watcher.begin(engine)
        feed.begin(engine)
        race = Race(engine, mesh)
        if (found := saved.restore(race.like(watcher.point), int(steps))) is not None:
            (state, point), columns = found
            race.restore(state, columns, saved.stage)
            watcher.restore(point, saved.notes)
        ends = Ends(engine, race, by_itself, outer.finds_its_size)
        growth.begin(engine)
        level, limit = (epsilon if measure is not None else None), as_plain(seconds)
        course = Course(
            engine, feed, growth, ends, watcher, saved, processes, level, limit, callback
        )
        status = course.run(ProgressLine(progress if processes.first else False))
        run = finished(course, x0, status, label)
    if throw and run.status.failed:
        raise RunFailed(run)
    return run


def _most(method: Method, budget: float | Cost | None, seconds: float | None) -> int:
    """The most outer steps where none are given: on batches what else ends the run may do that."""
    ends = budget is not None or seconds is not None
    return ENDLESS if ends and isinstance(method, Method) and method.sampled else MOST
