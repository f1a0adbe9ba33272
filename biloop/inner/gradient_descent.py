"""Gradient descent, and its two ways to remember: Nesterov's momentum and the heavy ball."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from biloop.inner.base import Descent
from biloop.loops.step_size import FixedStep, Given, as_step_size, rule_of, with_step_at
from biloop.schedules import Schedule, as_steps, as_tolerance, is_concrete, number, positive
from biloop.vectors import add_scaled, scaled, subtract, zeros_like


class GradientDescent(Descent):
    """Gradient descent, the N-loop of Algorithms 1 and 2.

    y ← y − α ∇_y g(x, y)

    Parameters
    ----------
    step_size : number, schedule of k or "auto"
        α. "auto" finds it along the way, see `BarzilaiBorwein`.
    steps : integer, schedule of k or "auto"
        N, the largest number of steps. "auto" is `Adaptive()`.
    tolerance : number or schedule of k
        The loop ends at ‖∇_y g(x, y)‖ ≤ tolerance. 0, the default, spends all steps.

    Examples
    --------
    >>> bl.GradientDescent(step_size=0.1, steps=20)
    GradientDescent(step_size=0.1, steps=20)
    """

    step_size: Given = eqx.field(converter=as_step_size)
    steps: Schedule = eqx.field(converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)

    def at(self, k):
        return with_step_at(self, k)

    def nothing(self, y):
        return rule_of(self.step_size).init(y)

    def start(self, y, kept):
        return rule_of(self.step_size).start(y, kept)

    def step(self, gradient, y, state):
        d = gradient(y)
        y, state = rule_of(self.step_size).step(y, d, state)
        return y, state, d

    def finish(self, y, state):
        return rule_of(self.step_size).finish(y, state)

    def keep(self, state):
        return rule_of(self.step_size).keep(state)

    def stability(self, L):
        return rule_of(self.step_size).stability(L)


class Nesterov(Descent):
    """Nesterov's accelerated gradient with constant momentum, for strongly convex g.

    y⁺ ← z − α ∇_y g(x, z),   z⁺ ← y⁺ + m (y⁺ − y)

    With α = 1/L and m = (√κ − 1)/(√κ + 1) the error contracts by 1 − 1/√κ per step: Nesterov,
    Lectures on Convex Optimization (2018), scheme (2.2.22). `Nesterov.tuned(L, mu, …)` sets both.

    Parameters
    ----------
    step_size : number or schedule of k
        α.
    momentum : number or schedule of k
        m, below 1.
    steps, tolerance
        As for `GradientDescent`.

    Examples
    --------
    >>> solver = bl.Nesterov.tuned(L=2.5, mu=1.0, steps=30)
    >>> y, state, info = solver(problem, x0, y0, solver.init(y0), 0)
    >>> print(np.asarray(y).round(3))
    [ 0.838 -0.453  0.096]
    """

    step_size: Float[Array, ""] = eqx.field(converter=positive("step_size"))
    momentum: Float[Array, ""] = eqx.field(converter=lambda m: _momentum(m))
    steps: Schedule = eqx.field(converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)

    @classmethod
    def tuned(cls, L: float, mu: float, steps: Any, tolerance: Any = 0.0) -> "Nesterov":
        """The step size and momentum for eigenvalues of the inner Hessian between mu and L."""
        root = _root_kappa(L, mu)
        return cls(1 / L, (root - 1) / (root + 1), steps, tolerance)

    def nothing(self, y):
        return FixedStep(self.step_size).init(y)

    def start(self, y, kept):
        return y

    def point(self, y, state):
        return state

    def step(self, gradient, y, state):
        z = state
        d = gradient(z)
        y_next = add_scaled(z, -self.step_size, d)
        return y_next, add_scaled(y_next, self.momentum, subtract(y_next, y)), d

    def stability(self, L):
        # |m(1 − αλ)| < 1 and 2(1 + m) > αλ(1 + 2m) for the two-step recursion at eigenvalue λ.
        m = float(self.momentum)
        return float(self.step_size), (2 + 2 * m) / (1 + 2 * m) / L


class HeavyBall(Descent):
    """Polyak's heavy ball.

    y⁺ ← y − α ∇_y g(x, y) + m (y − y⁻)

    With α = 4/(√L + √μ)² and m = ((√κ − 1)/(√κ + 1))² it is the fastest such method on quadratics
    (Polyak, 1964); on other functions it need not converge. `HeavyBall.tuned(L, mu, …)` sets both.

    Parameters
    ----------
    step_size : number or schedule of k
        α.
    momentum : number or schedule of k
        m, below 1.
    steps, tolerance
        As for `GradientDescent`.

    Examples
    --------
    >>> solver = bl.HeavyBall.tuned(L=2.5, mu=1.0, steps=30)
    >>> y, state, info = solver(problem, x0, y0, solver.init(y0), 0)
    >>> print(np.asarray(y).round(3))
    [ 0.838 -0.453  0.096]
    """

    step_size: Float[Array, ""] = eqx.field(converter=positive("step_size"))
    momentum: Float[Array, ""] = eqx.field(converter=lambda m: _momentum(m))
    steps: Schedule = eqx.field(converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)

    @classmethod
    def tuned(cls, L: float, mu: float, steps: Any, tolerance: Any = 0.0) -> "HeavyBall":
        """The step size and momentum for eigenvalues of the inner Hessian between mu and L."""
        root = _root_kappa(L, mu)
        return cls(4 / (L**0.5 + mu**0.5) ** 2, ((root - 1) / (root + 1)) ** 2, steps, tolerance)

    def nothing(self, y):
        return FixedStep(self.step_size).init(y)

    def start(self, y, kept):
        return zeros_like(y)

    def step(self, gradient, y, state):
        d = gradient(y)
        velocity = add_scaled(scaled(self.momentum, state), -self.step_size, d)
        return add_scaled(y, 1.0, velocity), velocity, d

    def stability(self, L):
        return float(self.step_size), 2 * (1 + float(self.momentum)) / L


def _momentum(value: Any) -> Float[Array, ""]:
    momentum = number(value, "momentum")
    if is_concrete(momentum) and not 0 <= float(momentum) < 1:
        raise ValueError(f"momentum must be at least 0 and less than 1, got {value}.")
    return momentum


def _root_kappa(L: float, mu: float) -> float:
    if not 0 < mu <= L < jnp.inf:
        raise ValueError(f"The eigenvalue bounds must satisfy 0 < mu <= L, got mu={mu}, L={L}.")
    return (L / mu) ** 0.5
