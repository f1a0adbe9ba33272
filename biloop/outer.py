"""The outer step: x ← step(x, h)."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from biloop.problem import same_space
from biloop.schedules import is_concrete, positive
from biloop.vectors import add_scaled, norm, subtract


class OuterStep(eqx.Module):
    """A way to move x along −h. A new one is `init` and `step`."""

    @abstractmethod
    def init(self, x: PyTree) -> PyTree:
        """What the method remembers between outer steps."""

    @abstractmethod
    def step(self, x: PyTree, h: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
        """The next x and what to remember."""


class GradientStep(OuterStep):
    """x ← x − β h, the outer step of Algorithms 1 and 2."""

    step_size: Float[Array, ""] = eqx.field(converter=positive("outer step size"))

    def init(self, x):
        return ()

    def step(self, x, h, state):
        return add_scaled(x, -self.step_size, h), state


class OptaxStep(OuterStep):
    """Any optax transformation, e.g. `optax.adam(1e-2)`."""

    transformation: optax.GradientTransformation = eqx.field(static=True)

    def init(self, x):
        return self.transformation.init(x)

    def step(self, x, h, state):
        # optax mixes dtypes, which strict promotion refuses.
        with jax.numpy_dtype_promotion("standard"):
            updates, state = self.transformation.update(h, state, x)
        return jax.tree.map(lambda x, u: x + u.astype(x.dtype), x, updates), state


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


class Projected(OuterStep):
    """x ← Π(step(x, h)): any outer step followed by a projection, e.g. `Projected(0.1, Box(0, 1))`.

    This is the remark after Assumption 4: on a bounded set ∇_y f(x, y*(x)) is bounded.
    """

    inner_step: OuterStep = eqx.field(converter=lambda step: as_outer_step(step))
    onto: ConvexSet

    def __check_init__(self):
        if not isinstance(self.onto, ConvexSet):
            raise TypeError(f"Projected needs a set such as Box or Ball, got {self.onto!r}.")

    def init(self, x):
        same_space(self.onto.project(x), x, "the projection of x", "x")
        return self.inner_step.init(x)

    def step(self, x, h, state):
        x, state = self.inner_step.step(x, h, state)
        return self.onto.project(x), state


def as_outer_step(outer: Any) -> OuterStep:
    """A number is gradient descent, an optax transformation is itself, an OuterStep stays."""
    if isinstance(outer, OuterStep):
        return outer
    if isinstance(outer, optax.GradientTransformation):
        return OptaxStep(outer)
    try:
        return GradientStep(outer)
    except TypeError:
        raise TypeError(
            f"outer must be a step size, an optax transformation or an OuterStep, got {outer!r}."
        ) from None


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
