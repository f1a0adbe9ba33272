"""Iterations for an equilibrium y = T(x, y): the plain one, and Anderson's.

The residual is y − T(x, y), for one evaluation of T, which is counted as a gradient.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.inner.base import Descent
from biloop.schedules import Adaptive, Schedule, as_steps, as_tolerance, positive
from biloop.schedules.arguments import as_count, not_negative
from biloop.vectors import add_scaled, norm, subtract

_WORSE = 2.0  # times the last residual: there mixing starts anew
_PATIENCE = 100


class FixedPoint(Descent):
    """The fixed-point iteration, damped where `damping` is less than 1.

    y ← y − damping · (y − T(x, y))

    It converges where T contracts; `bl.estimate.contraction` measures whether it does.

    Parameters
    ----------
    steps : integer, schedule of k or "auto"
        N, the largest number of evaluations of T.
    tolerance : number or schedule of k
        The loop ends at ‖y − T(x, y)‖ ≤ tolerance. 0 spends all steps.
    damping : number
        1 is the plain iteration.

    Examples
    --------
    >>> bl.FixedPoint(steps=50)
    FixedPoint(steps=50, damping=1)
    """

    steps: Schedule = eqx.field(converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)
    damping: Float[Array, ""] = eqx.field(default=1.0, converter=positive("damping"))

    @property
    def kinds(self):
        return ("equilibrium",)

    def start(self, y, kept):
        return ()

    def step(self, gradient, y, state):
        F = gradient(y)
        return add_scaled(y, -self.damping, F), state, F

    def stability(self, L):
        return float(self.damping), 2 / L


class _History(NamedTuple):
    """T(y) and F(y) of the last step, the last differences of each, how many, and ‖F‖.

    `gram` has the inner products of the differences of F: one of them is new in each step.
    """

    image: PyTree
    residual: PyTree
    images: PyTree
    residuals: PyTree
    gram: Float[Array, "m m"]
    met: Int[Array, ""]
    size: Float[Array, ""]


class Anderson(Descent):
    """Anderson's acceleration of the fixed-point iteration (1965), type II.

    y⁺ = T(y) − Σ_j γ_j ΔT_j,   γ = argmin ‖F(y) − Σ_j γ_j ΔF_j‖,   F(y) = y − T(x, y)

    over the last `history` differences ΔT, ΔF; on an affine T it does what GMRES does (H. Walker
    and P. Ni, 2011). Where ‖F‖ has doubled the history is forgotten. T need not contract. The γ
    are the solution of normal equations, with `ridge` times their trace on the diagonal.

    Parameters
    ----------
    steps, tolerance
        As for `FixedPoint`.
    history : int
        How many differences are kept: as many pairs of vectors of the size of y.
    ridge : number
        Relative, and at least what rounding is in this precision.

    Examples
    --------
    >>> T = lambda x, y: jnp.cos(y) + x
    >>> equilibrium = bl.Problem.fixed_point(T, lambda x, y: y**2)
    >>> solver = bl.Anderson(steps=50, tolerance=1e-6)
    >>> y, state, info = solver(equilibrium, x0, x0, solver.init(x0), 0)
    >>> print(f"{y:.4f}")
    0.7391
    """

    steps: Schedule = eqx.field(converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)
    history: int = eqx.field(default=5, static=True, converter=as_count("history"))
    ridge: Float[Array, ""] = eqx.field(default=1e-14, converter=not_negative("ridge"))

    @property
    def kinds(self):
        return ("equilibrium",)

    @property
    def refines(self):
        return isinstance(self.steps, Adaptive)

    def rule(self, y0, state, k):
        rule = Descent.rule(self, y0, state, k)
        if rule.adaptive is None:
            return rule
        return rule._replace(adaptive=rule.adaptive._replace(rounding=8.0, patience=_PATIENCE))

    def stayed(self, stay, before, after):
        # A choice between histories would copy them, and no step follows that could need them.
        return vectors.where(stay, before[0], after[0]), after[1]

    def start(self, y, kept):
        zero = vectors.zeros_like(y)
        empty = jax.tree.map(lambda a: jnp.zeros((self.history, a.size), a.dtype), y)
        size = jnp.full((), jnp.inf, vectors.accumulator(y))
        gram = jnp.zeros((self.history, self.history), size.dtype)
        return _History(zero, zero, empty, empty, gram, jnp.zeros((), jnp.int32), size)

    def step(self, gradient, y, state):
        F = gradient(y)
        image, size = subtract(y, F), norm(F)
        there = state.met > 0
        slot = lax.rem(jnp.maximum(state.met - 1, 0), jnp.asarray(self.history, jnp.int32))

        def write(rows: PyTree, new: PyTree) -> PyTree:
            def put(r: Array, a: Array) -> Array:
                return lax.dynamic_update_index_in_dim(r, a.reshape(-1), slot, axis=0)

            return jax.tree.map(put, rows, new)

        moved, change = (
            vectors.where(there, subtract(new, old), vectors.zeros_like(old))
            for new, old in ((image, state.image), (F, state.residual))
        )
        images, residuals = write(state.images, moved), write(state.residuals, change)
        products = _products(residuals, change)
        gram = write(write(state.gram, products).T, products)
        worse = ~(size <= _WORSE * state.size)
        # What is forgotten stays where it is until it is written over, and does not count.
        counts = jnp.arange(self.history, dtype=jnp.int32) < jnp.where(
            worse, jnp.zeros_like(state.met), state.met
        )
        # Numbers that were found, not functions of x to be differentiated: at the end of a loop
        # they are the solution of a system that is singular but for rounding.
        gamma = lax.stop_gradient(self._mixture(gram, _products(residuals, F), counts, F))
        mixed = jax.tree.map(
            lambda t, rows: t - (gamma.astype(t.dtype) @ rows).reshape(t.shape), image, images
        )
        count = jnp.where(worse, jnp.ones_like(state.met), state.met + 1)
        after = _History(
            image, F, images, residuals, lax.stop_gradient(gram), count, lax.stop_gradient(size)
        )
        return mixed, after, F

    def _mixture(
        self,
        gram: Float[Array, "m m"],
        b: Float[Array, " m"],
        counts: Bool[Array, " m"],
        like: PyTree,
    ) -> Float[Array, " m"]:
        """γ, zero where nothing counts: its equation there is γ = 0."""
        # Scaled to length one: the last differences may be 10⁻¹⁰ of the first.
        lengths = jnp.sqrt(jnp.diag(gram))
        counts = counts & (lengths > 0) & jnp.isfinite(lengths)
        scale = 1 / jnp.where(counts, lengths, jnp.ones_like(lengths))
        # Differences that depend on one another but for rounding would be a singular system.
        ridge = jnp.maximum(self.ridge.astype(gram.dtype), vectors.eps(like))
        extra = jnp.where(counts, ridge * self.history, jnp.ones_like(lengths))
        both = counts[:, None] & counts[None, :]
        gram = jnp.where(both, scale[:, None] * gram * scale[None, :], jnp.zeros_like(gram))
        right = jnp.where(counts, scale * b, jnp.zeros_like(b))
        return jnp.linalg.solve(gram + jnp.diag(extra), right) * scale


def _products(rows: PyTree, a: PyTree) -> Float[Array, " m"]:
    """The inner products of rows with a vector."""
    dtype = vectors.accumulator(a)
    pairs = zip(jax.tree.leaves(rows), jax.tree.leaves(a), strict=True)
    each = [r.astype(dtype) @ b.reshape(-1).astype(dtype) for r, b in pairs]
    return jnp.sum(jnp.stack(each), axis=0)
