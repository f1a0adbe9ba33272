"""What a theorem says about one choice of loops and step sizes: conditions and a bound."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from biloop.theory.checks import count, positive
from biloop.theory.constants import Constants, Start


@dataclass(frozen=True)
class Condition:
    """One requirement of a statement, left ≤ right (< if strict), with both sides evaluated."""

    name: str
    left: float
    right: float
    strict: bool = False

    @property
    def holds(self) -> bool:
        """Whether the inequality is true of the two sides. A side that is not a number fails."""
        return self.left < self.right if self.strict else self.left <= self.right


def settle(condition: Callable[[float], Condition], root: float) -> float:
    """The root of a condition, or so little less that the condition holds of it as evaluated.

    A root is rounded, and may lie an ulp or two on the wrong side. Steps double, so that this ends.
    """
    step = 2.0**-53
    while root > 0.0 and not condition(root).holds:
        root, step = root * (1.0 - step), 2.0 * step
    return root


@dataclass(frozen=True)
class Certificate:
    """A theorem applied: the parameters, its conditions, and its bound on the mean of ‖∇Φ(x_k)‖².

    (1/K) Σ_{k<K} ‖∇Φ(x_k)‖² ≤ (gap_term + start_term)/K + floor

    gap_term     what Φ(x_0) − min Φ contributes, c Δ_Φ / β
    start_term   what the inaccuracy of y_0 and v_0 contributes
    floor        what no number of outer steps removes

    Q is None and eta, lam are None where the method has no such parameter (ITD).
    """

    statement: str
    constants: Constants
    start: Start
    N: int
    Q: int | None
    alpha: float
    eta: float | None
    lam: float | None
    beta: float
    conditions: tuple[Condition, ...]
    gap_term: float
    start_term: float
    floor: float

    @property
    def holds(self) -> bool:
        """Whether every condition holds, so that the bound is proved."""
        return all(condition.holds for condition in self.conditions)

    @property
    def broken(self) -> tuple[Condition, ...]:
        """The conditions that do not hold."""
        return tuple(condition for condition in self.conditions if not condition.holds)

    def bound(self, K: int) -> float:
        """The bound after K outer steps; ∞ when a condition fails, for then nothing is proved."""
        if not self.holds:
            return math.inf
        return (self.gap_term + self.start_term) / count("K", K) + self.floor

    def outer_steps(self, eps: float) -> float:
        """Smallest K whose bound is at most ε; ∞ if floor ≥ ε or a condition fails."""
        room = positive("eps", eps) - self.floor
        if not self.holds or room <= 0.0:
            return math.inf
        steps = (self.gap_term + self.start_term) / room
        return float(max(1, math.ceil(steps))) if math.isfinite(steps) else math.inf
