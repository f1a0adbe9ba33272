"""Pairs of changes of x and h, and the inverse Hessian that limited-memory BFGS makes of them.

In the compact form of R. H. Byrd, J. Nocedal and R. B. Schnabel, Representations of quasi-Newton
matrices and their use in limited memory methods (1994): a few products with all pairs at once in
place of a recursion over them. What is stored of x and h is never moved, only overwritten.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.vectors import subtract


class Pairs(NamedTuple):
    """Changes s of x and e of h in a ring; zero where there is none yet."""

    S: PyTree  # leaves with a leading axis of length m
    E: PyTree
    SE: Float[Array, "m m"]  # ⟨s_i, e_j⟩, where i is not newer than j
    EE: Float[Array, "m m"]
    newest: Int[Array, ""]  # its place


def no_pairs(x: PyTree, memory: int) -> Pairs:
    """Places for `memory` pairs."""
    empty = jax.tree.map(lambda a: vectors.zeros((memory, *a.shape), a.dtype), x)
    products = vectors.zeros((memory, memory), vectors.accumulator(x))
    return Pairs(empty, empty, products, products, vectors.zeros((), jnp.int32))


def is_empty(pairs: Pairs) -> Bool[Array, ""]:
    """Whether no pair is there."""
    return pairs.SE[pairs.newest, pairs.newest] == 0


def push(pairs: Pairs, when: Bool[Array, ""], s: PyTree, e: PyTree) -> Pairs:
    """If so, the pair takes the place of the oldest; otherwise nothing changes.

    Only one place is written: a choice between two rings would copy them.
    """
    memory = len(pairs.SE)
    place = jnp.where(when, (pairs.newest + 1) % memory, pairs.newest)

    def write(old: Array, new: Array, axis: int = 0) -> Array:
        kept = lax.dynamic_index_in_dim(old, place, axis, keepdims=False)
        return lax.dynamic_update_index_in_dim(old, jnp.where(when, new, kept), place, axis)

    S, E = jax.tree.map(write, pairs.S, s), jax.tree.map(write, pairs.E, e)
    Ee = products(E, e)
    return Pairs(
        S,
        E,
        write(pairs.SE, products(S, e), axis=1),
        write(write(pairs.EE, Ee), Ee, axis=1),
        place,
    )


def inverse_times(pairs: Pairs, h: PyTree) -> PyTree:
    """B h for the BFGS matrix B that starts from γI, γ = ⟨s, e⟩ / ⟨e, e⟩ of the newest pair.

    R w = S h,   Rᵀ c = D w − γ (E h − EEᵀ w),   B h = γ (h − Eᵀ w) + Sᵀ c

    with the pairs from new to old, R the lower triangle of SEᵀ and D its diagonal. A pair that is
    still empty changes nothing; without any, B is the identity.
    """
    # From new to old, and back: taken twice it is the order in which they lie.
    order = (pairs.newest - jnp.arange(len(pairs.SE), dtype=jnp.int32)) % len(pairs.SE)
    SE, EE = (a[order][:, order] for a in (pairs.SE, pairs.EE))
    Sh, Eh = products(pairs.S, h)[order], products(pairs.E, h)[order]
    D = jnp.diagonal(SE)
    R = jnp.tril(SE) + jnp.diag(jnp.where(D > 0, jnp.zeros_like(D), jnp.ones_like(D)))
    gamma = jnp.where(D[0] > 0, D[0] / jnp.where(D[0] > 0, EE[0, 0], 1.0), jnp.ones_like(D[0]))

    w = _solve_lower(R, Sh)
    right = D * w - gamma * (Eh - EE @ w)
    c = _solve_lower(R.T[::-1, ::-1], right[::-1])[::-1]
    rest = subtract(h, combination(w[order], pairs.E, h))
    return jax.tree.map(
        lambda a, b: gamma.astype(a.dtype) * a + b, rest, combination(c[order], pairs.S, h)
    )


def _solve_lower(R: Float[Array, "m m"], b: Float[Array, " m"]) -> Float[Array, " m"]:
    """R⁻¹b for a lower triangle, row by row: LAPACK's needs SciPy, which is long to import."""

    def row(w: Float[Array, " m"], given: tuple[Array, ...]) -> tuple[Float[Array, " m"], None]:
        i, of_R, of_b, pivot = given
        entry = (of_b - jnp.sum(of_R * w)) / pivot  # w is still 0 from i on
        return lax.dynamic_update_index_in_dim(w, entry, i, axis=0), None

    places = jnp.arange(len(b), dtype=jnp.int32)
    w, _ = lax.scan(row, jnp.zeros_like(b), (places, R, b, jnp.diagonal(R)))
    return w


def products(stack: PyTree, a: PyTree) -> Float[Array, " m"]:
    """⟨a_i, a⟩ for all a_i of a stack, without moving parts of a leaf that lie apart."""
    dtype = vectors.accumulator(a)
    each = jax.tree.map(
        lambda stack, a: jnp.tensordot(
            stack.astype(dtype), a.astype(dtype), axes=a.ndim, precision=lax.Precision.HIGHEST
        ),
        stack,
        a,
    )
    return jax.tree.reduce(jnp.add, each)


def combination(weights: Float[Array, " m"], stack: PyTree, like: PyTree) -> PyTree:
    """Σ_i weights_i a_i over a stack."""
    return jax.tree.map(
        lambda stack, a: jnp.tensordot(
            weights.astype(a.dtype), stack, axes=1, precision=lax.Precision.HIGHEST
        ),
        stack,
        like,
    )
