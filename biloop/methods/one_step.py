"""One-step approximations: η∇_y f in the place of the adjoint, and no linear loop."""

from typing import Literal, NamedTuple, get_args

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
from biloop.methods.derivatives import Autodiff, Derivatives
from biloop.oracles import Cost, outer_gradients
from biloop.problem import refuse_kind
from biloop.schedules import positive
from biloop.schedules.arguments import one_of, shown
from biloop.vectors import add_scaled, scaled

At = Literal["after", "before"]


class OneStepState(NamedTuple):
    """y_k^N, and what the inner solver has found out."""

    y: PyTree
    inner: PyTree


class OneStep(Method):
    """h = ∇_x f(x, y⁺) − η ∇_x∇_y g(x, ȳ) ∇_y f(x, y⁺), with y⁺ from N inner steps at y.

    v = η∇_y f is the first term of the Neumann series: as if H were I/η. In a direction of
    curvature λ the share 1 − ηλ of v is missing, almost all of it where λ is small. N + 2
    gradients, 1 product.

    Parameters
    ----------
    inner : InnerSolver
        The N-loop.
    step_size : number
        η.
    at : "after" or "before"
        Where ∇_x∇_y g is taken: at ȳ = y⁺ (T1–T2 of Luketina et al., 2016,
        https://arxiv.org/abs/1511.06727), or at the y before the loop: with a single step of size η
        that is the derivative of this step (DARTS of Liu et al., 2019,
        https://arxiv.org/abs/1806.09055).
    derivatives : Derivatives
        `Autodiff()`, or `Differences(radius)`: 2 gradients in the place of the product.

    Examples
    --------
    >>> method = bl.OneStep(bl.GradientDescent(step_size=0.3, steps=30), step_size=0.3)
    >>> h, state, info = method(problem, x0, method.init(problem, x0, y0), 0)
    >>> print(f"{h:.4f}")  # about half of the 0.4676 of `Exact`
    0.2382
    """

    inner: InnerSolver
    step_size: Float[Array, ""] = eqx.field(converter=positive("step_size"))
    at: At = eqx.field(default="after", static=True, converter=one_of("at", get_args(At)))
    derivatives: Derivatives = eqx.field(default_factory=Autodiff)

    def __check_init__(self):
        if not isinstance(self.inner, InnerSolver):
            raise TypeError(
                f"OneStep needs an inner solver, e.g. GradientDescent; got {shown(self.inner)}."
            )
        if not isinstance(self.derivatives, Derivatives):
            raise TypeError(
                f"derivatives must be Autodiff() or Differences(radius), got "
                f"{shown(self.derivatives)}."
            )

    def init(self, problem, x, y):
        x, y = checked_start(problem, x, y)
        refuse_kind(problem, ("minimum",), "OneStep", "Use AID or ITD.")
        checked_loops(problem, self.inner)
        self.derivatives.check(problem)
        return OneStepState(y, self.inner.init(y))

    def __call__(self, problem, x, state, k):
        y, own, loop = self.inner(problem, x, state.y, state.inner, k)
        value, f_x, f_y = outer_gradients(problem, x, y)
        _, _, cross = self.derivatives(problem, x, y if self.at == "after" else state.y)
        h = add_scaled(f_x, -1.0, cross(scaled(self.step_size, f_y)))

        good = is_sound(loop) & jnp.isfinite(value)
        after = vectors.where(good, OneStepState(y, own), state)
        price = self.derivatives.price(1)
        cost = loop.cost + Cost(2 + price.inner, price.products)
        return h, after, Info(value, cost, judge(h, value, loop), Residuals(loop.residual))

    def stability(self, L):
        numbers = self.inner.stability(L)
        return [] if numbers is None else [("inner", *numbers)]
