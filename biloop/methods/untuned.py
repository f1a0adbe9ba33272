"""A single loop on batches whose step sizes are found: each entry of y and v has its own."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from biloop import vectors
from biloop.loops.results import FIRST_FAILURE
from biloop.methods.base import Info, Method, Residuals, checked_start
from biloop.methods.directions import check_samples, judged
from biloop.oracles import (
    Cost,
    Product,
    SampleCount,
    gradient_and_products,
    linearise,
    outer_gradients,
)
from biloop.problem import Problem
from biloop.samples import Samples
from biloop.vectors import add_scaled, norm, norms, scaled, subtract, zeros_like

EVERY = 64  # outer steps between measurements of the curvature
_FIRST = 32  # steps of y and v before the first one of x
_PROBES = 8  # batches that the rows of H are measured on
_POWER = 4, 6  # batches that the largest curvature is measured on, and products on each
_FLAT = 0.1  # of the geometric mean of all rows of H: rows that are shorter count as long as that
_SAFE = 0.5  # of the largest stable step, 1/L: x moves on until the next measurement


class UntunedState(NamedTuple):
    """y and v, a step size for each of their entries, a share of all of these, the draws so far."""

    y: PyTree
    v: PyTree
    sizes: PyTree
    share: Float[Array, ""]
    draws: Int[Array, ""]


class Untuned(Method):
    """SOBA with a step size for each entry of y and v, from the curvature of a few batches.

    y ← y − s ∇_y g    v ← v − s (∇²_y g v − ∇_y f)    h = ∇_x f − ∇_x∇_y g v
    s_j = ½ / (λ d_j)    d_j² = E (z ∘ Hz)_j²    λ the largest eigenvalue of d^(−½) H d^(−½)

    with random signs z, so that d_j is the length of row j of H, on batches; all of it is measured
    anew every 64 steps. What x does to a few entries of H alone (a penalty that grows) makes the
    steps of these smaller. d is that of Z. Yao et al., ADAHESSIAN (2021), but for averaging.

    Parameters
    ----------
    samples : Samples
        Which rows a step sees.
    """

    samples: Samples

    def __check_init__(self):
        check_samples(self.samples)

    def init(self, problem, x, y):
        x, y = checked_start(problem, x, y)
        self.samples.check(problem, x, y)
        whole = jnp.ones((), jnp.result_type(float))
        return UntunedState(y, zeros_like(y), zeros_like(y), whole, jnp.zeros((), jnp.int32))

    def __call__(self, problem, x, state, k):
        due = (k % EVERY == 0) | (state.draws == 0)
        measure = lambda: self._sizes(problem, x, state.y, state.draws)  # noqa: E731
        sizes = lax.cond(due, measure, lambda: state.sizes)
        moves = jnp.where(state.draws == 0, _FIRST, 0)
        first = lambda _, state: self._step(problem, x, state)[1]  # noqa: E731
        before = lax.fori_loop(0, moves, first, state._replace(sizes=sizes))
        h, after, value, lengths = self._step(problem, x, before)
        result = judged(lengths[0], value, lengths[1])
        after = vectors.where(result < FIRST_FAILURE, after, state)
        rows = self.samples.sizes(problem)
        looked = jnp.where(due, (_PROBES + _POWER[0] * _POWER[1]) * rows.inner, 0)
        spent = SampleCount(
            inner=(moves + 1) * rows.inner,
            outer=(moves + 2) * rows.outer,
            products=(moves + 2) * rows.inner + looked,
        )
        return h, after, Info(value, Cost(0, 0), result, Residuals(*lengths), spent)

    def _step(
        self, problem: Problem, x: PyTree, state: UntunedState
    ) -> tuple[PyTree, UntunedState, Float[Array, ""], tuple[Float[Array, ""], ...]]:
        """h, the next state, f on the rows of the draw, and the lengths of both directions."""
        y, v, sizes, share, t = state
        batch = problem.batch(*self.samples.rows(problem, t))
        D_y, hessian, cross = gradient_and_products(batch, x, y)
        value, f_x, f_y = outer_gradients(batch, x, y)
        D_v, h = subtract(hessian(v), f_y), subtract(f_x, cross(v))
        y, v = (add_scaled(a, -share, _times(sizes, d)) for a, d in ((y, D_y), (v, D_v)))
        return h, UntunedState(y, v, sizes, share, t + 1), value, norms(D_y, D_v)

    def _sizes(self, problem: Problem, x: PyTree, y: PyTree, t: Int[Array, ""]) -> PyTree:
        """A step size for each entry of y."""

        def hessian(i: Array) -> tuple[Product, PyTree]:
            rows = self.samples.product_rows(problem, t, i)
            return linearise(problem.batch(rows, None), x, y)[0], _signs(
                self.samples.chance(t * _PROBES + i), y
            )

        def row_squares(i: Array) -> PyTree:
            H, z = hessian(i)
            return jax.tree.map(jnp.square, H(z))  # z ∘ Hz, up to signs

        mean = partial(jax.tree.map, lambda a: jnp.mean(a, axis=0))
        lengths = jax.tree.map(
            jnp.sqrt, mean(lax.map(row_squares, jnp.arange(_PROBES, dtype=jnp.int32)))
        )
        least = _FLAT * _middle(lengths)
        lengths = jax.tree.map(lambda a: jnp.maximum(a, least.astype(a.dtype)), lengths)
        roots = jax.tree.map(lambda a: jnp.where(a > 0, a, 1.0) ** -0.5, lengths)

        def largest(i: Array) -> Float[Array, ""]:
            H, z = hessian(i)

            def power(_, pair: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
                z, size = pair
                w = _times(roots, H(_times(roots, scaled(1 / size, z))))
                size = norm(w)
                return w, jnp.where(size > 0, size, jnp.ones_like(size))

            return lax.fori_loop(0, _POWER[1], power, (z, norm(z)))[1]

        steepest = jnp.max(lax.map(largest, jnp.arange(_POWER[0], dtype=jnp.int32)))
        return scaled(_SAFE / steepest, _times(roots, roots))


def _middle(lengths: PyTree) -> Float[Array, ""]:
    """The geometric mean of what is not zero: a few that are huge do not count for more."""
    logs = [jnp.where(a > 0, jnp.log(jnp.where(a > 0, a, 1.0)), 0.0) for a in _leaves(lengths)]
    count = sum(jnp.sum(jnp.where(a > 0, 1.0, 0.0)) for a in _leaves(lengths))
    return jnp.exp(sum(map(jnp.sum, logs)) / jnp.maximum(count, 1.0))


def _leaves(tree: PyTree) -> list[Array]:
    wide = vectors.accumulator(tree)
    return [leaf.astype(wide) for leaf in jax.tree.leaves(tree)]


def _times(a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(jnp.multiply, a, b)


def _signs(key: Array, like: PyTree) -> PyTree:
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(key, len(leaves))
    signs = [jax.random.rademacher(k, a.shape, a.dtype) for k, a in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, signs)
