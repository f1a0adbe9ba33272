"""What a contender can do: show its hypergradients, and run outer steps for the clock."""

from abc import ABC, abstractmethod

import numpy as np


class Unsupported(Exception):
    """The contender has no natural way to do this work."""


class Unavailable(Exception):
    """Something that the contender needs is not on this machine."""


class Contender(ABC):
    """A work, written with one library as its users would write it."""

    @abstractmethod
    def hypergradients(self, count: int) -> list[np.ndarray]:
        """Those of the first outer steps from the start (of `gradient` and `product`: the one)."""

    @abstractmethod
    def run(self, steps: int) -> None:
        """Outer steps (or gradients, or products), finished when it returns."""
