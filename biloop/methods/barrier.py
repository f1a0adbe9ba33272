"""BOME: f goes down while a barrier makes y stay near the minimiser of g."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from biloop import vectors
from biloop.inner import InnerSolver
from biloop.methods.base import (
    Info,
    Method,
    Residuals,
    checked_loops,
    checked_start,
    is_sound,
    judge,
)
from biloop.oracles import Cost, inner_gradients, outer_gradients
from biloop.problem import refuse_kind
from biloop.schedules import Schedule, as_number, number_at, positive
from biloop.vectors import add_scaled, inner_product, subtract


class BarrierState(NamedTuple):
    """y_k, a variable of its own, y_{k+1}, and what the inner solver has found out.

    The last call was at y_k: f there is its value, and belongs to its x.
    """

    y: PyTree
    ahead: PyTree
    inner: PyTree


class Barrier(Method):
    """BOME of Ye, Liu, Wright, Stone and Liu (2022), https://arxiv.org/abs/2209.08709.

    ŷ ← N steps on g(x, ·) from y;   q = g(x, y) − g(x, ŷ)
    λ = max(0, η − ⟨∇f, ∇q⟩ / ‖∇q‖²),   y ← y − ξ (∇_y f + λ ∇_y q),   h = ∇_x f + λ ∇_x q

    h is no estimate of ∇Φ(x): with y it is a direction in which f and q decrease. N + 3 gradients
    of g, 2 of f.

    Parameters
    ----------
    inner : InnerSolver
        The N-loop.
    y_step : number or schedule of k
        ξ; that of x is the outer step.
    strength : number
        η.

    Examples
    --------
    >>> method = bl.Barrier(bl.GradientDescent(step_size=0.3, steps=10), y_step=0.1)
    >>> run = bl.solve(problem, x0, y0, method, outer=0.1, steps=100)
    >>> run.status.name
    'COMPLETED'
    """

    inner: InnerSolver
    y_step: Schedule = eqx.field(converter=as_number("y_step"))
    strength: Float[Array, ""] = eqx.field(default=0.5, converter=positive("strength"))

    def init(self, problem, x, y):
        x, y = checked_start(problem, x, y)
        refuse_kind(problem, ("minimum",), "Barrier", "Use AID or ITD.")
        checked_loops(problem, self.inner)
        return BarrierState(y, y, self.inner.init(y))

    def __call__(self, problem, x, state, k):
        y = state.ahead
        close, own, loop = self.inner(problem, x, y, state.inner, k)
        value, f_x, f_y = outer_gradients(problem, x, y)
        g_x, g_y = inner_gradients(problem, x, y)
        q_x = subtract(g_x, inner_gradients(problem, x, close)[0])
        f, q = (f_x, f_y), (q_x, g_y)
        size = inner_product(q, q)
        cosine = inner_product(f, q) / jnp.where(size > 0, size, jnp.ones_like(size))
        weight = jnp.maximum(self.strength.astype(size.dtype) - cosine, 0.0)
        h, d_y = add_scaled(f, weight, q)
        result = judge(h, value, loop)
        after = BarrierState(y, add_scaled(y, -number_at(self.y_step, k), d_y), own)
        after = vectors.where(is_sound(loop) & jnp.isfinite(value), after, state)
        info = Info(value, loop.cost + Cost(5, 0), result, Residuals(loop.residual))
        return h, after, info

    def stability(self, L):
        numbers = self.inner.stability(L)
        return [] if numbers is None else [("inner", *numbers)]
