"""Linear loops of which each step may meet another H: their mean is the matrix of the system."""

from abc import abstractmethod

from jaxtyping import Array, Key, PyTree

from biloop.oracles import Product
from biloop.schedules import Count
from biloop.schedules.arguments import Described


class Stepped(Described):
    """v ≈ H⁻¹b by single products, for H that are drawn anew in each step.

    Methods that build on one H (conjugate gradients, Chebyshev, dense algebra) cannot be this.
    """

    @abstractmethod
    def begin(self, b: PyTree, v0: PyTree) -> PyTree:
        """What the first step is given."""

    @abstractmethod
    def step(self, matvec: Product, b: PyTree, state: PyTree, k: Count) -> PyTree:
        """One step of the loop of outer iteration k: one product."""

    @abstractmethod
    def finish(self, state: PyTree, k: Count) -> PyTree:
        """v, after the last step."""

    @abstractmethod
    def length(self, key: Key[Array, ""], k: Count) -> Count:
        """The number of steps in outer iteration k; the key is for lengths of chance."""

    @abstractmethod
    def longest(self, k: Count) -> Count:
        """The largest number of steps that outer iteration k may have."""

    @abstractmethod
    def stability(self, L: float) -> tuple[float, float] | None:
        """The step size, and the largest stable one where no eigenvalue is above L."""

    @property
    @abstractmethod
    def starts_cold(self) -> bool:
        """Whether v⁰ is of no use to it."""
