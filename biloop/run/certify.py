"""CONVERGED is a statement on ∇Φ, which is measured before it is made.

A method that refines itself is asked again at the same x, from where it ended, until h does not
change: by the program that is compiled already. Others are judged by the reference.
"""

import operator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop import vectors
from biloop.compilation import compiled
from biloop.loops.results import Status
from biloop.methods.reference import Truth, measure
from biloop.problem import Problem
from biloop.problem.variables import as_variable
from biloop.run.engine import Engine
from biloop.run.sharding import in_place_of, to_host

_ACCURACY = 0.1  # of √epsilon
_ROUNDS = 12
_SHORT = 1e-6  # of x
_HALFWAY = 0.5  # of the largest move of an entry of x: those that moved as far are looked at
_RISEN = 10.0  # times the last ‖h‖: on a plateau it is not so large
_NEARER = 0.4  # of the largest move of an entry of x: bounds to compare with
_FLAT = 1e-3  # of what f has fallen by


def is_certain(engine: Engine, epsilon: float, lane: int = 0) -> bool:
    """Whether ‖∇Φ(x)‖² ≤ epsilon for a run, up to the accuracy of the measurement."""
    size = measured_norm(engine, epsilon, lane)
    return size is not None and size <= (1 + _ACCURACY) * epsilon**0.5


def measured_norm(engine: Engine, epsilon: float, lane: int = 0) -> float | None:
    """‖∇Φ(x)‖, to a tenth of itself or of √epsilon; None where it cannot be found."""
    if engine.alone and engine.shared.method.measures_itself(engine.shared.problem):
        return _by_itself(engine, epsilon**0.5)
    truth = jax.device_get(_reference(engine, epsilon, lane))
    return float(truth.size) if truth.found else None


def measured_slope(engine: Engine, epsilon: float) -> float | None:
    """The norm of what the outer step can follow of ∇Φ(x), which differs where x is in a set."""
    truth = _reference(engine, epsilon, 0)
    slope = engine.shared.outer.slope(engine.state.x, truth.h)
    return float(vectors.norm(slope)) if truth.found else None


def _reference(engine: Engine, epsilon: float, lane: int) -> Truth:
    settings = engine.settings_of(lane)
    x, state = engine.take(lane, (engine.state.x, engine.state.method))
    v = state.v if "v" in state._fields else vectors.zeros_like(state.y)
    return _measured(settings.problem, x, state.y, v, np.asarray(epsilon**0.5))


def kink(engine: Engine) -> str:
    """A sentence if x is a minimum at a kink of Φ, which Φ has where a support changes.

    There ∇Φ is not small, but a short step against it leads up instead of down.
    """
    problem, x, state = engine.shared.problem, engine.state.x, engine.state.method
    if problem.kind != "proximal" or not engine.alone:
        return ""
    v, length = vectors.zeros_like(state.y), vectors.norm(x)
    if not length > 0:  # which shows no unit for a short step
        return ""
    here = _measured(problem, x, state.y, v, np.asarray(0.0))
    away = _SHORT * length / here.size
    there = _measured(
        problem, vectors.add_scaled(x, -away, here.h), here.y, here.v, np.asarray(0.0)
    )
    expected = float(away * here.size**2)
    if not (here.found and there.found) or here.value - there.value > 0.1 * expected:
        return ""
    return (
        f"‖∇Φ‖ is {float(here.size):.3g}, but f does not fall along −∇Φ: x is at a kink of Φ, "
        f"where the support of y*(x), or the set of active constraints, changes."
    )


def plateau(engine: Engine, x0: PyTree, value: float) -> str:
    """A sentence if x is where Φ is flat: as far from x0 again f is what it is here.

    So with a penalty exp(x) that is all, or nothing; there ∇Φ is small wherever the minimum is. For
    an outer step that goes as far as it likes.
    """
    outer = engine.shared.outer
    if outer.is_projected or not outer.finds_its_size:
        return ""
    beyond, largest = _as_far_again(engine.state.x, as_variable(x0, "x0"))
    gained = abs(engine.records[0].first("value") - value)
    if not (largest > 0 and gained > 0):
        return ""
    with engine.aside():
        engine.state = engine.state._replace(x=beyond)
        _, row = engine.evaluate()
    if Status(int(row.result)).failed or not abs(float(row.value) - value) <= _FLAT * gained:
        return ""  # NaN, too
    # Beyond a minimum f rises again, be it little beside what a jump of y had brought.
    if row.hypergradient_norm > _RISEN * engine.records[0].last("hypergradient_norm"):
        return ""
    bound = float(f"{_NEARER * largest:.1g}")  # in the unit of x
    return (
        f"Entries of x have moved by up to {largest:.3g}, and as far again f is the same: "
        f"they are on a plateau, where ∇Φ is small wherever the minimum is. If x is the logarithm "
        f"of a penalty, compare with a run in bounds, "
        f'e.g. outer=Projected("auto", Box(-{bound}, {bound})).'
    )


def _as_far_again(x: PyTree, x0: PyTree) -> tuple[PyTree, float]:
    """x with the entries that moved most as far from x0 again, and how far that is.

    On the host: nothing is compiled for it.
    """
    here, there = jax.tree.map(to_host, (x, x0))
    with np.errstate(over="ignore"):
        moved = jax.tree.map(operator.sub, here, there)
    largest = max(float(np.max(np.abs(d))) for d in jax.tree.leaves(moved))
    far = jax.tree.map(
        lambda a, d: a + np.where(np.abs(d) > _HALFWAY * largest, d, 0 * d), here, moved
    )
    return jax.tree.map(in_place_of, x, far), largest


def _by_itself(engine: Engine, level: float) -> float | None:
    """The method again and again at the same x, on a copy of its state."""
    with engine.aside():
        before = np.inf
        for _ in range(_ROUNDS):
            _, row = engine.evaluate()
            size, result = float(row.hypergradient_norm), Status(int(row.result))
            if result.failed or result is Status.NONCONVEX:
                return None
            # A round leaves a tenth of the error, so that what changed bounds what is left.
            if result is Status.COMPLETED and abs(size - before) <= _ACCURACY * max(size, level):
                return size
            before = size
    return None


@compiled(often="once")
def _measured(problem: Problem, x: PyTree, y: PyTree, v: PyTree, level: np.ndarray) -> Truth:
    return measure(problem, x, y, v, accuracy=_ACCURACY, level=jnp.asarray(level))
