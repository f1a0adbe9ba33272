"""What users give as steps, tolerances, step sizes and weights, made schedules."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from biloop.schedules.arguments import as_length, is_concrete, not_negative, positive, shown
from biloop.schedules.forms import Adaptive, Constant, Fixed, Function, Power, Schedule, traceable


def as_number(name: str) -> Callable[[Any], Schedule]:
    """A converter for a number greater than 0 that may change with k; (a, p) is a·(k + 1)^p."""

    def convert(value: Any) -> Schedule:
        if isinstance(value, tuple) and len(value) == 2:
            return Power(positive(name)(value[0]), value[1])
        if isinstance(value, Schedule) and not isinstance(value, Adaptive):
            return value
        if callable(value):
            return Function(traceable(value, name))
        return Constant(positive(name)(value))

    return convert


def as_weight(name: str) -> Callable[[Any], Schedule]:
    """The same for a weight, of which a given number is at most 1."""

    def convert(value: Any) -> Schedule:
        weight = as_number(name)(value)
        if isinstance(weight, Constant) and is_concrete(weight.value) and float(weight.value) > 1:
            raise ValueError(f"{name} must be above 0 and at most 1, got {shown(value)}.")
        return weight

    return convert


def as_steps(minimum: int, name: str = "steps") -> Callable[[Any], Schedule]:
    """A converter for `steps`: an integer of at least `minimum`, an integer array or a schedule."""
    as_integer = as_length(name, minimum)

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
                    f"{name} must be a single number, got an array of shape {steps.shape}."
                )
            # Looked at before JAX makes it 32 bits wide.
            return Constant(as_integer(int(steps)) if is_concrete(steps) else steps)
        if callable(steps):
            return Function(traceable(steps, name))
        raise TypeError(
            f'{name} must be an integer, "auto" or a schedule of k, got {shown(steps)} '
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
        return Function(traceable(tolerance, "tolerance"))
    value = not_negative("tolerance")(tolerance)
    return None if is_concrete(value) and float(value) == 0 else Constant(value)
