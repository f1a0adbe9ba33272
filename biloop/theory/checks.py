"""Arguments of the formulas, refused with the offending value and what was expected."""

import math
from operator import index


def positive(name: str, value: float) -> float:
    """The value as a float, if 0 < value < ∞."""
    number = float(value)
    if not (math.isfinite(number) and number > 0.0):
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}")
    return number


def nonnegative(name: str, value: float) -> float:
    """The value as a float, if 0 ≤ value < ∞."""
    number = float(value)
    if not (math.isfinite(number) and number >= 0.0):
        raise ValueError(f"{name} must be a finite number >= 0, got {value!r}")
    return number


def count(name: str, value: int, at_least: int = 1) -> int:
    """The value as an int, if it is an integer and at least `at_least`."""
    try:
        number = index(value)
    except TypeError:
        raise ValueError(f"{name} must be an integer >= {at_least}, got {value!r}") from None
    if number < at_least:
        raise ValueError(f"{name} must be an integer >= {at_least}, got {value!r}")
    return number


def contraction(name: str, step_size: float, mu: float) -> float:
    """The product step size × μ, if it lies in (0, 1], where (1 − step μ)^n contracts."""
    product = positive(name, step_size) * mu
    if product > 1.0:
        raise ValueError(f"{name} must be at most 1/mu = {1.0 / mu!r}, got {step_size!r}")
    return product
