"""The N-loop: y ≈ y*(x), by N steps on g(x, ·) from the y of the last outer step.

Each step evaluates ∇_y g once, so N steps cost N gradients. The residual that a loop reports is the
norm of the last gradient it computed; the y it returns is the step taken with that gradient.
Momentum and optimizer states start anew in each outer step: only y is carried over, and a step size
that the loop has found itself.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from biloop.loops.iteration import adaptivity, count, first_length, iterate, limit
from biloop.loops.step_size import BarzilaiBorwein, as_step_size
from biloop.oracles import inner_gradient
from biloop.problem import Problem
from biloop.results import Code
from biloop.schedules import Count, Schedule, as_steps, as_tolerance, is_concrete, number, positive
from biloop.vectors import add_scaled, subtract, zeros_like

Gradient = Callable[[PyTree], PyTree]


class Memory(NamedTuple):
    """What a loop leaves to that of the next outer step: the method's own, and the loop's 1/μ."""

    method: PyTree = None
    long: Float[Array, ""] | None = None


class InnerInfo(NamedTuple):
    """‖∇_y g‖ where it was last evaluated, steps used (each one gradient), and a result code.

    `memory` is what the loop of the next outer step may start from beside y, `products` what a
    method spends beside gradients.
    """

    residual: Float[Array, ""]
    steps: Int[Array, ""]
    result: Code
    memory: Memory = Memory()
    products: Int[Array, ""] | int = 0


class InnerSolver(eqx.Module):
    """A descent method for g(x, ·). A new one is `init`, `step` and `stability`."""

    steps: eqx.AbstractVar[Schedule]
    tolerance: eqx.AbstractVar[Schedule | None]

    @abstractmethod
    def init(self, y: PyTree) -> PyTree:
        """What the method remembers between its steps."""

    @abstractmethod
    def step(self, gradient: Gradient, y: PyTree, state: PyTree) -> tuple[PyTree, PyTree, PyTree]:
        """One step: the new y and state, and the one gradient that was evaluated for them."""

    @abstractmethod
    def stability(self, L: float) -> tuple[float, float] | None:
        """The step size, and the largest stable one on a quadratic with largest eigenvalue L."""

    def resume(self, y: PyTree, memory: PyTree) -> PyTree:
        """The state at the start of a loop, given what the last one left; by default nothing."""
        return self.init(y)

    def remember(self, state: PyTree) -> PyTree:
        """What the end of a loop leaves for the next one; by default nothing."""
        return None

    def point(self, y: PyTree, state: PyTree) -> PyTree:
        """Where the next step will evaluate the gradient; by default at y."""
        return y

    def finish(self, y: PyTree, state: PyTree) -> PyTree:
        """The y to return; by default where the last step led."""
        return y

    def first_memory(self, y: PyTree) -> Memory:
        """What is known before the first outer step."""
        return Memory(self.remember(self.init(y)), first_length(self.steps, y))

    def __call__(
        self, problem: Problem, x: PyTree, y0: PyTree, k: Count, memory: Memory | None = None
    ) -> tuple[PyTree, InnerInfo]:
        """y ≈ argmin_y g(x, y), started at y0, in outer iteration k."""
        gradient = partial(inner_gradient, problem, x)
        memory = self.first_memory(y0) if memory is None else memory

        def step(carry: tuple[PyTree, PyTree]) -> tuple[tuple[PyTree, PyTree], PyTree]:
            y, state, d = self.step(gradient, *carry)
            return (y, state), d

        loop = iterate(
            step,
            (y0, self.resume(y0, memory.method)),
            y0,
            count(self.steps, k),
            limit(self.tolerance, k),
            adaptivity(self.steps, y0, lambda before, _: self.point(*before), memory.long, k=k),
        )
        y, state = loop.state
        memory = Memory(self.remember(state), loop.long)
        return self.finish(y, state), InnerInfo(loop.residual, loop.steps, loop.result, memory)


class GradientDescent(InnerSolver):
    """Gradient descent, the N-loop of Algorithms 1 and 2.

    y ← y − α ∇_y g(x, y)

    `step_size="auto"` finds α along the way, see `BarzilaiBorwein`.
    """

    step_size: Float[Array, ""] | BarzilaiBorwein = eqx.field(converter=as_step_size)
    steps: Schedule = eqx.field(converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)

    def init(self, y):
        return self.step_size.init(y) if isinstance(self.step_size, BarzilaiBorwein) else ()

    def resume(self, y, memory):
        if memory is None or not isinstance(self.step_size, BarzilaiBorwein):
            return self.init(y)
        return self.step_size.resume(y, memory)

    def remember(self, state):
        return state.step if isinstance(self.step_size, BarzilaiBorwein) else None

    def finish(self, y, state):
        return self.step_size.finish(state) if isinstance(self.step_size, BarzilaiBorwein) else y

    def step(self, gradient, y, state):
        d = gradient(y)
        if isinstance(self.step_size, BarzilaiBorwein):
            return *self.step_size.step(y, d, state), d
        return add_scaled(y, -self.step_size, d), state, d

    def stability(self, L):
        if isinstance(self.step_size, BarzilaiBorwein):
            return None
        return float(self.step_size), 2 / L


class Nesterov(InnerSolver):
    """Nesterov's accelerated gradient with constant momentum, for strongly convex g.

    y⁺ ← z − α ∇_y g(x, z),   z⁺ ← y⁺ + m (y⁺ − y)

    With α = 1/L and m = (√κ − 1)/(√κ + 1) the error contracts by 1 − 1/√κ per step: Nesterov,
    Lectures on Convex Optimization (2018), scheme (2.2.22). `Nesterov.tuned(L, mu, …)` sets both.
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

    def init(self, y):
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


