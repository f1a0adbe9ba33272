"""The truncated Neumann series of the inverse Hessian."""

import equinox as eqx
from jaxtyping import Array, Float

from biloop.linear.base import LinearInfo, LinearSolver
from biloop.loops.iteration import count, iterate, limit
from biloop.schedules import Schedule, as_steps, as_tolerance, positive
from biloop.vectors import add_scaled, subtract


class Neumann(LinearSolver):
    """The first Q terms of the Neumann series, applied to the residual at v⁰.

    v = v⁰ + η Σ_{j=0}^{Q−1} (I − ηH)^j (b − H v⁰)

    From v⁰ = 0 this is the textbook series with Q terms and the same v as Q Richardson steps. The
    next term is the residual itself, b − H v = (I − ηH)^Q (b − H v⁰), so it is known exactly at the
    v returned; the price is one product more than Richardson, Q + 1 in all.
    """

    step_size: Float[Array, ""] = eqx.field(converter=positive("step_size"))
    steps: Schedule = eqx.field(converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)

    def __call__(self, matvec, b, v0, k):
        def step(carry):
            v, term = carry
            v = add_scaled(v, self.step_size, term)
            term = add_scaled(term, -self.step_size, matvec(term))
            return (v, term), term

        first = subtract(b, matvec(v0))
        loop = iterate(step, (v0, first), b, count(self.steps, k), limit(self.tolerance, k))
        v, _ = loop.state
        return v, LinearInfo(loop.residual, loop.steps, loop.result, loop.steps + 1)
