"""Proximal maps for `Problem(…, prox=…)`: penalties that are not smooth, and constraints.

    prox(x, z, α) = argmin_y r(x, y) + ‖y − z‖² / 2α

A penalty's strength is a number, or a function of x that returns one, or an array like y: so the
outer problem can choose it. Where that is below zero, or a set is empty, there is no such y: it is
NaN. Any other function prox(x, z, step) will do; r(x, ·) must be convex, and y be measured by one
norm, so that the derivative of the map is symmetric.
"""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from biloop.problem.strengths import function_of_x, positive_function_of_x, spread

__all__ = [
    "Prox",
    "L1",
    "ElasticNet",
    "GroupLasso",
    "Box",
    "NonNegative",
    "Simplex",
    "BallL2",
]

Step = Float[Array, ""]
Strength = Callable[[PyTree], PyTree]


class Prox(eqx.Module):
    """A convex r(x, y) that is known by its proximal map."""

    @abstractmethod
    def __call__(self, x: PyTree, z: PyTree, step: Step) -> PyTree:
        """argmin_y r(x, y) + ‖y − z‖² / (2 · step)."""

    @abstractmethod
    def penalty(self, x: PyTree, y: PyTree) -> Float[Array, ""]:
        """r(x, y); 0 for a constraint that y satisfies."""


def _total(terms: PyTree) -> Float[Array, ""]:
    return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(terms))  # type: ignore[return-value]


def _soft(z: Array, threshold: Array) -> Array:
    """sign(z) max(|z| − threshold, 0), whose derivative off the support is exactly zero."""
    return jnp.where(jnp.abs(z) <= threshold, jnp.zeros_like(z), z - jnp.sign(z) * threshold)


def _no_less_than_zero(value: PyTree) -> PyTree:
    """A strength as it is, NaN where it would make r concave."""
    return jax.tree.map(lambda a: jnp.where(a >= 0, a, jnp.full_like(a, jnp.nan)), value)


class L1(Prox):
    """r = Σ λ_j |y_j|, the lasso.

    Parameters
    ----------
    strength : number, arrays like y, or a function of x that returns one of these
        λ ≥ 0.

    Examples
    --------
    >>> print(bl.prox.L1(1.0)(x0, jnp.array([0.5, 3.0, -5.0]), 1.0))
    [ 0.  2. -4.]
    >>> lasso = bl.Problem(outer, outer, (X, t), (X, t), prox=bl.prox.L1(jnp.exp))  # λ = exp(x)
    """

    strength: Strength = eqx.field(converter=function_of_x("strength", low=0.0))

    def __call__(self, x, z, step):
        strength = _no_less_than_zero(spread(self.strength(x), z, "strength"))
        return jax.tree.map(lambda z, s: _soft(z, jnp.asarray(step, z.dtype) * s), z, strength)

    def penalty(self, x, y):
        strength = _no_less_than_zero(spread(self.strength(x), y, "strength"))
        return _total(jax.tree.map(lambda y, s: s * jnp.abs(y), y, strength))


class ElasticNet(Prox):
    """r = Σ λ_j |y_j| + ½ γ_j y_j².

    Parameters
    ----------
    strength, ridge : numbers, arrays like y, or functions of x
        λ ≥ 0 and γ ≥ 0.

    Examples
    --------
    >>> print(bl.prox.ElasticNet(1.0, 1.0)(x0, jnp.array([0.5, 3.0, -5.0]), 1.0))
    [ 0.  1. -2.]
    """

    strength: Strength = eqx.field(converter=function_of_x("strength", low=0.0))
    ridge: Strength = eqx.field(converter=function_of_x("ridge", low=0.0))

    def __call__(self, x, z, step):
        strength, ridge = self._strengths(x, z)

        def one(z: Array, s: Array, r: Array) -> Array:
            a = jnp.asarray(step, z.dtype)
            return _soft(z, a * s) / (1 + a * r)

        return jax.tree.map(one, z, strength, ridge)

    def penalty(self, x, y):
        strength, ridge = self._strengths(x, y)
        return _total(
            jax.tree.map(lambda y, s, r: s * jnp.abs(y) + 0.5 * r * y**2, y, strength, ridge)
        )

    def _strengths(self, x: PyTree, y: PyTree) -> tuple[PyTree, PyTree]:
        given = spread(self.strength(x), y, "strength"), spread(self.ridge(x), y, "ridge")
        return _no_less_than_zero(given)


class GroupLasso(Prox):
    """r = λ Σ ‖rows of the leaves of y‖: a row is zero or not as a whole.

    A group is what shares an index of the first axis of a leaf: give y the shape (groups, size).

    Parameters
    ----------
    strength : number, or a function of x that returns one
        λ ≥ 0.

    Examples
    --------
    >>> print(bl.prox.GroupLasso(1.0)(x0, jnp.array([[3.0, 4.0], [0.3, 0.4]]), 1.0))
    [[2.4 3.2]
     [0.  0. ]]
    """

    strength: Strength = eqx.field(converter=function_of_x("strength", low=0.0))

    def __call__(self, x, z, step):
        strength = jnp.asarray(self.strength(x))

        def one(z: Array) -> Array:
            lengths = _lengths(z)
            weights = jnp.broadcast_to(strength.astype(z.dtype), lengths.shape)
            t = jnp.asarray(step, z.dtype) * _no_less_than_zero(weights)
            zero = lengths <= t
            shrink = jnp.where(zero, 0.0, 1 - t / jnp.where(zero, 1.0, lengths))
            return shrink.reshape(-1, *(1,) * (z.ndim - 1)) * z

        return jax.tree.map(one, z)

    def penalty(self, x, y):
        strength = jnp.asarray(self.strength(x))
        return _total(
            jax.tree.map(
                lambda y: jnp.sum(_no_less_than_zero(strength.astype(y.dtype)) * _lengths(y)), y
            )
        )


