"""Exponents of κ: as printed, from the formulas, and measured on quadratics, where ρ = 0."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

CLOSE = 0.15  # a logarithm that O hides adds up to 0.1 to a fitted exponent


@dataclass(frozen=True)
class Exponent:
    """One cell of Table 1 or 2.

    `printed` is None where the table has N/A, and ∞ stands for a quantity that is infinite.
    `formula_rho_0` is None where the paper quotes an order alone. `measured` has an exponent for
    each criterion, or is empty.
    """

    algorithm: str
    quantity: str
    printed: float | None
    formula: float
    formula_rho_0: float | None
    measured: Mapping[str, float]
    lower: bool = False
    """Whether the table has a lower bound here."""

    @property
    def apart(self) -> float:
        """How far the formula is from the printed exponent; 0 if both say that it is infinite."""
        if self.printed is None:
            return 0.0 if math.isinf(self.formula) else math.inf
        return abs(self.formula - self.printed)

    @property
    def bound(self) -> float:
        """The strongest bound for runs with ρ = 0: the formula with this ρ, or what is printed."""
        known = self.printed if self.formula_rho_0 is None else self.formula_rho_0
        return math.inf if known is None else known

    @property
    def excess(self) -> float | None:
        """How far the worst measured exponent is beyond the bound; None if there is no such thing.

        An upper bound is exceeded by the largest exponent, a lower one by the smallest.
        """
        found = self.measured.values()
        if not found or self.printed is None:
            return None
        return self.bound - min(found) if self.lower else max(found) - self.bound

    @property
    def judged(self) -> str:
        """The verdict of the cell in words."""
        found = self.measured.values()
        if self.printed is None:
            agrees = math.isinf(self.formula) and all(map(math.isinf, found))
            return "agrees: ε is not reached" if agrees else "differs: ε is reached"
        agrees = self.apart <= CLOSE
        words = f"agrees (within {self.apart:.2f})" if agrees else f"differs by {self.apart:.2f}"
        if self.excess is None:
            return f"formula {words}"
        inside, outside = ("above", "below") if self.lower else ("below", "above")
        if self.excess <= 0:
            return f"formula {words}; measured at or {inside} {self.bound:.2f}"
        kept = " (logarithms)" if self.excess <= CLOSE else ": contradicted"
        return f"formula {words}; measured {self.excess:.2f} {outside} {self.bound:.2f}{kept}"