class HeavyBall(InnerSolver):
    """Polyak's heavy ball.

    y⁺ ← y − α ∇_y g(x, y) + m (y − y⁻)

    With α = 4/(√L + √μ)² and m = ((√κ − 1)/(√κ + 1))² it is the fastest such method on quadratics
    (Polyak, 1964); on other functions it need not converge. `HeavyBall.tuned(L, mu, …)` sets both.
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

    def init(self, y):
        return zeros_like(y)

    def step(self, gradient, y, state):
        d = gradient(y)
        velocity = add_scaled(
            jax.tree.map(lambda s: self.momentum.astype(s.dtype) * s, state), -self.step_size, d
        )
        return add_scaled(y, 1.0, velocity), velocity, d

    def stability(self, L):
        return float(self.step_size), 2 * (1 + float(self.momentum)) / L


class Optax(InnerSolver):
    """Any optax transformation as the inner method, e.g. `Optax(optax.adam(1e-2), steps=20)`.

    The transformation is compiled in: another instance of it compiles again. Numbers that change
    between runs belong into `optax.inject_hyperparams`.
    """

    transformation: optax.GradientTransformation = eqx.field(static=True)
    steps: Schedule = eqx.field(converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)

    def __check_init__(self):
        if not isinstance(self.transformation, optax.GradientTransformation):
            raise TypeError(
                f"Optax needs an optax.GradientTransformation, got {self.transformation!r}."
            )

    def init(self, y):
        return self.transformation.init(y)

    def step(self, gradient, y, state):
        d = gradient(y)
        # optax mixes dtypes, which strict promotion refuses.
        with jax.numpy_dtype_promotion("standard"):
            updates, state = self.transformation.update(d, state, y)
        return jax.tree.map(lambda y, u: y + u.astype(y.dtype), y, updates), state, d

    def stability(self, L):
        return None  # depends on the transformation


def _momentum(value: Any) -> Float[Array, ""]:
    momentum = number(value, "momentum")
    if is_concrete(momentum) and not 0 <= momentum < 1:
        raise ValueError(f"momentum must be at least 0 and less than 1, got {value}.")
    return momentum


def _root_kappa(L: float, mu: float) -> float:
    if not 0 < mu <= L < jnp.inf:
        raise ValueError(f"The eigenvalue bounds must satisfy 0 < mu <= L, got mu={mu}, L={L}.")
    return (L / mu) ** 0.5
