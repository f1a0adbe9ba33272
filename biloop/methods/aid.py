"""AID: approximate implicit differentiation (Algorithm 1, AID-BiO with double warm start)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from biloop.inner.descents import InnerSolver, Memory
from biloop.linear import LinearSolver
from biloop.methods.base import (
    Hypergradient,
    HypergradientInfo,
    Seen,
    Warm,
    first_warm,
    judge,
    or_none,
)
from biloop.oracles import Cost, linearise, outer_gradients
from biloop.vectors import subtract, zeros_like


class AID(Hypergradient):
    """The hypergradient of Algorithm 1.

    y ← N steps on g(x, ·) from the last y                       N gradients
    v ← Q steps on ∇²_y g(x, y) v = ∇_y f(x, y) from the last v  Q products
    h ← ∇_x f(x, y) − ∇_x∇_y g(x, y) v                           2 gradients, 1 product

    `warm_start_y=False` starts every N-loop at the y given to `init`, `warm_start_v=False` every
    Q-loop at v = 0 (as Theorem 2 does).
    """

    inner: InnerSolver
    linear: LinearSolver
    warm_start_y: bool = eqx.field(default=True, static=True)
    warm_start_v: bool = eqx.field(default=True, static=True)

    def __check_init__(self):
        if not isinstance(self.inner, InnerSolver):
            raise TypeError(f"AID needs an inner solver, e.g. GradientDescent; got {self.inner!r}.")
        if not isinstance(self.linear, LinearSolver):
            raise TypeError(f"AID needs a linear solver, e.g. Richardson; got {self.linear!r}.")

    def init(self, problem, x, y):
        warm = first_warm(problem, x, y, keep_start=not self.warm_start_y)
        memory = (self.inner.first_memory(warm.y), self.linear.first_memory(warm.v))
        return warm._replace(memory=or_none(memory))

    def __call__(self, problem, x, warm, k):
        y0 = warm.y if self.warm_start_y else warm.start
        learnt, known = warm.memory or (None, None)
        y, inner = self.inner(problem, x, y0, k, learnt)

        value, f_x, f_y = outer_gradients(problem, x, y)
        hessian, cross = linearise(problem, x, y)
        v0 = warm.v if self.warm_start_v else zeros_like(warm.v)
        # Both loops meet one Hessian: what one has seen of its curvature helps the other.
        learnt = Memory() if inner.memory is None else inner.memory
        known = _larger(known, learnt.long)
        # Only an adaptive loop has a memory, and only such a solver takes one.
        v, linear = self.linear(hessian, f_y, v0, k, *([] if known is None else [known]))
        h = subtract(f_x, cross(v))

        cost = Cost(inner.steps + 2, inner.products + linear.products + 1)
        result = judge(
            h,
            (value, f_x, f_y),
            Seen(inner.residual, inner.steps, inner.result),
            Seen(linear.residual, linear.steps, linear.result),
        )
        info = HypergradientInfo(value, inner.residual, linear.residual, cost, result)
        learnt = learnt._replace(long=_larger(learnt.long, linear.memory))
        return h, Warm(y, v, warm.start, or_none((learnt, linear.memory))), info


def _larger(own: Float[Array, ""] | None, other: Float[Array, ""] | None) -> Array | None:
    """The larger 1/μ of two loops, for one that keeps it at all."""
    return own if own is None or other is None else jnp.maximum(own, other.astype(own.dtype))
