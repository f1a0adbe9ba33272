"""From a problem of cross-validation to penalties: the best common one first, then one by one."""

import warnings
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree
from sklearn.exceptions import ConvergenceWarning

from biloop import schemes
from biloop.compilation import compiled
from biloop.loops.results import FIRST_FAILURE
from biloop.methods import Method
from biloop.problem import Problem
from biloop.run.solve import solve
from biloop.sklearn.family import Best, Task
from biloop.sklearn.folds import FoldsNewton
from biloop.sklearn.penalties import Penalties, Scaled, Shrunk
from biloop.sklearn.shapes import rounded

_GRID = 8  # common penalties, at least
_ROUNDS = 4  # of loops that refine what they found, at each penalty of a grid


class Limits(NamedTuple):
    """How far penalties may be apart, and when a run ends."""

    max_ratio: float
    max_iter: int
    tol: float


class Tuned(NamedTuple):
    """Where a run has ended: x or None for the start, the models, the outer steps."""

    x: np.ndarray | None
    y: PyTree
    steps: int


def method_for(parameters: int, limit: int, quadratic: bool) -> Method:
    """Dense algebra for models of few parameters, conjugate gradients for the others."""
    return FoldsNewton(quadratic) if parameters <= limit else schemes.auto()


class Path(NamedTuple):
    """The models at each common factor of given penalties, and where they could not be found."""

    ys: PyTree
    failed: np.ndarray

    def y(self, i: int) -> PyTree:
        """Those of one factor."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[i]), self.ys)


def along(task: Task, ratios: np.ndarray, alphas: np.ndarray) -> Path:
    """The models for penalties that have these ratios, with factors in falling order."""
    more = rounded(len(alphas), _GRID) - len(alphas)
    grid = np.append(alphas, np.repeat(alphas[-1:], more))
    models = len(jax.tree.leaves(task.y0)[0])
    each = np.ones((models, task.features))
    each[:, : ratios.shape[1]] = ratios
    problem = task.make(Scaled(jnp.zeros(()), jnp.ones(()), jnp.asarray(each)))
    xs = jnp.asarray(np.log(grid)[:, None])
    ys, results = jax.device_get(_path(problem, task.method, xs, task.y0))
    found = jax.tree.map(lambda leaf: leaf[: len(alphas)], ys)
    return Path(found, results[: len(alphas)] >= FIRST_FAILURE)


@compiled
def _path(
    problem: Problem, method: Method, xs: Float[Array, "m 1"], y: PyTree
) -> tuple[PyTree, Int[Array, " m"]]:
    """y along a path of x, each from where the last ended, and what became of the loops there."""
    rounds = 1 if isinstance(method, FoldsNewton) else _ROUNDS

    def at(state: PyTree, x: Float[Array, " 1"]) -> tuple[PyTree, tuple[PyTree, Array]]:
        def again(state: PyTree, _: None) -> tuple[PyTree, Array]:
            _, state, info = method(problem, x, state, 0)
            return state, info.result

        state, results = lax.scan(again, state, length=rounds)  # compiled once, not in each round
        return state, (state.y, results[-1])

    return lax.scan(at, method.init(problem, xs[0], y), xs)[1]


def tune(task: Task, start: Best, penalties: Penalties, limits: Limits, shrinkage: float) -> Tuned:
    """Penalties by hypergradients; None where they do not gain what they differ by."""
    if start.value <= task.floor:
        return Tuned(None, start.y, 0)
    problem = task.make(penalties)
    strength = jnp.asarray(shrinkage * task.unit(start.value))
    shrunk = eqx.tree_at(lambda p: p.outer, problem, Shrunk(problem.outer, penalties, strength))
    run = solve(
        shrunk,
        jnp.asarray(penalties.start()),
        start.y,
        task.method,
        steps=limits.max_iter,
        epsilon=(limits.tol * abs(start.value)) ** 2,
        progress=False,
    )
    if run.status.failed:
        warnings.warn(run.message, ConvergenceWarning, stacklevel=4)
    found = run.best
    assert found is not None
    x = np.asarray(found.x) if found.value < start.value else None
    return Tuned(x, found.y, run.steps)


def surpasses(tuned: Best, common: Best, optimism: float) -> bool:
    """Whether tuned penalties lose less than the common one, beyond what tuning alone explains.

    That is `optimism`, and the standard error of the mean of the differences, sample by sample;
    weights count as repetitions.
    """
    gained, shares = common.losses - tuned.losses, common.shares
    mean = np.average(gained, weights=shares)
    variance = np.average((gained - mean) ** 2, weights=shares)
    return bool(mean - optimism > np.sqrt(variance / shares.sum()))
