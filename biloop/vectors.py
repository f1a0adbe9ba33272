"""Pytrees as vectors: sums, inner products and norms over all leaves.

Arithmetic stays in the dtype of the leaves. Reductions run in at least float32, because a float16
square overflows at 256 and a bfloat16 sum stops growing after 256 terms.
"""

import functools
import operator

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree


def add_scaled(a: PyTree, scale: float | Array, b: PyTree) -> PyTree:
    """a + scale · b, in the dtypes of a."""
    return jax.tree.map(lambda a, b: a + jnp.asarray(scale).astype(a.dtype) * b, a, b)


def subtract(a: PyTree, b: PyTree) -> PyTree:
    """a − b."""
    return jax.tree.map(operator.sub, a, b)


def zeros_like(a: PyTree) -> PyTree:
    """The zero of the space of a."""
    return jax.tree.map(jnp.zeros_like, a)


def where(condition: Array, a: PyTree, b: PyTree) -> PyTree:
    """a if condition else b, as a select that never looks into the other branch's NaN."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), a, b)


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
    """‖a‖ = √⟨a, a⟩."""
    return jnp.sqrt(inner_product(a, a))


def all_finite(a: PyTree) -> Array:
    """Whether no entry of a is NaN or infinite.

    Written as a sum: XLA folds an `all` over constants (∇_x f where f does not depend on x) entry
    by entry, for seconds where x is large.
    """
    bad = [jnp.sum(~jnp.isfinite(leaf)) for leaf in jax.tree.leaves(a)]
    return functools.reduce(operator.add, bad) == 0


def eps(a: PyTree) -> float:
    """The relative rounding error of the coarsest leaf."""
    return max(float(jnp.finfo(leaf.dtype).eps) for leaf in jax.tree.leaves(a))


def noise(a: PyTree) -> float:
    """The share of a gradient below which a change of it may be rounding, a tenth at most."""
    return min(1e3 * eps(a), 0.1)


def size(a: PyTree) -> int:
    """The dimension of the space of a."""
    return sum(leaf.size for leaf in jax.tree.leaves(a))
