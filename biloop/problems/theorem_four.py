"""The instance of Theorem 4, on which ITD stays away from stationarity."""

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from biloop.problem import Problem
from biloop.theory import Constants, lower_bound
from biloop.theory.lower_bound import Vector


@dataclass(frozen=True, eq=False)
class WorstCase:
    """g = ½yᵀZy − Lxᵀy + 1ᵀy,  f = ½xᵀZx + M1ᵀy,  Z = diag(L, μ), from x_0 = 1, y_0 = 0.

    `letters` are the L, μ and M of Theorem 4, from which the instance is made and which its
    statements are about; `constants` are those that it really has.
    """

    letters: Constants
    problem: Problem
    x0: Float[Array, "2"]
    y0: Float[Array, "2"]

    @property
    def constants(self) -> Constants:
        """Exactly the constants of Assumptions 1-4: L(1+√5)/2, μ, 0 and √2 M."""
        return Constants(
            lower_bound.joint_smoothness(self.letters),
            self.letters.mu,
            0.0,
            lower_bound.outer_gradient_norm(self.letters),
        )

    def minimiser(self, x: Vector) -> Vector:
        """y*(x) = Z⁻¹(Lx − 1)."""
        return lower_bound.response(self.letters, np.asarray(x, np.float64))

    def value(self, x: Vector) -> float:
        """Φ(x)."""
        return lower_bound.outer_value(self.letters, np.asarray(x, np.float64))

    def hypergradient(self, x: Vector) -> Vector:
        """∇Φ(x) = Zx + LM Z⁻¹1."""
        return lower_bound.outer_gradient(self.letters, np.asarray(x, np.float64))

    def solution(self) -> Vector:
        """The minimiser of Φ, −LM Z⁻²1."""
        c = self.letters
        return -c.L * c.M / lower_bound.spectrum(c) ** 2

    def floor(self, steps: int, step_size: float) -> float:
        """What ‖∇Φ(x_K)‖² tends to with N steps of size α of ITD, or Q of size η of AID from v = 0.

        L²M²‖(I−αZ)^N Z⁻¹1‖²
        """
        return lower_bound.floor(self.letters, steps, step_size)


def worst_case(L: float = 1.0, mu: float = 0.1, M: float = 1.0) -> WorstCase:
    """The instance of Theorem 4 with these L, μ and M.

    Parameters
    ----------
    L, mu, M : numbers
        The letters of the theorem, L > mu.

    Returns
    -------
    WorstCase
        `problem`, `x0`, `y0`, `letters` and `constants`.

    Examples
    --------
    >>> bl.problems.worst_case(L=1.0, mu=0.5).letters.mu
    0.5
    """
    letters = Constants(L, mu, 0.0, M)
    data = (
        {
            "Z": jnp.asarray(lower_bound.spectrum(letters), float),
            "L": jnp.asarray(letters.L, float),
            "M": jnp.asarray(letters.M, float),
        },
    )
    problem = Problem(_inner, _outer, inner_data=data, outer_data=data)
    return WorstCase(letters, problem, jnp.ones(2), jnp.zeros(2))


def admissible_worst_case(L: float = 1.0, mu: float = 0.1, M: float = 1.0) -> WorstCase:
    """The instance whose `constants`, not letters, are L, μ and M. Needs μ ≤ 2L/(1+√5).

    Parameters
    ----------
    L, mu, M : numbers
        The constants of Assumptions 1-4.

    Returns
    -------
    WorstCase

    Examples
    --------
    >>> print(f"{bl.problems.admissible_worst_case(L=1.0, mu=0.5).constants.L:.3f}")
    1.000
    """
    if not mu * (1 + math.sqrt(5)) / 2 <= L:
        raise ValueError(
            f"An instance with joint smoothness L exists for mu ≤ 0.618 L; got mu={mu}, L={L}."
        )
    letters = lower_bound.admissible_instance(Constants(L, mu, 0.0, M))
    return worst_case(letters.L, letters.mu, letters.M)


def _inner(x: Array, y: Array, d: PyTree) -> Array:
    return 0.5 * y @ (d["Z"] * y) - d["L"] * (x @ y) + jnp.sum(y)


def _outer(x: Array, y: Array, d: PyTree) -> Array:
    return 0.5 * x @ (d["Z"] * x) + d["M"] * jnp.sum(y)
