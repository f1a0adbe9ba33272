"""From a problem of cross-validation to penalties: the best common one first, then one by one."""

import warnings
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree
from sklearn.exceptions import ConvergenceWarning

from biloop import schemes, vectors
from biloop.compilation import compiled
from biloop.methods import Method
from biloop.problem import Problem
from biloop.run.solve import solve
from biloop.sklearn.family import Task
from biloop.sklearn.folds import FoldsNewton
from biloop.sklearn.penalties import Common, Penalties, Shrunk
from biloop.sklearn.shapes import rounded

_GRID = 8  # common penalties, at least


class Limits(NamedTuple):
    """How far penalties may be apart, and when a run ends."""

    max_ratio: float
    max_iter: int
    tol: float


class Best(NamedTuple):
    """The best common penalty of a grid, the cross-validation loss there, and the models."""

    alpha: float
    value: float
    y: PyTree


class Tuned(NamedTuple):
    """Where a run has ended: x or None for the start, the models, the loss, the outer steps."""

    x: np.ndarray | None
    y: PyTree
    value: float
    steps: int


def method_for(parameters: int, limit: int, quadratic: bool) -> tuple[Method, int]:
    """Dense algebra for models of few parameters, conjugate gradients for the others.

    The latter refines what it found: it is called a few times at each penalty of a grid.
    """
    return (FoldsNewton(quadratic), 1) if parameters <= limit else (schemes.auto(), 4)


def best_common(task: Task, alphas: np.ndarray) -> Best:
    """The common penalty with the smallest cross-validation loss, strong ones first."""
    alphas = np.sort(alphas)[::-1]
    more = rounded(len(alphas), _GRID) - len(alphas)
    grid = np.append(alphas, np.repeat(alphas[-1:], more))
    problem = task.make(Common(jnp.zeros(()), jnp.ones(())))
    rounds = task.rounds
    xs = jnp.asarray(np.repeat(np.log(grid)[:, None], rounds, axis=0))
    values, y = _path(problem, task.method, xs, task.y0)
    values = np.asarray(values)[rounds - 1 :: rounds][: len(alphas)]
    if not np.isfinite(values).any():
        raise ValueError(f"No common penalty between {alphas[-1]} and {alphas[0]} can be fitted.")
    best = int(np.flatnonzero(values <= max(np.nanmin(values), task.floor))[0])
    return Best(float(alphas[best]), float(values[best]), y)


@compiled
def _path(
    problem: Problem, method: Method, xs: Float[Array, "m 1"], y: PyTree
) -> tuple[Float[Array, " m"], PyTree]:
    """f along a path of x, each from where the last ended, and the y of the smallest."""

    def at(carry: tuple[PyTree, PyTree, Array], x: Float[Array, " 1"]) -> tuple[PyTree, Array]:
        state, best, least = carry
        _, state, info = method(problem, x, state, 0)
        value = jnp.where(info.result >= 10, jnp.nan, info.value)
        better = value < least
        best = vectors.where(better, state.y, best)
        return (state, best, jnp.where(better, value, least)), value

    state = method.init(problem, xs[0], y)
    start = (state, state.y, jnp.full((), jnp.inf))
    (_, best, _), values = lax.scan(at, start, xs)
    return values, best


def tune(task: Task, best: Best, penalties: Penalties, limits: Limits, shrinkage: float) -> Tuned:
    """Penalties by hypergradients; the common one where they do not gain what they differ by."""
    common = Tuned(None, best.y, best.value, 0)
    if best.value <= task.floor:
        return common
    problem = task.make(penalties)
    strength = jnp.asarray(shrinkage * task.unit(best.value))
    shrunk = eqx.tree_at(lambda p: p.outer, problem, Shrunk(problem.outer, penalties, strength))
    run = solve(
        shrunk,
        jnp.asarray(penalties.start()),
        best.y,
        task.method,
        steps=limits.max_iter,
        epsilon=(limits.tol * abs(best.value)) ** 2,
        progress=False,
    )
    if run.status.failed:
        warnings.warn(run.message, ConvergenceWarning, stacklevel=4)
    found = run.best
    assert found is not None
    if not found.value < best.value:
        return common._replace(steps=run.steps)
    x = np.asarray(found.x)
    alone = found.value - 0.5 * float(strength) * float(penalties.apart(jnp.asarray(x)))
    return Tuned(x, found.y, alone, run.steps)
