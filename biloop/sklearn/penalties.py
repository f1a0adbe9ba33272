"""A penalty for each group of features, and what draws them together.

    log α_g = c + R tanh(x_g / R)

so that x is free, x = 0 is the common penalty e^c, and no penalty is more than e^R times it.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree


class Penalties(eqx.Module):
    """From x, an entry per group, to the penalty of each feature; all numbers are leaves."""

    center: Float[Array, ""]
    reach: Float[Array, ""]
    groups: Int[Array, " d"]

    def of_groups(self, x: Float[Array, " g"]) -> Float[Array, " g"]:
        """α_g."""
        return jnp.exp(self.center + self.reach * jnp.tanh(x / self.reach))

    def __call__(self, x: Float[Array, " g"]) -> Float[Array, " d"]:
        """α of each feature."""
        return self.of_groups(x)[self.groups]


class Shrunk(eqx.Module):
    """f(x, y) + ½ λ Σ_g (x_g − mean x)²: a prior that penalties are alike."""

    outer: Callable[..., Float[Array, ""]]
    strength: Float[Array, ""]

    def __call__(self, x: Float[Array, " g"], y: PyTree, *data: PyTree) -> Float[Array, ""]:
        apart = x - jnp.mean(x)
        return self.outer(x, y, *data) + 0.5 * self.strength * jnp.sum(apart**2)
