"""The protocol of the Q-loop: v ≈ H⁻¹b from products with H alone."""

from abc import abstractmethod

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from biloop.loops.iteration import LoopInfo
from biloop.loops.results import Code
from biloop.oracles import Cost, Product
from biloop.schedules import Count
from biloop.schedules.arguments import Described


class LinearSolver(Described):
    """A method for H v = b with H symmetric positive definite. A new one is `init`, `__call__`.

    One that takes any matrix says so: `needs_symmetry` is False.

    The residual in the `LoopInfo` is ‖Hv − b‖ as it was last computed.
    """

    @abstractmethod
    def init(self, v: PyTree) -> PyTree:
        """What the first call is given as state, `()` for nothing."""

    @abstractmethod
    def __call__(
        self, matvec: Product, b: PyTree, v0: PyTree, state: PyTree, k: Count
    ) -> tuple[PyTree, PyTree, LoopInfo]:
        """v ≈ H⁻¹b, started at v0, in outer iteration k; and the state for k + 1."""

    @property
    def needs_symmetry(self) -> bool:
        """Whether it is wrong for a matrix that is not symmetric."""
        return True

    def refuse_symmetric_only(self) -> None:
        """Refuse to solve the system of an equilibrium, whose matrix is not symmetric."""
        if self.needs_symmetry:
            raise TypeError(
                f"{type(self).__name__} needs a symmetric matrix, and I − ∂T/∂y of an equilibrium "
                f"y = T(x, y) is none. Use GMRES(steps), NormalEquations(CG(steps)), or "
                f"Richardson(1.0, steps), which is the fixed-point iteration."
            )

    def stability(self, L: float) -> tuple[float, float] | None:
        """The step size, and the largest stable one for eigenvalues of H up to L."""
        return None

    @property
    def judges(self) -> bool:
        """Whether the loop has a target, so that it says itself where it stops short of it."""
        return False

    @property
    def refines(self) -> bool:
        """Whether each call leaves a small share of the error, whatever the condition of H."""
        return False


def linear_info(
    residual: Float[Array, ""],
    steps: Int[Array, ""],
    products: Int[Array, ""],
    result: Code,
) -> LoopInfo:
    """What a linear loop says of itself: it costs products only."""
    return LoopInfo(residual, steps, Cost(jnp.zeros((), jnp.int32), products), result)
