"""The common target of a comparison: a small gradient, at a value that is worth something."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

RELATIVE = 1e-4
DECREASE = 0.95
_SMALLER = (0.5, 0.2, 0.1)  # ∇Φ is not measured for less
_SLACK = 1.5  # not all seeds get as far as the first
RULE = (
    "‖∇Φ‖² is 1e-4 of what it is at the start, or one and a half times the smallest that half of "
    "the schemes get to within the budget by runs that do not fail, if that is more"
)
VALUE_RULE = (
    "and Φ has fallen by 95 % of the decrease that half of the schemes get: far away a gradient "
    "can vanish at any value"
)


class Target(NamedTuple):
    """‖∇Φ(x)‖² ≤ norm2 and Φ(x) ≤ value."""

    norm2: float
    value: float

    def holds(self, norm2: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Where both hold; what was not measured does not."""
        return (norm2 <= self.norm2) & (value <= self.value)

    def smaller(self) -> "list[Target]":
        """Where to look farther on, if luck decides who is here first."""
        return [Target(share * self.norm2, self.value) for share in _SMALLER]


def value_bar(start: float, lowest: Sequence[float]) -> float:
    """The Φ to get to, from the smallest Φ of each scheme.

    Φ(x_0) − 0.95 (Φ(x_0) − median), and not above the start: not all seeds get as far as the first
    """
    return start - DECREASE * max(start - _half(lowest), 0.0)


def choose_norm2(start: float, smallest: Sequence[float]) -> float:
    """The ‖∇Φ‖² to get to, with two digits, from the smallest of each scheme.

    max(10⁻⁴ ‖∇Φ(x_0)‖², 1.5 · median), and at most half of that at the start
    """
    return _up(max(RELATIVE * start, min(_SLACK * _half(smallest), start / 2)))


def _half(numbers: Sequence[float]) -> float:
    """What at least half of the numbers do not exceed."""
    return sorted(numbers)[(len(numbers) + 1) // 2 - 1] if numbers else math.inf


def _up(value: float) -> float:
    """Rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit * (1 - 1e-12)) * unit:.2g}")


def median(values: Sequence[float] | np.ndarray) -> float:
    """The median; the larger of the two in the middle, so that ∞ wins and nothing is averaged."""
    ordered = np.sort(np.asarray(values, float))  # NaN last
    return float(ordered[len(ordered) // 2])
