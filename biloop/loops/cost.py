"""What evaluations cost, in the units of the paper and in rows of data."""

from typing import NamedTuple

from jaxtyping import Array, Int


class Cost(NamedTuple):
    """Gc and MV of Definition 2: gradients, and Jacobian- and Hessian-vector products."""

    gradients: int | Int[Array, ""]
    products: int | Int[Array, ""]

    def __add__(self, other: "Cost") -> "Cost":  # type: ignore[override]
        """Add the counts (not the tuples)."""
        return Cost(self.gradients + other.gradients, self.products + other.products)

    @property
    def total(self) -> int | Int[Array, ""]:
        """Gc + MV."""
        return self.gradients + self.products


class SampleCount(NamedTuple):
    """The rows on which gradients of g, gradients of f, and products were evaluated.

    A gradient on B of n rows costs B/n of a gradient: from these counts a run makes its `Cost`,
    exactly.
    """

    inner: int | Int[Array, ""] = 0
    outer: int | Int[Array, ""] = 0
    products: int | Int[Array, ""] = 0

    def __add__(self, other: "SampleCount") -> "SampleCount":  # type: ignore[override]
        """Add the counts (not the tuples)."""
        return SampleCount(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, count: int | Int[Array, ""]) -> "SampleCount":
        """So many of the same."""
        return SampleCount(*(count * rows for rows in self))
