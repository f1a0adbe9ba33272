"""How many outer steps a scheme needs on quadratics, with its step sizes tuned.

All step sizes of a grid run side by side, for several random problems at once. They share the cost
of an outer step, so the smallest K is the smallest cost, and a race ends as soon as no step size
that is still running can win.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop.methods import Hypergradient, Warm
from biloop.outer import GradientStep
from biloop.paper.path import stack
from biloop.problem import Problem
from biloop.problems import Quadratic, quadratic
from biloop.run.chunk import State, outer_step

# A run whose ‖∇Φ‖² has been below this part of ε for so many steps adds nothing to the mean any
# more: its sum is known, and K = sum/ε need not be walked.
SETTLED, CALM = 1e-3, 100


class Field(NamedTuple):
    """Random problems of one κ, with ∇Φ(x) = Hx − b and the ε of each; a leading axis for them."""

    problem: Problem
    x0: Float[Array, "problems p"]
    y0: Float[Array, "problems q"]
    H: Float[Array, "problems p p"]
    b: Float[Array, "problems p"]
    epsilon: Float[Array, " problems"]


class Finish(NamedTuple):
    """The smallest K for each problem, ∞ where none was found, and the step sizes that had it."""

    first: np.ndarray
    """until ‖∇Φ(x_K)‖² ≤ ε"""
    mean: np.ndarray
    """until (1/K) Σ_{k<K} ‖∇Φ(x_k)‖² ≤ ε, the criterion of the theorems"""
    left: np.ndarray
    """the smallest ‖∇Φ‖²/ε where the race ended"""
    first_steps: np.ndarray
    """(η, β) of `first`"""
    mean_steps: np.ndarray
    """(η, β) of `mean`"""


def field(kappa: float, seeds: Sequence[int], accuracy: float) -> Field:
    """Quadratics with L = 1, and ε = accuracy · L (Φ(x_0) − min Φ) for each."""
    found = [quadratic(kappa, seed=seed) for seed in seeds]
    gaps = [each.value(np.asarray(each.x0)) - each.value(each.solution()) for each in found]
    affine = [_affine(each) for each in found]
    return Field(
        stack([each.problem for each in found]),
        stack([each.x0 for each in found]),
        stack([each.y0 for each in found]),
        jnp.asarray([H for H, _ in affine]),
        jnp.asarray([b for _, b in affine]),
        accuracy * jnp.asarray(gaps),
    )


def _affine(problem: Quadratic) -> tuple[np.ndarray, np.ndarray]:
    """H and b of ∇Φ(x) = Hx − b, from the closed form at 0 and at the unit vectors."""
    p = problem.x0.size
    at_zero = problem.hypergradient(np.zeros(p))
    columns = [problem.hypergradient(unit) - at_zero for unit in np.eye(p)]
    return np.stack(columns, axis=1), -at_zero


def race(
    field: Field,
    method: Callable[[Array], Hypergradient],
    eta: Sequence[float],
    beta: Sequence[float],
    most: int,
) -> Finish:
    """Run `method(η)` with every pair of η and β for at most so many outer steps."""
    pairs = np.stack([each.ravel() for each in np.meshgrid(eta, beta, indexing="ij")], axis=1)
    end = jax.device_get(_run(field, method, jnp.asarray(pairs), jnp.asarray(float(most))))
    gradient = np.where(np.isfinite(end.gradient), end.gradient, np.inf)
    return Finish(
        first=end.first.min(axis=1),
        mean=end.mean.min(axis=1),
        left=gradient.min(axis=1) / np.asarray(field.epsilon),
        first_steps=pairs[end.first.argmin(axis=1)],
        mean_steps=pairs[end.mean.argmin(axis=1)],
    )


class _Race(NamedTuple):
    """Where all runs are; every array has the axes (problems, pairs of step sizes)."""

    k: Float[Array, ""]
    state: State
    gradient: Float[Array, "problems pairs"]
    total: Float[Array, "problems pairs"]
    calm: Int[Array, "problems pairs"]
    first: Float[Array, "problems pairs"]
    mean: Float[Array, "problems pairs"]


@eqx.filter_jit
def _run(
    field: Field, method: Callable[[Array], Hypergradient], pairs: Array, most: Array
) -> _Race:
    epsilon = field.epsilon[:, None]

    def step(
        problem: Problem, H: Array, b: Array, pair: Array, state: State
    ) -> tuple[State, Array]:
        eta, beta = pair
        gradient = H @ state.x - b
        outer = GradientStep(beta)
        after, _row, _stop = outer_step(problem, method(eta), outer, state, jnp.full((), -1.0))
        return after, gradient @ gradient

    over_pairs = jax.vmap(step, in_axes=(None, None, None, 0, 0))
    everywhere = jax.vmap(over_pairs, in_axes=(0, 0, 0, None, 0))

    def undecided(race: _Race) -> Bool[Array, ""]:
        # K of the mean is at least k, and at least total/ε: the total only grows.
        can_win = jnp.maximum(race.total / epsilon, race.k) < race.mean.min(axis=1, keepdims=True)
        no_mean = jnp.any(jnp.isinf(race.mean) & can_win, axis=1)
        # All runs are at the same k: the first one that hits has won.
        no_first = jnp.isinf(race.first.min(axis=1)) & jnp.any(jnp.isfinite(race.total), axis=1)
        return (race.k < most) & jnp.any(no_mean | no_first)

    def advance(race: _Race) -> _Race:
        state, gradient = everywhere(field.problem, field.H, field.b, pairs, race.state)
        k, total = race.k + 1, race.total + gradient
        calm = jnp.where(gradient <= SETTLED * epsilon, race.calm + 1, 0)
        first = jnp.where(jnp.isinf(race.first) & (gradient <= epsilon), k, race.first)
        reached = jnp.isinf(race.mean) & (total <= k * epsilon)
        known = jnp.isinf(race.mean) & (calm >= CALM)
        mean = jnp.where(known, jnp.ceil(total / epsilon), race.mean)
        return _Race(k, state, gradient, total, calm, first, jnp.where(reached, k, mean))

    zero = jnp.zeros((field.x0.shape[0], pairs.shape[0]))
    never = jnp.full_like(zero, jnp.inf)
    count = jnp.zeros(zero.shape, jnp.int32)
    x, y = (_spread(each, pairs.shape[0]) for each in (field.x0, field.y0))
    state = State(count, x, Warm(y, jnp.zeros_like(y)), ())
    start = _Race(jnp.zeros(()), state, never, zero, count, never, never)
    return lax.while_loop(undecided, advance, start)


def _spread(start: Array, lanes: int) -> PyTree:
    """The start of each problem, once for every pair of step sizes."""
    return jnp.broadcast_to(start[:, None], (start.shape[0], lanes, *start.shape[1:]))