def _lengths(z: Array) -> Float[Array, " groups"]:
    """The norms of the rows, with the derivative zero where a row is."""
    squares = jnp.sum(z.reshape(z.shape[0], -1) ** 2, axis=1)
    there = squares > 0
    return jnp.where(there, jnp.sqrt(jnp.where(there, squares, 1.0)), 0.0)


class Box(Prox):
    """lower ≤ y ≤ upper.

    Parameters
    ----------
    lower, upper : numbers, arrays like y, or functions of x
        −∞ and ∞ are allowed.

    Examples
    --------
    >>> print(bl.prox.Box(0.0, 1.0)(x0, jnp.array([-2.0, 0.5, 2.0]), 1.0))
    [0.  0.5 1. ]
    """

    lower: Strength = eqx.field(converter=function_of_x("lower", low=-jnp.inf))
    upper: Strength = eqx.field(converter=function_of_x("upper", low=-jnp.inf))

    def __call__(self, x, z, step):
        lower, upper = spread(self.lower(x), z, "lower"), spread(self.upper(x), z, "upper")

        def one(z: Array, low: Array, high: Array) -> Array:
            nearest = jnp.where(z < low, low, jnp.where(z > high, high, z))
            return jnp.where(low <= high, nearest, jnp.full_like(z, jnp.nan))

        return jax.tree.map(one, z, lower, upper)

    def penalty(self, x, y):
        return _constraint(y, self(x, y, jnp.ones(())))


class NonNegative(Prox):
    """y ≥ 0.

    Examples
    --------
    >>> print(bl.prox.NonNegative()(x0, jnp.array([-2.0, 0.5]), 1.0))
    [0.  0.5]
    """

    def __call__(self, x, z, step):
        return jax.tree.map(lambda z: jnp.where(z <= 0, jnp.zeros_like(z), z), z)

    def penalty(self, x, y):
        return _constraint(y, self(x, y, jnp.ones(())))


class Simplex(Prox):
    """y ≥ 0 with the sum of every row (the last axis of a leaf) equal to `total`.

    By sorting: J. Duchi et al., Efficient projections onto the ℓ1-ball (2008).

    Parameters
    ----------
    total : number or function of x
        Greater than 0.

    Examples
    --------
    >>> print(bl.prox.Simplex()(x0, jnp.array([0.5, 1.5, -1.0]), 1.0))
    [0. 1. 0.]
    """

    total: Strength = eqx.field(default=1.0, converter=positive_function_of_x("total"))

    def __call__(self, x, z, step):
        return jax.tree.map(lambda z: self._project(z, jnp.asarray(self.total(x), z.dtype)), z)

    def _project(self, z: Array, total: Array) -> Array:
        total = jnp.where(total > 0, total, jnp.full_like(total, jnp.nan))
        falling = -jnp.sort(-z, axis=-1)
        counts = jnp.arange(1, z.shape[-1] + 1)
        sums = jnp.cumsum(falling, axis=-1) - total
        shape = (1,) * (z.ndim - 1) + (-1,)
        inside = falling * counts.astype(z.dtype).reshape(shape) > sums
        active = jnp.sum(inside, axis=-1, keepdims=True)
        level = jnp.take_along_axis(sums, active - 1, axis=-1) / active.astype(z.dtype)
        return jnp.where(z <= level, jnp.zeros_like(z), z - level)

    def penalty(self, x, y):
        # Rounding of the sum moves every coordinate, the small ones too.
        return _constraint(y, self(x, y, jnp.ones(())), self.total(x))


class BallL2(Prox):
    """‖y‖ ≤ radius, over all leaves together; `radius` is a number or a function of x.

    Parameters
    ----------
    radius : number or function of x
        Greater than 0.

    Examples
    --------
    >>> print(bl.prox.BallL2(5.0)(x0, jnp.array([6.0, 8.0]), 1.0))
    [3. 4.]
    """

    radius: Strength = eqx.field(converter=function_of_x("radius", low=0.0))

    def __call__(self, x, z, step):
        squares = _total(jax.tree.map(lambda z: z**2, z))
        radius = _no_less_than_zero(jnp.asarray(self.radius(x)).astype(squares.dtype))
        inside = squares <= radius**2
        length = jnp.sqrt(jnp.where(inside, 1.0, squares))
        shrink = jnp.where(inside, jnp.ones_like(length), radius / length)
        return jax.tree.map(lambda z: shrink.astype(z.dtype) * z, z)

    def penalty(self, x, y):
        return _constraint(y, self(x, y, jnp.ones(())))


def _constraint(y: PyTree, projected: PyTree, scale: float | Array = 0.0) -> Float[Array, ""]:
    """0 for y in the set, up to rounding relative to y and to `scale`, and ∞ outside."""

    def is_far(a: Array, b: Array) -> Array:
        size = jnp.abs(a) + jnp.abs(b) + jnp.asarray(scale, a.dtype)
        return ~(jnp.abs(a - b) <= 8 * jnp.finfo(a.dtype).eps * size)

    far = jax.tree.map(is_far, y, projected)
    outside = _total(far) > 0
    return jnp.where(outside, jnp.inf, 0.0)
