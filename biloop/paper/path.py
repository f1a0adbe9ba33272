"""The path of a run: what an observer sees at chosen outer iterations.

Nothing is left out of a run that fails: from there on its rows are NaN.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from biloop.compilation import compiled
from biloop.loops.results import FIRST_FAILURE
from biloop.methods import Method
from biloop.outer import OuterStep
from biloop.problem import Problem
from biloop.run.buffers import copied
from biloop.run.engine import Engine, drive, endless
from biloop.run.goal import Goal
from biloop.run.progress import Pace
from biloop.run.record import Record
from biloop.run.step import Settings, first_state

Observe = Callable[..., PyTree]
"""(x_k, y_k^N, *what is given) to what is to be recorded."""
Points = Sequence[int] | Int[np.ndarray, " points"]


class Path(NamedTuple):
    """f(x_k, y_k^N) and what was observed at the chosen k, and x and y after the last one.

    Of runs side by side all have a leading axis for the run. A run that failed has NaN in the place
    of what it did not reach, and the last x and y that were finite.
    """

    value: np.ndarray
    seen: PyTree
    x: PyTree
    y: PyTree


def outer_variable(x: PyTree, y: PyTree) -> PyTree:
    """Observe x_k."""
    return x


def watch(engine: Engine, *, at: Points, observe: Observe, given: tuple[Any, ...] = ()) -> Path:
    """The path of all runs of an engine up to the last of `at`.

    It pauses before and after each iteration that is looked at: x is that before it, y that after.
    """
    points = [int(k) for k in at]
    seen: list[PyTree] = []
    x = copied(engine.state.x)

    def observe_now() -> None:
        failed = jnp.asarray(engine.stop >= FIRST_FAILURE)
        found = _observed(observe, failed, x, engine.state.method.y, given)
        seen.append(jax.device_get(found))

    def due(k: int) -> int:
        return max(1, points[len(seen)] - k)

    def after_chunk(_: Pace) -> bool:
        nonlocal x
        if engine.k == points[len(seen)] + 1:
            observe_now()
        over = len(seen) == len(points)
        if not over and engine.k == points[len(seen)]:
            x = copied(engine.state.x)
        return over

    drive(engine, due=due, after_chunk=after_chunk)
    while len(seen) < len(points):  # all runs have failed
        observe_now()
    axis = 0 if engine.alone else 1
    values = np.stack([_at(record, points) for record in engine.records])
    return Path(
        values[0] if engine.alone else values,
        jax.tree.map(lambda *rows: np.stack(rows, axis=axis), *seen),
        engine.state.x,
        engine.state.method.y,
    )


def values(
    problem: Problem, method: Method, outer: OuterStep, x0: PyTree, y0: PyTree, *, at: Points
) -> np.ndarray:
    """What the method reports as its value in the iterations `at`; nothing pauses for it."""
    settings = Settings(problem, method, outer)
    engine = Engine(settings, first_state(settings, x0, y0), Goal(int(at[-1]) + 1))
    drive(engine, due=endless, after_chunk=lambda _: False)
    return _at(engine.records[0], at)


def _at(record: Record, points: Points) -> np.ndarray:
    """The values of a record at the chosen k, NaN beyond its end."""
    column = np.append(record.columns()["value"], np.nan)
    return column[np.minimum(points, record.rows)]


@compiled
def _observed(
    observe: Observe, failed: Bool[Array, "..."], x: PyTree, y: PyTree, given: tuple[Any, ...]
) -> PyTree:
    """What is seen of one run, or of each along an axis; NaN of what is not there."""

    def see(failed: Bool[Array, ""], x: PyTree, y: PyTree) -> PyTree:
        seen = observe(x, y, *given)
        return jax.tree.map(lambda a: jnp.where(failed, jnp.full_like(a, jnp.nan), a), seen)

    return (jax.vmap(see) if failed.ndim else see)(failed, x, y)
