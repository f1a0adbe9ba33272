"""Pytrees as vectors: sums, inner products and norms over all leaves.

Arithmetic stays in the dtype of the leaves. Reductions run in at least float32, because a float16
square overflows at 256 and a bfloat16 sum stops growing after 256 terms.
"""

import functools
import math
import operator
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PyTree

from biloop.compilation import double_precision, on_cpu


def add_scaled(a: PyTree, scale: float | Array, b: PyTree) -> PyTree:
    """a + scale · b, in the dtypes of a."""
    return jax.tree.map(lambda a, b: a + jnp.asarray(scale).astype(a.dtype) * b, a, b)


def subtract(a: PyTree, b: PyTree) -> PyTree:
    """a − b."""
    return jax.tree.map(operator.sub, a, b)


def scaled(scale: float | Array, a: PyTree) -> PyTree:
    """scale · a, in the dtypes of a."""
    return jax.tree.map(lambda a: jnp.asarray(scale).astype(a.dtype) * a, a)


def zeros_like(a: PyTree) -> PyTree:
    """The zero of the space of a."""
    return jax.tree.map(_zeros_like, a)


def _zeros_like(leaf: Array) -> Array:
    there = isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)
    if not there or leaf.size > _SMALL or not leaf.is_fully_addressable:
        return jnp.zeros_like(leaf)
    zeros = np.zeros(leaf.shape, leaf.dtype)
    return jax.device_put(zeros, leaf.sharding if leaf.committed else None)


