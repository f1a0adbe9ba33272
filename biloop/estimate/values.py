"""Constants that know where they come from."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from biloop.theory import Constants

Label = Literal["exact", "upper bound", "lower bound", "estimate"]


class Value(NamedTuple):
    """A number for a constant of the paper's assumptions, and what is known about it.

    `label` says what `value` is to the constant, which is a bound over all (x, y): "exact", an
    "upper bound", a "lower bound", or an "estimate" that may lie on either side. The constant
    itself lies between `lower` and `upper`, as far as is known; `source` says from where.
    """

    value: float
    label: Label
    source: str
    lower: float = 0.0
    upper: float = float("inf")


class Values(NamedTuple):
    """The four constants with their labels."""

    L: Value
    mu: Value
    rho: Value
    M: Value


@dataclass(frozen=True, repr=False)
class Estimate(Constants):
    """Constants with the `values` they were read from: usable wherever Constants are."""

    values: Values

    @classmethod
    def of(cls, values: Values) -> "Estimate":
        """The constants that are the numbers of these values."""
        return cls(*(v.value for v in values), values=values)

    @property
    def constants(self) -> Constants:
        """The four numbers alone."""
        return Constants(self.L, self.mu, self.rho, self.M)

    def __repr__(self) -> str:
        """A table: the value, what it is, the interval that is known, and from where."""
        rows = [("", "value", "is", "between", "from")]
        for name, v in self.values._asdict().items():
            rows.append((name, f"{v.value:.4g}", v.label, _interval(v), v.source))
        kappa = "L/mu; no better than the two"
        rows.append(("kappa", f"{self.kappa:.4g}", "", "", kappa))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        return "\n".join(lines)


def _interval(v: Value) -> str:
    upper = "∞" if v.upper == float("inf") else f"{v.upper:.4g}"
    return f"{v.lower:.4g} … {upper}"
