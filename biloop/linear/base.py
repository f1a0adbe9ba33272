"""The protocol of the Q-loop: v ≈ H⁻¹b from products with H alone."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, Int, PyTree

from biloop.oracles import Product
from biloop.results import Code
from biloop.schedules import Count


class LinearInfo(NamedTuple):
    """‖Hv − b‖ as last seen, steps used, a result code, and the products with H that were spent.

    `memory` is what an adaptive loop has learnt for the next outer step: a lower bound of 1/μ.
    """

    residual: Float[Array, ""]
    steps: Int[Array, ""]
    result: Code
    products: Int[Array, ""]
    memory: Float[Array, ""] | None = None


class LinearSolver(eqx.Module):
    """A method for H v = b with H symmetric positive definite. A new one is `__call__`.

    One whose loop can be adaptive also takes the `memory` of its last call, see `first_memory`.
    """

    @abstractmethod
    def __call__(
        self, matvec: Product, b: PyTree, v0: PyTree, k: Count
    ) -> tuple[PyTree, LinearInfo]:
        """v ≈ H⁻¹b, started at v0, in outer iteration k."""

    def first_memory(self, v: PyTree) -> Float[Array, ""] | None:
        """What an adaptive loop knows before the first outer step; None for other loops."""
        return None
