"""Step sizes that a loop finds itself, from the gradients that it computes anyway."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from biloop import vectors
from biloop.schedules import positive
from biloop.vectors import add_scaled, inner_product, norm, subtract

_OVERSHOT = 4.0  # a gradient so many times longer than the one before: the step was too long
_TRIAL = 1e-3  # length of the very first step, relative to y


class Past(NamedTuple):
    """Where the last step started, its gradient and size, and whether it was in this loop."""

    y: PyTree
    d: PyTree
    step: Float[Array, ""]
    shortest: Float[Array, ""]  # of the steps of this loop
    known: Bool[Array, ""]


class BarzilaiBorwein(eqx.Module):
    """The short step size of Barzilai and Borwein (1988), with a way back.

    α = ⟨s, e⟩ / ⟨e, e⟩,   s = y − y⁻,   e = ∇g(y) − ∇g(y⁻)

    It lies between 1/L and 1/μ, where L and μ bound the curvature between the two points, follows
    the curvature as it changes, and costs no evaluation. If the gradient has become four times
    longer (or is not finite) the step is taken back and tried again at a quarter of its size. Such
    steps may lead away before they lead on, so the last one of a loop is the shortest so far. The
    last step size of one loop is the first of the next.
    """

    def init(self, y: PyTree) -> Past:
        """Nothing is known."""
        like = norm(y)
        unknown = jnp.zeros_like(like)
        return Past(
            y, vectors.zeros_like(y), unknown, jnp.full_like(like, jnp.inf), jnp.zeros((), bool)
        )

    def resume(self, y: PyTree, step: Float[Array, ""]) -> Past:
        """The last loop's step size is known, but its gradient belonged to another x."""
        return self.init(y)._replace(step=step)

    def step(self, y: PyTree, d: PyTree, past: Past) -> tuple[PyTree, Past]:
        """The next y, and what the step after it must know; d is the gradient at y."""
        s, e = subtract(y, past.y), subtract(d, past.d)
        curvature, change, length = inner_product(s, e), norm(e), norm(d)
        measured = (curvature > 0) & (change > vectors.noise(y) * length)
        # Without curvature to measure, the step was short: take a longer one.
        size = jnp.where(measured, curvature / jnp.where(measured, change, 1.0) ** 2, 4 * past.step)

        trial = _TRIAL * jnp.maximum(norm(y), 1.0) / jnp.where(length > 0, length, 1.0)
        first = jnp.where(past.step > 0, past.step, trial)
        overshot = past.known & ~(length <= _OVERSHOT * norm(past.d))
        size = jnp.where(past.known, jnp.where(overshot, past.step / 4, size), first)
        # The step size is a number that was found, not a function of x to be differentiated.
        size = lax.stop_gradient(size)

        here = vectors.where(overshot, past.y, y)
        slope = vectors.where(overshot, past.d, d)
        shortest = jnp.minimum(size, past.shortest)
        return add_scaled(here, -size, slope), Past(here, slope, size, shortest, jnp.ones((), bool))

    def finish(self, past: Past) -> PyTree:
        """Where the loop ends: a step that is safe from the last gradient that was computed."""
        safe = jnp.where(past.known, past.shortest, jnp.zeros_like(past.shortest))
        return add_scaled(past.y, -lax.stop_gradient(safe), past.d)


def as_step_size(value: Any) -> Float[Array, ""] | BarzilaiBorwein:
    """A converter for `step_size`: a number greater than 0, or "auto"."""
    if isinstance(value, BarzilaiBorwein):
        return value
    if isinstance(value, str) and value == "auto":
        return BarzilaiBorwein()
    return positive("step_size")(value)
