"""y on its way by Nesterov's momentum, for a g that is not convex; and an h of one such step."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from biloop import vectors
from biloop.loops.iteration import LoopInfo
from biloop.loops.results import Status, code, first_failure
from biloop.methods.base import Info, Method, Residuals, checked_start, is_sound, judge
from biloop.oracles import (
    Cost,
    gradient_and_products,
    inner_value_and_gradient,
    outer_gradients,
)
from biloop.problem import Problem
from biloop.schedules.arguments import as_count
from biloop.vectors import add_scaled, norm, scaled, subtract, zeros_like

_KEPT = 0.9  # of the momentum, in each step
_SHARE = 3e-3  # of ‖y‖: the length of the very first step


class MomentumState(NamedTuple):
    """y and its momentum, the x that h and this y belong to, and the step size, 0 before one is."""

    y: PyTree
    momentum: PyTree
    x: PyTree
    step_size: Float[Array, ""]


class Momentum(Method):
    """h = ∇_x f(x, y) − s ∇_x∇_y g(x, y) ∇_y f(x, y), with y a few steps farther than before.

    d = ∇_y g(x, y − 0.9 s m)    m ← 0.9 m + d    y ← y − s m    s = 0.003 ‖y⁰‖ / ‖d⁰‖

    s is that of the very first step, so that g and y have no scale in it. v = s∇_y f is what one
    step of gradient descent would make of the adjoint: all of H⁻¹ but its first term is missing,
    whatever H is. What h says of x is to be learned while y is in the making.

    Parameters
    ----------
    steps : int
        N, the steps of y in an outer step.
    """

    steps: int = eqx.field(default=5, static=True, converter=as_count("steps"))

    def init(self, problem: Problem, x: PyTree, y: PyTree) -> MomentumState:
        x, y = checked_start(problem, x, y)
        return MomentumState(y, zeros_like(y), x, vectors.zeros((), vectors.accumulator(y)))

    def __call__(self, problem, x, state, k):
        start = norm(state.y)

        def step(_, carry):
            y, momentum, s, before = carry
            ahead = add_scaled(y, -_KEPT * s, momentum)
            g, d = inner_value_and_gradient(problem, x, ahead)
            # ∇g may be finite where g is not defined.
            finite = jnp.isfinite(g) & jnp.isfinite(before)
            length = jnp.where(finite, norm(d), jnp.full_like(before, jnp.nan))
            first = jnp.where(length > 0, _SHARE * start / jnp.where(length > 0, length, 1.0), 0.0)
            s = jnp.where(s > 0, s, first.astype(s.dtype))
            momentum = add_scaled(d, _KEPT, momentum)
            return add_scaled(y, -s, momentum), momentum, s, length

        carry = (state.y, state.momentum, state.step_size, jnp.zeros_like(start))
        y, momentum, s, length = lax.fori_loop(0, self.steps, step, carry)
        value, f_x, f_y = outer_gradients(problem, x, y)
        _, _, cross = gradient_and_products(problem, x, y)
        h = subtract(f_x, cross(scaled(s, f_y)))

        count = jnp.asarray(self.steps, jnp.int32)
        cost = Cost(count, jnp.zeros((), jnp.int32))
        loop = LoopInfo(length, count, cost, code(Status.COMPLETED))
        good = is_sound(loop) & jnp.isfinite(value)
        after = vectors.where(good, MomentumState(y, momentum, x, s), state)
        result = first_failure(judge(h, value, loop), code(Status.NONCONVEX))
        return h, after, Info(value, cost + Cost(2, 1), result, Residuals(length))
