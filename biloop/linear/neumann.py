"""The truncated Neumann series of the inverse Hessian."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from biloop.linear.base import LinearSolver, linear_info
from biloop.linear.stepped import Stepped
from biloop.loops.iteration import Rule, iterate, limit
from biloop.loops.results import Status, code_if, first_failure
from biloop.schedules import Schedule, as_steps, as_tolerance, positive, step_count
from biloop.vectors import add_scaled, norm, scaled, subtract, zeros_like


class Neumann(LinearSolver, Stepped):
    """The first Q terms of the Neumann series, applied to the residual at v⁰.

    v = v⁰ + η Σ_{j=0}^{Q−1} (I − ηH)^j (b − H v⁰)

    From v⁰ = 0 this is the textbook series with Q terms and the same v as Q Richardson steps. The
    next term is the residual, b − H v = (I − ηH)^Q (b − H v⁰), up to rounding; the price is one
    product more than Richardson, Q + 1 in all. With a tolerance the residual at the v returned is
    computed as well, for another one: the terms say when to stop, but do not judge themselves.

    On batches, where there is no residual to compute, Q terms from v⁰ = 0 take Q − 1 products.

    Parameters
    ----------
    step_size : number or schedule of k
        η, at most 1/L.
    steps : integer or schedule of k
        Q, the number of terms.
    tolerance : number or schedule of k
        The series ends where the next term is at most that; 0, the default, takes all terms.

    Examples
    --------
    >>> solver = bl.Neumann(step_size=0.25, steps=60)
    >>> v, state, info = solver(matvec, b, y0, solver.init(y0), 0)
    >>> print(np.asarray(v).round(3), int(info.cost.products))
    [1.   0.5  0.25] 61
    """

    step_size: Float[Array, ""] = eqx.field(converter=positive("step_size"))
    steps: Schedule = eqx.field(converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)

    @property
    def needs_symmetry(self):
        return False

    @property
    def judges(self):
        return self.tolerance is not None

    def init(self, v):
        return ()

    def __call__(self, matvec, b, v0, state, k):
        def step(carry):
            v, term = carry
            v = add_scaled(v, self.step_size, term)
            term = add_scaled(term, -self.step_size, matvec(term))
            return (v, term), term

        first = subtract(b, matvec(v0))
        tolerance = limit(self.tolerance, k)
        rule = Rule(step_count(self.steps, k), tolerance)
        loop = iterate(step, (v0, first), b, rule, residual_first=False)
        v, _ = loop.state
        residual, result, products = loop.residual, loop.result, loop.steps + 1
        if tolerance is not None:
            residual = norm(subtract(b, matvec(v)))
            missed = ~(residual <= tolerance.astype(residual.dtype))
            result = first_failure(loop.result, code_if(missed, Status.UNCONVERGED))
            products = products + jnp.ones((), jnp.int32)
        return v, (), linear_info(residual, loop.steps, products, result)

    def begin(self, b, v0):
        return zeros_like(b), b

    def step(self, matvec, b, state, k):
        total, term = state
        total = add_scaled(total, 1.0, term)
        return total, add_scaled(term, -self.step_size, matvec(term))

    def finish(self, state, k):
        total, term = state
        return scaled(self.step_size, add_scaled(total, 1.0, term))

    def length(self, key, k):
        return self.longest(k)

    def longest(self, k):
        return step_count(self.steps, k) - 1

    @property
    def starts_cold(self):
        return True

    def stability(self, L):
        return float(self.step_size), 2 / L
