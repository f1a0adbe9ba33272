"""Outer steps for noisy hypergradients that nobody tunes, and two outer steps one after another."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from biloop.outer.base import OuterStep
from biloop.vectors import zeros_like


class EntrywiseState(NamedTuple):
    """(Σ h²)^½ of each entry of x so far, and how much shorter than at first steps are."""

    roots: PyTree
    share: Float[Array, ""]


class Entrywise(OuterStep):
    """x_j ← x_j − share · length h_j / (Σ h_j²)^½, a length for each leaf of x.

    J. Duchi, E. Hazan and Y. Singer, Adaptive subgradient methods (2011). f and g have no scale in
    it, and where Φ is flat steps stay as short as what led there has made them. An entry that a
    batch has nothing of does not move.
    """

    lengths: PyTree

    def init(self, x):
        return EntrywiseState(zeros_like(x), jnp.ones((), jnp.result_type(float)))

    def step(self, x, h, value, state):
        roots = jax.tree.map(jnp.hypot, state.roots, h)

        def moved(x: Array, h: Array, root: Array, length: Array) -> Array:
            size = (state.share * length).astype(x.dtype)
            return x - size * h / jnp.where(root > 0, root, 1.0).astype(x.dtype)

        x = jax.tree.map(moved, x, h, roots, self.lengths)
        return x, state._replace(roots=roots), jnp.ones((), bool)


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
