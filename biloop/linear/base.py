"""The protocol of the Q-loop: v ≈ H⁻¹b from products with H alone."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, Int, PyTree

from biloop.oracles import Product
from biloop.results import Code
from biloop.schedules import Count


class LinearInfo(NamedTuple):
    """‖Hv − b‖ as last seen, steps used, a result code, and the products with H that were spent."""

    residual: Float[Array, ""]
    steps: Int[Array, ""]
    result: Code
    products: Int[Array, ""]


class LinearSolver(eqx.Module):
    """A method for H v = b with H symmetric positive definite. A new one is `__call__`."""

    @abstractmethod
    def __call__(
        self, matvec: Product, b: PyTree, v0: PyTree, k: Count
    ) -> tuple[PyTree, LinearInfo]:
        """v ≈ H⁻¹b, started at v0, in outer iteration k."""
