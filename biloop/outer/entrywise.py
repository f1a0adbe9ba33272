"""Outer steps for noisy hypergradients that nobody tunes, and two outer steps one after another."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from biloop.outer.base import OuterStep
from biloop.vectors import norm, size, zeros_like


class Entrywise(OuterStep):
    """x_j ← x_j − length h_j / (Σ h_j²)^½, a length for each leaf of x.

    J. Duchi, E. Hazan and Y. Singer, Adaptive subgradient methods (2011). f and g have no scale in
    it, and where Φ is flat steps stay as short as what led there has made them. An entry that a
    batch has nothing of does not move. The state is (Σ h²)^½ of each entry.
    """

    lengths: PyTree

    def init(self, x):
        return zeros_like(x)

    def step(self, x, h, value, state):
        roots = jax.tree.map(jnp.hypot, state, h)

        def moved(x: Array, h: Array, root: Array, length: Array) -> Array:
            return x - length.astype(x.dtype) * h / jnp.where(root > 0, root, 1.0).astype(x.dtype)

        x = jax.tree.map(moved, x, h, roots, self.lengths)
        return x, roots, jnp.ones((), bool)


def units(x: PyTree) -> PyTree:
    """The root mean square of each leaf, or 1 where that is zero."""

    def unit(leaf: Array) -> Array:
        leaf = jnp.asarray(leaf)
        unit = norm(leaf) / size(leaf) ** 0.5
        return jnp.where(unit > 0, unit, 1.0)

    return jax.tree.map(unit, x)


class Staged(OuterStep):
    """One outer step, and later another: a run has the state of both from the beginning.

    Which one is `late`, for whoever drives the run to say.
    """

    early: OuterStep
    then: OuterStep
    late: bool = eqx.field(default=False, static=True)

    def init(self, x):
        return self.early.init(x), self.then.init(x)

    def step(self, x, h, value, state):
        early, then = state
        if self.late:
            x, then, accepted = self.then.step(x, h, value, then)
        else:
            x, early, accepted = self.early.step(x, h, value, early)
        return x, (early, then), accepted

    def accepted(self, state):
        return self.then.accepted(state[1]) if self.late else None

    def slope(self, x, h):
        return (self.then if self.late else self.early).slope(x, h)

    @property
    def is_projected(self):
        return self.then.is_projected

    @property
    def finds_its_size(self):
        return self.late and self.then.finds_its_size