def zeros(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """An array of zeros. Small ones are made on the host: an operation is compiled each time."""
    small = math.prod(shape) <= _SMALL
    return jax.device_put(np.zeros(shape, dtype)) if small else jnp.zeros(shape, dtype)


class InPlace(NamedTuple):
    """Arrays too large to be chosen between: a choice would copy all of them in each step."""

    content: PyTree


def where(condition: Array, a: PyTree, b: PyTree) -> PyTree:
    """a if condition else b, as a select that never looks into the other branch's NaN.

    Of what is `InPlace` it is always a.
    """

    def choose(a: PyTree, b: PyTree) -> PyTree:
        return a if isinstance(a, InPlace) else jnp.where(condition, a, b)

    return jax.tree.map(choose, a, b, is_leaf=lambda node: isinstance(node, InPlace))


def accumulator(a: PyTree) -> jnp.dtype:
    """The dtype for reductions over a: wide enough for all leaves, and at least float32."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(jnp.float32, *(leaf.dtype for leaf in jax.tree.leaves(a)))


def inner_product(a: PyTree, b: PyTree) -> Float[Array, ""]:
    """⟨a, b⟩. Written as a sum of products so that sharded leaves are reduced where they lie."""
    dtype = accumulator(a)
    products = jax.tree.map(lambda a, b: jnp.sum(a.astype(dtype) * b.astype(dtype)), a, b)
    return functools.reduce(operator.add, jax.tree.leaves(products))


def norm(a: PyTree) -> Float[Array, ""]:
    """‖a‖ = √⟨a, a⟩, also where the squares of the entries underflow or overflow."""
    return norms(a)[0]


@jax.jit  # so that the many norms of a program are traced once
def norms(*trees: PyTree) -> tuple[Float[Array, ""], ...]:
    """The norm of each, for one decision how to compute them."""
    dtypes = [accumulator(a) for a in trees]
    if all(map(_fits_doubles, trees, dtypes)):
        return tuple(map(_norm_in_doubles, trees))
    squares = [_sum(a, lambda a, t=t: jnp.square(a.astype(t))) for a, t in zip(trees, dtypes)]  # noqa: B905
    # Far from both ends of the numbers no scale is needed; it would take half of a small step.
    plain = functools.reduce(operator.and_, map(_is_plain, squares))
    roots = lambda: tuple(map(jnp.sqrt, squares))  # noqa: E731
    scaled = lambda: tuple(map(_scaled_norm, trees, dtypes))  # noqa: E731
    return lax.cond(plain, roots, scaled) if on_cpu() else where(plain, roots(), scaled())


def _fits_doubles(a: PyTree, dtype: jnp.dtype) -> bool:
    """Whether doubles, in which no square of a float32 is too large or small, cost nothing.

    On a CPU the squares of a large vector are written to memory; others than these have no doubles.
    """
    platform = jax.default_backend()
    room = {"cpu": size(a) <= _NARROW, "gpu": True}.get(platform, False)
    return _DOUBLES_INSIDE and dtype == jnp.float32 and room


def _squares_in_doubles(a: PyTree) -> Array:
    """‖a‖² in double precision, where it is finite wherever a is."""
    with double_precision():
        return _sum(a, lambda a: jnp.square(lax.convert_element_type(a, jnp.float64)))


def _norm_in_doubles(a: PyTree) -> Float[Array, ""]:
    """‖a‖ without a branch for its scale: a step of a small problem has three such norms."""
    with double_precision():
        return lax.convert_element_type(lax.sqrt(_squares_in_doubles(a)), jnp.float32)


def _is_plain(squares: Float[Array, ""]) -> Array:
    low, high = jnp.finfo(squares.dtype).tiny ** 0.5, jnp.finfo(squares.dtype).max ** 0.5
    return (squares > low) & (squares < high)


def _scaled_norm(a: PyTree, dtype: jnp.dtype) -> Float[Array, ""]:
    size = largest(a)
    scale = jnp.where((size > 0) & jnp.isfinite(size), size, jnp.ones_like(size))
    scale = jnp.minimum(scale, _divisor(dtype))
    return scale * jnp.sqrt(_sum(a, lambda a: jnp.square(a.astype(dtype) / scale)))


def cleaning(P: Callable[[PyTree], PyTree], like: PyTree) -> Callable[[PyTree], PyTree]:
    """P where it is a multiple sΠ of a projection, else I, for a symmetric P.

    Seen by whether P²z = sPz to rounding for an irregular z.
    """
    z = jax.tree.map(lambda a: jnp.cos(jnp.arange(a.size, dtype=a.dtype)).reshape(a.shape), like)
    once = P(z)
    twice, square, rounding = P(once), inner_product(once, once), 100 * eps(like)
    s = inner_product(once, twice) / jnp.where(square > 0, square, jnp.ones_like(square))
    same = norm(add_scaled(twice, -s, once)) <= rounding * norm(twice)
    same = same | (norm(once) <= rounding * norm(z))
    return lambda v: where(same, P(v), v)


def largest(a: PyTree) -> Float[Array, ""]:
    """The largest |entry| that is a number; whether a NaN comes out is up to XLA."""
    dtype = accumulator(a)
    each = [jnp.max(jnp.abs(leaf)).astype(dtype) for leaf in jax.tree.leaves(a)]
    return functools.reduce(jnp.maximum, each)


def power_of_two(size: Float[Array, ""]) -> Float[Array, ""]:
    """The power of two below `size`, so that dividing by it rounds nothing; 1 for 0, ∞ and NaN.

    At the upper end of the numbers it is the largest that has an inverse.
    """
    usable = (size > 0) & jnp.isfinite(size)
    size = jnp.minimum(size, _divisor(size.dtype))
    _, exponent = jnp.frexp(jnp.where(usable, size, jnp.ones_like(size)))
    return jnp.ldexp(jnp.ones_like(size), exponent - 1)


def _divisor(dtype: jnp.dtype) -> float:
    """The largest power of two whose inverse, by which XLA multiplies, is not flushed to zero."""
    return 1 / float(jnp.finfo(dtype).tiny)


def _sum(a: PyTree, of: Callable[[Array], Array]) -> Float[Array, ""]:
    return functools.reduce(operator.add, [jnp.sum(of(leaf)) for leaf in jax.tree.leaves(a)])


def all_finite(a: PyTree) -> Array:
    """Whether no entry of a is NaN or infinite: zero times it would be NaN.

    Of many entries written as a sum of floats, which XLA adds faster than it counts. (An `all` over
    constants, as ∇_x f where f does not depend on x, it folds entry by entry, for seconds where x
    is large.)
    """
    if size(a) <= _NARROW and _fits_doubles(a, accumulator(a)):
        return lax.is_finite(_squares_in_doubles(a))  # no kernel more than a norm has
    sums = [jnp.sum(leaf * jnp.zeros((), leaf.dtype)) for leaf in jax.tree.leaves(a)]
    return functools.reduce(operator.and_, map(jnp.isfinite, sums))


def is_finite_here(a: PyTree) -> bool:
    """`all_finite` for arrays that are there; small ones on the host, where nothing is compiled."""
    leaves = jax.tree.leaves(a)
    here = all(leaf.is_fully_addressable for leaf in leaves)
    if here and sum(leaf.size for leaf in leaves) <= _SMALL:
        return all(bool(np.all(np.isfinite(np.asarray(leaf, np.float64)))) for leaf in leaves)
    return bool(all_finite(a))


_DOUBLES_INSIDE = jax.__version_info__ >= (0, 10)  # JAX 0.6 cannot lower them where they are off
_NARROW = 2**16  # entries whose squares in double precision stay close to the processor
_SMALL = 2**20  # entries that are copied to the host rather than looked at by a compiled program


def eps(a: PyTree) -> float:
    """The relative rounding error of the coarsest leaf."""
    return max(float(jnp.finfo(leaf.dtype).eps) for leaf in jax.tree.leaves(a))


def noise(a: PyTree) -> float:
    """The share of a gradient below which a change of it may be rounding, a tenth at most."""
    return min(1e3 * eps(a), 0.1)


def size(a: PyTree) -> int:
    """The dimension of the space of a."""
    return sum(leaf.size for leaf in jax.tree.leaves(a))
