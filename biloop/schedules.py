"""Numbers that may change with the outer iteration k, and the converters of what users give.

A schedule is a function of k. Plain numbers become schedules on the way in: a Python integer is
fixed at compile time (`Fixed`), anything else is an argument of the compiled program (`Constant`).
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num

from biloop.arguments import (
    MOST,
    as_count,
    described,
    finite,
    fraction,
    is_concrete,
    not_negative,
    number,
    positive,
    scalar,
    shown,
)

# The converters of numbers are had from here, too, by modules that use schedules.
__all__ = [
    "Count",
    "Schedule",
    "Fixed",
    "Constant",
    "Power",
    "Geometric",
    "Function",
    "Adaptive",
    "step_count",
    "number_at",
    "is_first",
    "as_number",
    "as_weight",
    "as_steps",
    "as_tolerance",
    "as_count",
    "number",
    "positive",
    "is_concrete",
]

Count = int | Int[Array, ""]

# Powers such as 16^(1/4)/2 may come out so many units in the last place above the integer they are.
_ROUNDING = 8


class Schedule(eqx.Module):
    """A number as a function of the outer iteration: `schedule(k)`."""

    @abstractmethod
    def __call__(self, k: Count) -> float | Num[Array, ""]:
        """The number at outer iteration k = 0, 1, 2, …"""

    def __repr__(self) -> str:
        """With its numbers."""
        return described(self)


class Fixed(Schedule):
    """The same integer for every k, known when the program is compiled."""

    value: int = eqx.field(static=True, converter=as_count("value", minimum=0))

    def __call__(self, k):
        return self.value

    def __repr__(self) -> str:
        """The number that was given."""
        return repr(self.value)


class Constant(Schedule):
    """The same number for every k, passed to the compiled program: changing it compiles nothing."""

    value: Num[Array, ""] = eqx.field(converter=scalar("value"))

    def __call__(self, k):
        return self.value

    def __repr__(self) -> str:
        """The number that was given, where it can be looked at."""
        return f"{self.value.item():.6g}" if is_concrete(self.value) else repr(self.value)


class Power(Schedule):
    """scale · (k + 1)^power. BA's loop is `Power(1/2, 1/4)`, HOAG's tolerance `Power(0.1, -2)`."""

    scale: Float[Array, ""] = eqx.field(converter=finite("scale"))
    power: Float[Array, ""] = eqx.field(converter=finite("power"))

    def __call__(self, k):
        return self.scale * (jnp.asarray(k).astype(self.scale.dtype) + 1) ** self.power


class Geometric(Schedule):
    """scale · ratio^k."""

    scale: Float[Array, ""] = eqx.field(converter=finite("scale"))
    ratio: Float[Array, ""] = eqx.field(converter=finite("ratio"))

    def __call__(self, k):
        return self.scale * self.ratio ** jnp.asarray(k).astype(self.scale.dtype)


class Function(Schedule):
    """Any function of k that JAX can trace."""

    function: Callable[..., Any] = eqx.field(
        static=True, converter=lambda f: _traceable(f, "function")
    )

    def __call__(self, k):
        return _evaluate(self.function, jnp.asarray(k))


class Adaptive(Schedule):
    """As many steps as it takes to remove all but a share of the error that a loop starts with.

    ‖residual‖ / μ ≤ share · ‖y − y⁰‖

    The left side bounds the error that is left; the way that the loop has come, from its warm start
    y⁰, is (but for that) the error that the last outer step brought in. For μ stands the smallest
    curvature that the run has seen. So the loop follows the problem: it is short where y*(x) hardly
    moves and long where it does. It ends after `most` steps at the latest, and when rounding stops
    its progress. `steps="auto"` is `Adaptive()`.
    """

    share: Float[Array, ""] = eqx.field(default=0.1, converter=fraction("share"))
    most: int = eqx.field(default=1000, static=True, converter=as_count("most"))

    def __call__(self, k):
        return self.most


def step_count(schedule: Schedule, k: Count) -> Count:
    """⌈schedule(k)⌉, or −1 where that is no number of steps: negative, NaN, or above 2³¹ − 2.

    A Python integer where it is known at compile time, else int32. What is an integer but for
    rounding (a millionth of it in float32) is that integer.
    """
    value = schedule(k)
    if isinstance(value, int):
        return value if 0 <= value <= MOST else -1
    value = jnp.asarray(value)
    if jnp.issubdtype(value.dtype, jnp.floating):
        value = value if value.dtype.itemsize >= 4 else value.astype(jnp.float32)
        nearest = jnp.round(value)
        close = jnp.abs(value - nearest) <= _ROUNDING * jnp.finfo(value.dtype).eps * nearest
        steps = jnp.where(close, nearest, jnp.ceil(value))
        # In float32 the bound is 2³¹, and all numbers below it are at most 2³¹ − 128.
        good = (value >= 0) & (steps < MOST + 1)
    else:
        steps = value if value.dtype.itemsize >= 4 else value.astype(jnp.int32)
        good = (steps >= 0) & (steps <= MOST)
    # Looked at before it is cast: a number that int32 cannot hold would become another one.
    return jnp.where(good, steps, jnp.zeros_like(steps)).astype(jnp.int32) - (~good).astype(
        jnp.int32
    )


def number_at(schedule: Schedule, k: Count) -> Float[Array, ""]:
    """schedule(k) as a floating array."""
    value = jnp.asarray(schedule(k))
    floating = jnp.issubdtype(value.dtype, jnp.floating)
    return value if floating else value.astype(jnp.result_type(float))


def is_first(k: Count) -> Bool[Array, ""]:
    """Whether this is the first outer step."""
    return jnp.asarray(k) == 0


def as_number(name: str) -> Callable[[Any], Schedule]:
    """A converter for a number greater than 0 that may change with k; (a, p) is a·(k + 1)^p."""

    def convert(value: Any) -> Schedule:
        if isinstance(value, tuple) and len(value) == 2:
            return Power(positive(name)(value[0]), value[1])
        if isinstance(value, Schedule) and not isinstance(value, Adaptive):
            return value
        if callable(value):
            return Function(_traceable(value, name))
        return Constant(positive(name)(value))

    return convert


def as_weight(name: str) -> Callable[[Any], Schedule]:
    """The same for a weight, of which a given number is at most 1."""

    def convert(value: Any) -> Schedule:
        weight = as_number(name)(value)
        if isinstance(weight, Constant) and is_concrete(weight.value) and weight.value > 1:
            raise ValueError(f"{name} must be above 0 and at most 1, got {shown(value)}.")
        return weight

    return convert


def as_steps(minimum: int) -> Callable[[Any], Schedule]:
    """A converter for `steps`: an integer of at least `minimum`, an integer array or a schedule."""
    as_integer = as_count("steps", minimum)

    def convert(steps: Any) -> Schedule:
        if isinstance(steps, Schedule):
            return steps
        if isinstance(steps, str) and steps == "auto":
            return Adaptive()
        if isinstance(steps, int | np.integer) and not isinstance(steps, bool):
            return Fixed(as_integer(steps))
        if isinstance(steps, jax.Array | np.ndarray) and jnp.issubdtype(steps.dtype, jnp.integer):
            if steps.ndim != 0:
                raise TypeError(
                    f"steps must be a single number, got an array of shape {steps.shape}."
                )
            # Looked at before JAX makes it 32 bits wide.
            return Constant(as_integer(int(steps)) if is_concrete(steps) else steps)
        if callable(steps):
            return Function(_traceable(steps, "steps"))
        raise TypeError(
            f'steps must be an integer, "auto" or a schedule of k, got {shown(steps)} '
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
        return Function(_traceable(tolerance, "tolerance"))
    value = not_negative("tolerance")(tolerance)
    return None if is_concrete(value) and value == 0 else Constant(value)


def _evaluate(function: Callable[..., Any], k: Array) -> Array:
    with jax.numpy_dtype_promotion("standard"):  # 0.5 * k is no mistake in a schedule
        return jnp.asarray(function(k))


def _traceable(function: Any, name: str) -> Callable[..., Any]:
    """The function, if JAX can trace it to a single real number for an integer k."""
    if not callable(function):
        raise TypeError(f"{name} must be a function of k, got {shown(function)}.")
    try:
        result = jax.eval_shape(lambda k: _evaluate(function, k), jnp.zeros((), jnp.int32))
    except Exception as error:  # whatever the user's code raises
        raise TypeError(
            f"{name} must be a schedule of k that JAX can trace, but {shown(function)} raises "
            f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        ) from error
    real = jnp.issubdtype(result.dtype, jnp.integer) or jnp.issubdtype(result.dtype, jnp.floating)
    if result.shape != () or not real:
        raise TypeError(
            f"{name} must be a schedule that gives one real number for each k, but "
            f"{shown(function)} gives {result.dtype} of shape {result.shape}."
        )
    return function
