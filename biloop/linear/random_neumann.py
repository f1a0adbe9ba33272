"""One term of the Neumann series, drawn by chance: unbiased for a truncated series."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from biloop.linear.stepped import Stepped
from biloop.schedules import positive
from biloop.schedules.arguments import as_length
from biloop.vectors import add_scaled, scaled


class RandomNeumann(Stepped):
    """v = b η ∏_{i ≤ p} (I − η H_i) ∇_y f with p uniform on 0, …, b − 1: Ghadimi and Wang (2018).

    On average over p and the H_i it is the Neumann series with b terms; it takes (b − 1)/2 products
    on average. Its variance grows with b.

    Parameters
    ----------
    step_size : number
        η, at most 1/L.
    terms : int
        b.

    Examples
    --------
    >>> bl.schemes.bsa(batch=8, terms=10).linear
    RandomNeumann(step_size=0.1, terms=10)
    """

    step_size: Float[Array, ""] = eqx.field(converter=positive("step_size"))
    terms: int = eqx.field(static=True, converter=as_length("terms"))

    def begin(self, b, v0):
        return scaled(self.terms * self.step_size, b)

    def step(self, matvec, b, state, k):
        return add_scaled(state, -self.step_size, matvec(state))

    def finish(self, state, k):
        return state

    def length(self, key, k):
        return jax.random.randint(key, (), 0, self.terms, jnp.int32)

    def longest(self, k):
        return self.terms - 1

    @property
    def starts_cold(self):
        return True

    def stability(self, L):
        return float(self.step_size), 2 / L
