"""Steps that stay in a set: projections onto a box or a ball."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from biloop.schedules import is_concrete, positive
from biloop.vectors import norm, subtract


class ConvexSet(eqx.Module):
    """A set onto which x can be projected."""

    @abstractmethod
    def project(self, x: PyTree) -> PyTree:
        """The point of the set that is nearest to x."""


class Box(ConvexSet):
    """{x : lower ≤ x ≤ upper}, with numbers or pytrees of the structure of x as bounds."""

    lower: PyTree = eqx.field(converter=lambda t: jax.tree.map(jnp.asarray, t))
    upper: PyTree = eqx.field(converter=lambda t: jax.tree.map(jnp.asarray, t))

    def __check_init__(self):
        bounds = jax.tree.leaves((self.lower, self.upper))
        if any(is_concrete(b) and bool(jnp.any(jnp.isnan(b))) for b in bounds):
            raise ValueError("The bounds of a Box must not be NaN.")
        if jax.tree.structure(self.lower) != jax.tree.structure(self.upper):
            return  # one of them is a number: compared leaf by leaf when the box is used
        for low, high in zip(*map(jax.tree.leaves, (self.lower, self.upper)), strict=True):
            if is_concrete(low) and is_concrete(high) and bool(jnp.any(low > high)):
                raise ValueError(f"The Box is empty: lower {low} is above upper {high}.")

    def project(self, x):
        lower, upper = (_spread(b, x) for b in (self.lower, self.upper))
        return jax.tree.map(
            lambda x, low, high: jnp.clip(x, low.astype(x.dtype), high.astype(x.dtype)),
            x,
            lower,
            upper,
        )


class Ball(ConvexSet):
    """{x : ‖x − center‖ ≤ radius}; the center is 0 unless given."""

    radius: Float[Array, ""] = eqx.field(converter=positive("radius"))
    center: PyTree = eqx.field(default=None, converter=lambda t: jax.tree.map(jnp.asarray, t))

    def project(self, x):
        offset = x if self.center is None else subtract(x, self.center)
        length = norm(offset)
        radius = self.radius.astype(length.dtype)
        # Inside, the shrinkage is exactly 1 and x is returned bit by bit.
        shrink = jnp.where(length > radius, radius / length, jnp.ones_like(length))
        inside = jax.tree.map(lambda o: shrink.astype(o.dtype) * o, offset)
        if self.center is None:
            return inside
        return jax.tree.map(
            lambda x, o, c: jnp.where(length > radius, c + o, x), x, inside, self.center
        )


def _spread(bound: PyTree, x: PyTree) -> PyTree:
    """A number as a pytree of the structure of x; a pytree as it is."""
    structure = jax.tree.structure(bound)
    if jax.tree_util.treedef_is_leaf(structure) and bound.ndim == 0:
        return jax.tree.map(lambda _: bound, x)
    if structure != jax.tree.structure(x):
        raise ValueError(
            f"The bounds of a Box must be numbers or have the structure of x, "
            f"{jax.tree.structure(x)}; got {structure}."
        )
    return bound
