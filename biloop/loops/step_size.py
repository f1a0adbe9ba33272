"""Step sizes of descent loops: given, or found from the gradients that are computed anyway."""

import math
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from biloop import vectors
from biloop.schedules import Count, Schedule, as_number, is_concrete, number_at, positive
from biloop.vectors import add_scaled, inner_product, norm, scaled, subtract

_OVERSHOT = 4.0  # a gradient so many times longer than the one before: the step was too long
_FARTHER = 4.0  # a step that showed no curvature was short: the next one is so many times longer
_TRIAL = 1e-3  # length of the very first step, relative to y
_ROUNDING = 8.0  # eps of y: a safe step that is no longer shows nothing but rounding


class FixedStep(NamedTuple):
    """y ← y − α d with one α. Nothing is remembered."""

    size: Float[Array, ""]

    def init(self, y: PyTree) -> tuple[()]:
        """Nothing to keep; a step that is zero in the precision of y is refused."""
        if is_concrete(self.size):
            check_representable(float(self.size), y)
        return ()

    def start(self, y: PyTree, kept: PyTree) -> tuple[()]:
        """No state."""
        return ()

    def step(self, y: PyTree, d: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
        """The next y; d is the gradient at y."""
        return add_scaled(y, -self.size, d), state

    def finish(self, y: PyTree, state: PyTree) -> PyTree:
        """Where the last step led."""
        return y

    def keep(self, state: PyTree) -> tuple[()]:
        """Nothing for the next loop."""
        return ()

    def stability(self, L: float) -> tuple[float, float] | None:
        """The step size, and the largest stable one for curvatures up to L."""
        return float(self.size), 2 / L


class Past(NamedTuple):
    """Where the last step started, its gradient and size, and whether it was in this loop."""

    y: PyTree
    d: PyTree
    step: Float[Array, ""]
    shortest: Float[Array, ""]  # of the steps of this loop
    longest: Float[Array, ""]  # of those that were measured, 0 if none was
    safe: Float[Array, ""]  # the shortest of those; if none was, what the last loop has kept
    known: Bool[Array, ""]


class BarzilaiBorwein(eqx.Module):
    """The short step size of Barzilai and Borwein (1988), with a way back.

    α = ⟨s, e⟩ / ⟨e, e⟩,   s = y − y⁻,   e = ∇g(y) − ∇g(y⁻)

    It lies between 1/L and 1/μ, where L and μ bound the curvature between the two points, follows
    the curvature as it changes, and costs no evaluation. If the gradient has become four times
    longer (or is not finite) the step is taken back and tried again at a quarter of its size. Such
    steps may lead away before they lead on, so the last one of a loop is the shortest so far. Where
    only rounding is left there is no curvature to be seen, and steps are as short as the shortest
    that was: y does not move there, but a derivative of the loop would grow without bound. The last
    step size of one loop is the first of the next.

    Examples
    --------
    >>> solver = bl.GradientDescent(step_size=bl.BarzilaiBorwein(), steps=30)  # or "auto"
    >>> y, state, info = solver(problem, x0, y0, solver.init(y0), 0)
    >>> print(np.asarray(y).round(3))
    [ 0.838 -0.453  0.096]
    """

    def init(self, y: PyTree) -> Float[Array, ""]:
        """No step size is known: zero."""
        return jnp.zeros((), vectors.accumulator(y))

    def start(self, y: PyTree, kept: PyTree) -> Past:
        """The last loop's step size is known, but its gradient belonged to another x."""
        zero = jnp.zeros_like(kept)
        never = jnp.full_like(kept, jnp.inf)
        return Past(y, vectors.zeros_like(y), kept, never, zero, kept, jnp.zeros((), bool))

    def step(self, y: PyTree, d: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
        """The next y, and what the step after it must know; d is the gradient at y."""
        past: Past = state
        s, e = subtract(y, past.y), subtract(d, past.d)
        change, length = norm(e), norm(d)
        seen = past.known & (change > vectors.noise(y) * length)
        safe = jnp.where(seen, change, jnp.ones_like(change))
        short = inner_product(s, scaled(1 / safe, e)) / safe  # squares of e may underflow
        measured = seen & (short > 0)
        short = jnp.where(measured, short, jnp.zeros_like(short))
        longest = jnp.maximum(past.longest, short)
        # Without curvature to measure the step was short, but none need be longer than those that
        # were measured: at the solution there is nothing left to measure.
        farther = _FARTHER * past.step
        farther = jnp.where(longest > 0, jnp.minimum(farther, longest), farther)
        size = jnp.where(measured, short, jnp.where(length > 0, farther, past.step))
        y_norm = norm(y)
        solved = past.known & (past.safe > 0)
        solved = solved & (length * past.safe <= _ROUNDING * vectors.eps(y) * y_norm)
        size = jnp.where(solved, past.safe, size)
        least = jnp.where(past.longest > 0, jnp.minimum(past.safe, short), short)
        safe = jnp.where(measured & ~solved, least, past.safe)

        reach = _TRIAL * jnp.where(y_norm > 0, y_norm, jnp.ones_like(y_norm))
        trial = reach / jnp.where(length > 0, length, 1.0)
        first = jnp.where(past.step > 0, past.step, trial)
        overshot = past.known & ~solved & ~(length <= _OVERSHOT * norm(past.d))
        size = jnp.where(past.known, jnp.where(overshot, past.step / 4, size), first)
        # The step size is a number that was found, not a function of x to be differentiated.
        size, safe = lax.stop_gradient((size, safe))

        here = vectors.where(overshot, past.y, y)
        slope = vectors.where(overshot, past.d, d)
        shortest = jnp.minimum(size, past.shortest)
        known = jnp.ones((), bool)
        after = Past(here, slope, size, shortest, lax.stop_gradient(longest), safe, known)
        return add_scaled(here, -size, slope), after

    def finish(self, y: PyTree, state: PyTree) -> PyTree:
        """Where the loop ends: a step that is safe from the last gradient that was computed."""
        past: Past = state
        safe = jnp.where(past.known, past.shortest, jnp.zeros_like(past.shortest))
        return add_scaled(past.y, -lax.stop_gradient(safe), past.d)

    def keep(self, state: PyTree) -> Float[Array, ""]:
        """The step size, for the next loop."""
        return state.step

    def stability(self, L: float) -> tuple[float, float] | None:
        """None: it finds its own."""
        return None


StepSize = FixedStep | BarzilaiBorwein


Given = Float[Array, ""] | Schedule | BarzilaiBorwein


def as_step_size(value: Any, name: str = "step_size") -> Given:
    """A converter for `step_size`: a number greater than 0, a schedule of k, or "auto"."""
    if isinstance(value, BarzilaiBorwein):
        return value
    if isinstance(value, str) and value == "auto":
        return BarzilaiBorwein()
    if isinstance(value, Schedule | tuple) or callable(value):
        return as_number(name)(value)
    return positive(name)(value)


def rule_of(step_size: Given) -> StepSize:
    """What `as_step_size` made, as a rule that takes steps; a schedule as it is at first."""
    if isinstance(step_size, BarzilaiBorwein):
        return step_size
    return FixedStep(number_at(step_size, 0) if isinstance(step_size, Schedule) else step_size)


Solver = TypeVar("Solver", bound=eqx.Module)


def with_step_at(solver: Solver, k: Count) -> Solver:
    """The solver as it is in outer iteration k: a `step_size` that is a schedule is a number."""
    given = solver.step_size  # pyright: ignore[reportAttributeAccessIssue]
    if not isinstance(given, Schedule):
        return solver
    is_schedule = lambda node: isinstance(node, Schedule)  # noqa: E731
    return eqx.tree_at(lambda s: s.step_size, solver, number_at(given, k), is_leaf=is_schedule)


def check_representable(step_size: float, y: PyTree) -> None:
    """Refuse a step size that is zero, or infinite, in the precision of y."""
    for leaf in jax.tree.leaves(y):
        with np.errstate(over="ignore", under="ignore"):
            # NumPy: inside jit even a constant of JAX cannot be looked at.
            there = float(np.asarray(step_size).astype(leaf.dtype))
        if not (there > 0 and math.isfinite(there)):
            smallest = float(jnp.finfo(leaf.dtype).smallest_subnormal)
            raise ValueError(
                f"The step size {step_size:g} is {there:g} in {leaf.dtype}, the precision of y: it "
                f"would move nothing. Use a step size of at least {smallest:g} and finite there, "
                f"or a wider type."
            )
