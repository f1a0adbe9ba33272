"""Gradient descent on the linear system: the Q-loop of Algorithm 1."""

import equinox as eqx
from jaxtyping import Array, Float

from biloop.linear.base import LinearInfo, LinearSolver
from biloop.loops import count, iterate, limit
from biloop.schedules import Schedule, as_steps, as_tolerance, positive
from biloop.vectors import add_scaled, subtract


class Richardson(LinearSolver):
    """Q steps of gradient descent on ½ vᵀHv − bᵀv.

    v ← v − η (H v − b)

    Q products. The residual is that of the last v that was multiplied, v^{Q−1}. Q = 0 keeps v: from
    v⁰ = 0 that is the first-order hypergradient ∇_x f, exact for minimax problems (f = −g).
    """

    step_size: Float[Array, ""] = eqx.field(converter=positive("step_size"))
    steps: Schedule = eqx.field(converter=as_steps(minimum=0))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)

    def __call__(self, matvec, b, v0, k):
        def step(v):
            residual = subtract(matvec(v), b)
            return add_scaled(v, -self.step_size, residual), residual

        loop = iterate(step, v0, b, count(self.steps, k), limit(self.tolerance, k))
        return loop.state, LinearInfo(loop.residual, loop.steps, loop.result, loop.steps)
