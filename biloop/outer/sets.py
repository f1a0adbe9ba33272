"""Sets that x can be projected onto: a box or a ball."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from biloop.schedules.arguments import is_concrete, positive, shown
from biloop.vectors import norm, subtract


def _real_tree(name: str) -> Callable[[Any], PyTree]:
    """A converter for a number or a pytree of real arrays without NaN."""

    def leaf(value: Any) -> Array:
        try:
            array = jnp.asarray(value)
        except Exception:  # whatever a foreign object raises when it is made an array
            raise TypeError(f"{name} must consist of numbers, got {shown(value)}.") from None
        if jnp.issubdtype(array.dtype, jnp.integer):
            array = array.astype(float)
        if isinstance(value, bool) or not jnp.issubdtype(array.dtype, jnp.floating):
            raise TypeError(f"{name} must consist of numbers, got {shown(value)}.")
        if is_concrete(array) and np.any(np.isnan(np.asarray(array))):
            raise ValueError(f"{name} must not be NaN, got {shown(value)}.")
        return array

    def convert(tree: Any) -> PyTree:
        # None is a leaf here: a pytree with a hole in it is no bound.
        return jax.tree.map(leaf, tree, is_leaf=lambda t: t is None)

    return convert


def _optional_tree(name: str) -> Callable[[Any], PyTree]:
    convert = _real_tree(name)
    return lambda tree: None if tree is None else convert(tree)


class ConvexSet(eqx.Module):
    """A set onto which x can be projected."""

    @abstractmethod
    def project(self, x: PyTree) -> PyTree:
        """The point of the set that is nearest to x."""


class Box(ConvexSet):
    """{x : lower ≤ x ≤ upper}, with numbers or pytrees of the structure of x as bounds.

    Parameters
    ----------
    lower, upper : numbers or pytrees like x
        −∞ and ∞ are allowed.

    Examples
    --------
    >>> print(bl.Box(0.0, 1.0).project(jnp.array([-2.0, 0.5, 2.0])))
    [0.  0.5 1. ]
    """

    lower: PyTree = eqx.field(converter=_real_tree("lower"))
    upper: PyTree = eqx.field(converter=_real_tree("upper"))

    def __check_init__(self):
        lower, upper = self.lower, self.upper
        if _is_number(lower):
            lower = _spread(lower, upper, "lower")
        elif _is_number(upper):
            upper = _spread(upper, lower, "upper")
        _check_structure(upper, lower, "lower and upper must be alike")
        for low, high in zip(*map(jax.tree.leaves, (lower, upper)), strict=True):
            _check_interval(low, high)

    def project(self, x):
        lower, upper = _spread(self.lower, x, "lower"), _spread(self.upper, x, "upper")
        return jax.tree.map(
            lambda x, low, high: jnp.clip(x, low.astype(x.dtype), high.astype(x.dtype)),
            x,
            lower,
            upper,
        )


class Ball(ConvexSet):
    """{x : ‖x − center‖ ≤ radius}; the center is 0 unless given.

    Parameters
    ----------
    radius : number
    center : pytree like x, optional

    Examples
    --------
    >>> print(bl.Ball(5.0).project(jnp.array([6.0, 8.0])))
    [3. 4.]
    """

    radius: Float[Array, ""] = eqx.field(converter=positive("radius"))
    center: PyTree = eqx.field(default=None, converter=_optional_tree("center"))

    def __check_init__(self):
        leaves = jax.tree.leaves(self.center)
        if any(is_concrete(c) and not np.all(np.isfinite(np.asarray(c))) for c in leaves):
            raise ValueError(f"center must be finite, got {shown(self.center)}.")

    def project(self, x):
        center = self.center
        if center is not None:
            center = jax.tree.map(lambda c, x: c.astype(x.dtype), _spread(center, x, "center"), x)
        offset = x if center is None else subtract(x, center)
        length = norm(offset)
        radius = self.radius.astype(length.dtype)
        # Inside, the shrinkage is exactly 1 and x is returned bit by bit.
        shrink = jnp.where(length > radius, radius / length, jnp.ones_like(length))
        inside = jax.tree.map(lambda o: shrink.astype(o.dtype) * o, offset)
        if center is None:
            return inside
        return jax.tree.map(lambda x, o, c: jnp.where(length > radius, c + o, x), x, inside, center)


def _is_number(bound: PyTree) -> bool:
    return isinstance(bound, jax.Array) and bound.ndim == 0


def _spread(bound: PyTree, x: PyTree, name: str) -> PyTree:
    """A number as a pytree of the structure of x; a pytree as it is."""
    if _is_number(bound):
        return jax.tree.map(lambda _: bound, x)
    _check_structure(bound, x, f"{name} must be a number or have the structure of x")
    return bound


def _check_structure(tree: PyTree, like: PyTree, rule: str) -> None:
    found, expected = map(jax.tree.structure, (tree, like))
    if found != expected:
        raise ValueError(f"{rule}, {expected}; got {found}.")
    shapes = [[jnp.shape(leaf) for leaf in jax.tree.leaves(t)] for t in (tree, like)]
    for ours, theirs in zip(*shapes, strict=True):
        if ours != () and theirs != () and ours != theirs:
            raise ValueError(f"{rule}, but an array of shape {ours} stands for one of {theirs}.")


def _check_interval(low: Array, high: Array) -> None:
    if not (is_concrete(low) and is_concrete(high)):
        return
    lower, upper = np.asarray(low), np.asarray(high)
    if np.any(lower > upper.astype(lower.dtype)):
        raise ValueError(
            f"The Box is empty: lower must be at most upper, got lower={low} and upper={high}."
        )
    if np.any((lower == np.inf) | (upper.astype(lower.dtype) == -np.inf)):
        raise ValueError("The Box is empty: lower must be less than ∞, and upper more than −∞.")
