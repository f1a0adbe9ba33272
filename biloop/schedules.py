"""Numbers that may change with the outer iteration k.

A schedule is a function of k. Plain numbers become schedules on the way in: a Python integer is
fixed at compile time (`Fixed`), anything else is an argument of the compiled program (`Constant`).
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num

Count = int | Int[Array, ""]


class Schedule(eqx.Module):
    """A number as a function of the outer iteration: `schedule(k)`."""

    @abstractmethod
    def __call__(self, k: Count) -> float | Num[Array, ""]:
        """The number at outer iteration k = 0, 1, 2, …"""


class Fixed(Schedule):
    """The same integer for every k, known when the program is compiled."""

    value: int = eqx.field(static=True)

    def __call__(self, k):
        return self.value


class Constant(Schedule):
    """The same number for every k, passed to the compiled program: changing it compiles nothing."""

    value: Num[Array, ""] = eqx.field(converter=jnp.asarray)

    def __call__(self, k):
        return self.value


class Power(Schedule):
    """scale · (k + 1)^power. BA's loop is `Power(1/2, 1/4)`, HOAG's tolerance `Power(0.1, -2)`."""

    scale: Float[Array, ""] = eqx.field(converter=lambda s: jnp.asarray(s, float))
    power: Float[Array, ""] = eqx.field(converter=lambda p: jnp.asarray(p, float))

    def __call__(self, k):
        return self.scale * (jnp.asarray(k).astype(self.scale.dtype) + 1) ** self.power


class Geometric(Schedule):
    """scale · ratio^k."""

    scale: Float[Array, ""] = eqx.field(converter=lambda s: jnp.asarray(s, float))
    ratio: Float[Array, ""] = eqx.field(converter=lambda r: jnp.asarray(r, float))

    def __call__(self, k):
        return self.scale * self.ratio ** jnp.asarray(k).astype(self.scale.dtype)


class Function(Schedule):
    """Any function of k that JAX can trace."""

    function: Callable[..., Any] = eqx.field(static=True)

    def __call__(self, k):
        return jnp.asarray(self.function(jnp.asarray(k)))


class Adaptive(Schedule):
    """As many steps as it takes to remove all but a share of the error that a loop starts with.

    ‖residual‖ / μ ≤ share · ‖y − y⁰‖

    The left side bounds the error that is left; the way that the loop has come, from its warm start
    y⁰, is (but for that) the error that the last outer step brought in. For μ stands the smallest
    curvature that the run has seen. So the loop follows the problem: it is short where y*(x) hardly
    moves and long where it does. It ends after `most` steps at the latest, and when rounding stops
    its progress. `steps="auto"` is `Adaptive()`.
    """

    share: Float[Array, ""] = eqx.field(default=0.1, converter=lambda s: _fraction(s))
    most: int = eqx.field(default=1000, static=True)

    def __check_init__(self):
        if not isinstance(self.most, int) or self.most < 1:
            raise ValueError(f"most must be an integer of at least 1, got {self.most!r}.")

    def __call__(self, k):
        return self.most


def as_steps(minimum: int) -> Callable[[Any], Schedule]:
    """A converter for `steps`: an integer of at least `minimum`, an integer array or a schedule."""

    def convert(steps: Any) -> Schedule:
        if isinstance(steps, Schedule):
            return steps
        if isinstance(steps, str) and steps == "auto":
            return Adaptive()
        if isinstance(steps, int | np.integer) and not isinstance(steps, bool):
            if steps < minimum:
                raise ValueError(f"steps must be at least {minimum}, got {steps}.")
            return Fixed(int(steps))
        if isinstance(steps, jax.Array | np.ndarray) and jnp.issubdtype(steps.dtype, jnp.integer):
            if is_concrete(steps) and np.any(np.asarray(steps) < minimum):
                raise ValueError(f"steps must be at least {minimum}, got {steps}.")
            return Constant(steps)
        if callable(steps):
            return Function(steps)
        raise TypeError(
            f'steps must be an integer, "auto" or a schedule of k, got {steps!r} '
            f"({type(steps).__name__})."
        )

    return convert


def as_tolerance(tolerance: Any) -> Schedule | None:
    """A converter for `tolerance`: None for zero, which means to spend the whole budget.

    Zero is told apart here, by structure, because a loop without a tolerance is a different and
    faster program: it needs no norm in each step.
    """
    if tolerance is None or isinstance(tolerance, Schedule):
        return tolerance
    if callable(tolerance):
        return Function(tolerance)
    value = number(tolerance, "tolerance")
    if is_concrete(value):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"tolerance must be finite and at least 0, got {tolerance}.")
        if value == 0:
            return None
    return Constant(value)


def positive(name: str) -> Callable[[Any], Float[Array, ""]]:
    """A converter for a finite number greater than 0."""

    def convert(value: Any) -> Float[Array, ""]:
        array = number(value, name)
        if is_concrete(array) and not (math.isfinite(array) and array > 0):
            raise ValueError(f"{name} must be a finite number greater than 0, got {value}.")
        return array

    return convert


def number(value: Any, name: str) -> Float[Array, ""]:
    """`value` as a float array without axes, or a TypeError that names it."""
    if isinstance(value, str | bytes | bool):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    try:
        array = jnp.asarray(value, float)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}.") from None
    if array.ndim != 0:
        raise TypeError(f"{name} must be a single number, got an array of shape {array.shape}.")
    return array


def _fraction(value: Any) -> Float[Array, ""]:
    share = number(value, "share")
    if is_concrete(share) and not 0 < share < 1:
        raise ValueError(f"share must be between 0 and 1, got {value}.")
    return share


def is_concrete(value: Any) -> bool:
    """Whether the value can be looked at, i.e. is not being traced."""
    return not isinstance(value, jax.core.Tracer)
