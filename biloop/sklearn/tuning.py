"""From a problem of cross-validation to penalties: the best common one first, then one by one."""

import warnings
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, NamedTuple

import equinox as eqx
import jax
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
from biloop.sklearn.folds import FoldsNewton
from biloop.sklearn.penalties import Penalties, Shrunk

_FREE = 1e9  # a reach that bounds nothing
_ROUNDS = 4  # calls at one penalty of a method that refines itself


class Task(NamedTuple):
    """Cross-validation to be tuned: the problem for given penalties, and what is known of it.

    `unit` is the change of f by one unit of the logarithm of a likelihood: priors are in it. Values
    of f below `floor` are rounding, and none is better than another.
    """

    make: Callable[[Penalties], Problem]
    y0: PyTree
    groups: np.ndarray
    method: Method
    unit: Callable[[float], float]
    floor: float


class Limits(NamedTuple):
    """How far penalties may be apart, and when a run ends."""

    max_ratio: float
    max_iter: int
    tol: float


class Common(NamedTuple):
    """The best common penalty of a grid, the cross-validation loss there, and the models."""

    alpha: float
    value: float
    y: PyTree


class Tuned(NamedTuple):
    """Where a run has ended: x, the models, the loss without prior, and the outer steps."""

    x: np.ndarray
    alphas: np.ndarray  # of groups
    y: PyTree
    value: float
    steps: int


@contextmanager
def double_precision() -> Any:
    """float64 inside, whatever JAX is set to outside."""
    enabled = getattr(jax, "enable_x64", None)
    if enabled is None:  # before JAX 0.8
        from jax.experimental import enable_x64 as enabled  # pyright: ignore[reportAttributeAccessIssue]
    with enabled(True), jax.numpy_rank_promotion("allow"):
        yield


def method_for(parameters: int, limit: int, quadratic: bool) -> Method:
    """Dense algebra for models of few parameters, conjugate gradients for the others."""
    return FoldsNewton(quadratic) if parameters <= limit else schemes.auto()


def best_common(task: Task, alphas: np.ndarray) -> Common:
    """The common penalty with the smallest cross-validation loss, strong ones first."""
    alphas = np.sort(alphas)[::-1]
    count = int(task.groups.max()) + 1
    problem = task.make(Penalties(*map(jnp.asarray, (0.0, _FREE, task.groups))))
    xs = jnp.asarray(np.tile(np.log(alphas)[:, None], (1, count)))
    rounds = 1 if isinstance(task.method, FoldsNewton) else _ROUNDS
    values, y = _path(problem, task.method, jnp.repeat(xs, rounds, axis=0), task.y0)
    values = np.asarray(values)[rounds - 1 :: rounds]
    if not np.isfinite(values).any():
        raise ValueError(f"No common penalty between {alphas[-1]} and {alphas[0]} can be fitted.")
    best = int(np.flatnonzero(values <= max(np.nanmin(values), task.floor))[0])
    return Common(float(alphas[best]), float(values[best]), y)


@compiled
def _path(
    problem: Problem, method: Method, xs: Float[Array, "m g"], y: PyTree
) -> tuple[Float[Array, " m"], PyTree]:
    """f along a path of x, each from where the last ended, and the y of the smallest."""

    def at(carry: tuple[PyTree, PyTree, Array], x: Float[Array, " g"]) -> tuple[PyTree, Array]:
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


def as_tuned(common: Common, groups: np.ndarray) -> Tuned:
    """The common penalty as what a run would have found."""
    count = int(groups.max()) + 1
    return Tuned(np.zeros(count), np.full(count, common.alpha), common.y, common.value, 0)


def tune(
    task: Task,
    common: Common,
    limits: Limits,
    shrinkage: float = 0.0,
    start: Tuned | None = None,
) -> Tuned:
    """Penalties by hypergradients from the common one; never with a larger f than there."""
    if common.value <= task.floor:
        return as_tuned(common, task.groups)
    penalties = Penalties(
        jnp.asarray(np.log(common.alpha)),
        jnp.asarray(np.log(limits.max_ratio)),
        jnp.asarray(task.groups),
    )
    problem = task.make(penalties)
    strength = jnp.asarray(shrinkage * task.unit(common.value))
    shrunk = eqx.tree_at(lambda p: p.outer, problem, Shrunk(problem.outer, strength))
    nothing = np.zeros(int(task.groups.max()) + 1)
    x0, y0 = (nothing, common.y) if start is None else (start.x, start.y)
    run = solve(
        shrunk,
        jnp.asarray(x0),
        y0,
        task.method,
        steps=limits.max_iter,
        epsilon=(limits.tol * abs(common.value)) ** 2,
        progress=False,
    )
    if run.status.failed:
        warnings.warn(run.message, ConvergenceWarning, stacklevel=4)
    best = run.best
    assert best is not None
    x, y, value = np.asarray(best.x), best.y, best.value
    if not value <= run.trace["value"][0]:  # a rise within what an outer step allows for
        x, y = x0, y0
    apart = x - x.mean()
    alone = value - 0.5 * float(strength) * float(apart @ apart)
    return Tuned(x, np.asarray(penalties.of_groups(jnp.asarray(x))), y, alone, run.steps)
