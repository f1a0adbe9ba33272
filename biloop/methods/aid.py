"""AID: approximate implicit differentiation (Algorithm 1, AID-BiO with double warm start)."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree

from biloop import vectors
from biloop.inner import InnerSolver
from biloop.linear import LinearSolver
from biloop.loops.adaptive import learn
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
from biloop.oracles import Cost, outer_gradients, started
from biloop.schedules.arguments import as_flag, shown
from biloop.vectors import subtract, zeros_like


class AIDState(NamedTuple):
    """y_k^N and the adjoint v_k^Q, where y started if loops go back there, and the solvers' own."""

    y: PyTree
    v: PyTree
    start: PyTree
    inner: PyTree
    linear: PyTree


class AID(Method):
    """The hypergradient of Algorithm 1.

    y ← N steps on g(x, ·) from the last y                       N gradients
    v ← Q steps on ∇²_y g(x, y) v = ∇_y f(x, y) from the last v  Q products
    h ← ∇_x f(x, y) − ∇_x∇_y g(x, y) v                           2 gradients, 1 product

    Where the problem has a start y⁰(x) each N-loop begins there. With a proximal map, and for an
    equilibrium, the same with the system of `oracles.Adjoint`.

    Parameters
    ----------
    inner : InnerSolver
        The N-loop, e.g. `GradientDescent(0.1, steps=20)` or `NewtonCG()`.
    linear : LinearSolver
        The Q-loop, e.g. `Richardson(0.1, steps=20)` or `CG(steps=10)`.
    warm_start_y : bool
        False starts every N-loop at the y given to `init`.
    warm_start_v : bool
        False starts every Q-loop at v = 0 (as Theorem 2 does).
    derivatives : Derivatives
        How products with ∇²_y g and ∇_x∇_y g are had. `Autodiff()`, the default, has them exactly;
        `Autodiff(recompute=True)` in less memory; `Damped(δ)` and `GaussNewton(δ)` are for
        networks; `Differences(radius)` takes gradients only, two for each product.

    Examples
    --------
    >>> method = bl.AID(inner=bl.GradientDescent(0.1, steps=20), linear=bl.CG(steps=10))
    """

    inner: InnerSolver
    linear: LinearSolver
    warm_start_y: bool = eqx.field(default=True, static=True, converter=as_flag("warm_start_y"))
    warm_start_v: bool = eqx.field(default=True, static=True, converter=as_flag("warm_start_v"))

    derivatives: Derivatives = eqx.field(default_factory=Autodiff)

    def __check_init__(self):
        if not isinstance(self.derivatives, Derivatives):
            raise TypeError(
                f"derivatives must be Autodiff(), Damped(δ), GaussNewton(), Differences() or other "
                f"Derivatives, got {shown(self.derivatives)}."
            )
        if not isinstance(self.inner, InnerSolver):
            raise TypeError(
                f"AID needs an inner solver, e.g. GradientDescent; got {shown(self.inner)}."
            )
        if not isinstance(self.linear, LinearSolver):
            raise TypeError(
                f"AID needs a linear solver, e.g. Richardson; got {shown(self.linear)}."
            )

    def init(self, problem, x, y):
        x, y = checked_start(problem, x, y, takes_start=True)
        checked_loops(problem, self.inner, self.linear)
        self.derivatives.check(problem)
        v = zeros_like(y)
        start = () if self.warm_start_y else y
        return AIDState(y, v, start, self.inner.init(y), self.linear.init(v))

    def __call__(self, problem, x, state, k):
        y0 = started(problem, x, state.y if self.warm_start_y else state.start)
        y, inner_state, inner = self.inner(problem, x, y0, state.inner, k)
        value, f_x, f_y = outer_gradients(problem, x, y)
        step = self.inner.proximal_step(inner_state, y)
        system = self.derivatives.adjoint(problem, x, y, f_y, step)
        # h is that of this y, whatever it is; but a failed loop, or a y where f is not finite,
        # leaves nothing to go on from, so what was there before it is kept.
        sound = is_sound(inner) & jnp.isfinite(value)
        y, inner_state = vectors.where(sound, (y, inner_state), (state.y, state.inner))

        v0 = state.v if self.warm_start_v else zeros_like(state.v)
        # Both loops meet one Hessian: what one has seen of its curvature helps the other.
        known = learn(state.linear, inner_state)
        v, linear_state, linear = self.linear(system.product, system.right, v0, known, k)
        h = subtract(f_x, system.cross(v))
        fine = is_sound(linear)
        v = vectors.where(fine, v, zeros_like(v))
        linear_state = vectors.where(fine, linear_state, state.linear)

        cost = inner.cost + Cost(2, 0) + self._priced(linear.cost + Cost(0, 1))
        result = judge(h, value, inner, linear)
        info = Info(value, cost, result, Residuals(inner.residual, linear.residual))
        inner_state = learn(inner_state, linear_state)
        return h, AIDState(y, v, state.start, inner_state, linear_state), info

    def _priced(self, cost: Cost) -> Cost:
        """The cost of products, each of which may cost gradients instead."""
        price = self.derivatives.price(1)
        return Cost(cost.gradients + price.inner * cost.products, price.products * cost.products)

    @property
    def refines(self):
        return self.inner.refines and self.linear.refines and self.warm_start_y

    def measures_itself(self, problem):
        return self.refines and problem.start is None  # from where no call goes on

    @property
    def follows(self):
        return self.warm_start_y and not self.inner.judges

    def stability(self, L):
        found = (("inner", self.inner.stability(L)), ("linear", self.linear.stability(L)))
        return [(loop, *numbers) for loop, numbers in found if numbers is not None]
