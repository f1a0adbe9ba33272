"""Gradient descent on the linear system: the Q-loop of Algorithm 1."""

import equinox as eqx
from jaxtyping import Array, Float

from biloop.linear.base import LinearInfo, LinearSolver
from biloop.loops.iteration import adaptivity, count, first_length, iterate, limit
from biloop.loops.step_size import BarzilaiBorwein, as_step_size
from biloop.schedules import Schedule, as_steps, as_tolerance
from biloop.vectors import add_scaled, subtract


class Richardson(LinearSolver):
    """Q steps of gradient descent on ½ vᵀHv − bᵀv.

    v ← v − η (H v − b)

    Q products. The residual is that of the last v that was multiplied, v^{Q−1}. Q = 0 keeps v: from
    v⁰ = 0 that is the first-order hypergradient ∇_x f, exact for minimax problems (f = −g).
    `step_size="auto"` finds η along the way, see `BarzilaiBorwein`.
    """

    step_size: Float[Array, ""] | BarzilaiBorwein = eqx.field(converter=as_step_size)
    steps: Schedule = eqx.field(converter=as_steps(minimum=0))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)

    def first_memory(self, v):
        return first_length(self.steps, v)

    def __call__(self, matvec, b, v0, k, memory=None):
        rule = self.step_size

        def step(state):
            v, past = state
            residual = subtract(matvec(v), b)
            if isinstance(rule, BarzilaiBorwein):
                return rule.step(v, residual, past), residual
            return (add_scaled(v, -rule, residual), past), residual

        start = (v0, rule.init(v0) if isinstance(rule, BarzilaiBorwein) else ())
        loop = iterate(
            step,
            start,
            b,
            count(self.steps, k),
            limit(self.tolerance, k),
            adaptivity(self.steps, v0, lambda before, _: before[0], memory),
        )
        v, past = loop.state
        if isinstance(rule, BarzilaiBorwein):
            v = rule.finish(past)
        return v, LinearInfo(loop.residual, loop.steps, loop.result, loop.steps, loop.long)
