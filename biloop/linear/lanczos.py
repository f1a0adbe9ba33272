"""Extreme eigenvalues of a symmetric operator that is known only as a product: Lanczos.

With Q = [q_1 … q_k] an orthonormal basis of span{q_1, Aq_1, …, A^{k−1}q_1},

    AQ = QT + β_k q_{k+1} e_kᵀ,   T tridiagonal, with eigenvalues (Ritz values) θ_1 ≤ … ≤ θ_k

What is true of them:

- λ_min ≤ θ_1 and θ_k ≤ λ_max, always: θ are values of vᵀAv/vᵀv.
- Some eigenvalue lies within |β_k s_k| of θ, with s_k the last entry of T's eigenvector. It need
  not be the extreme one, so a small residual proves nothing about λ_min or λ_max.
- q_{k+1} = p(A) q_1 with p(t) = Π(t − θ_j)/Πβ_j. Its norm is 1, so |p(λ)| ≤ 1/|⟨q_1, u⟩| for every
  eigenpair (λ, u), and outside [θ_1, θ_k] |p| grows fast. For q_1 uniform on the sphere of R^n,
  |⟨q_1, u⟩| ≥ r with probability 1 − δ: where |p| reaches 1/r lies a bound beyond λ_max (or before
  λ_min) that fails with probability δ, whatever the spectrum.
- After n products the Ritz values are the eigenvalues.

The third is from van Dorsselaer, Hochstenbach and van der Vorst, Computing probabilistic bounds
for extreme eigenvalues of symmetric matrices with the Lanczos method, SIAM J. Matrix Anal. Appl.
22 (2000). Its distance from the Ritz value is at most about (ln(√n/δ)/2k)² of the spread of the
spectrum, as Kuczyński and Woźniakowski (1992) have it beforehand: for k = 60, δ = 10⁻⁶ and
n = 10⁶ that is 3 %. So 60 products always tell λ_max, but λ_min only if it is not much smaller, or
well separated.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from biloop.oracles import Product
from biloop.vectors import accumulator, eps, inner_product, norm, size

PRODUCTS = 60
FAILURE = 1e-6
_HALVINGS = 60


class Bracket(NamedTuple):
    """lower ≤ λ ≤ upper for an extreme eigenvalue λ, with its Ritz value and residual.

    The side of the Ritz value is certain but for rounding, for which room is left; the other side
    fails with the probability δ that was asked for. Some eigenvalue, not necessarily λ, lies
    within `residual` of `ritz`.
    """

    lower: Float[Array, ""]
    upper: Float[Array, ""]
    ritz: Float[Array, ""]
    residual: Float[Array, ""]


class Extremes(NamedTuple):
    """Brackets of λ_min and λ_max, the products spent, and whether the Ritz values are exact."""

    smallest: Bracket
    largest: Bracket
    products: int | Int[Array, ""]
    exact: bool | Bool[Array, ""]


class Tridiagonal(NamedTuple):
    """T: its diagonal α, the β below it (the last one leads out of T), and the random starts."""

    diagonal: Float[Array, " m"]
    below: Float[Array, " m"]
    starts: Int[Array, ""]


def extremes(
    matvec: Product,
    like: PyTree,
    *,
    products: int = PRODUCTS,
    failure: float = FAILURE,
    key: PRNGKeyArray | None = None,
) -> Extremes:
    """λ_min and λ_max of the symmetric `matvec` on the space of `like`, each in a bracket.

    At most `products` products and as many vectors of memory. `failure` is the δ above, for each
    end. Pure and traceable: nothing is raised for what is not finite, it comes out as NaN.

    Parameters
    ----------
    matvec : function
        v ↦ Hv, with H symmetric.
    like : pytree
        Something of the structure of v.
    products : int
        The most products, and as many vectors.
    failure : number
        The probability with which a bracket may be wrong.
    key : jax.random.key, optional
        Of the random start.

    Returns
    -------
    Extremes
        `smallest` and `largest`, each with `lower`, `upper`, `ritz` and `residual`.

    Examples
    --------
    >>> found = bl.estimate.extremes(matvec, y0)
    >>> print(f"{found.smallest.ritz:.3f} {found.largest.ritz:.3f} {found.exact}")
    1.000 4.000 True
    """
    if products < 1:
        raise ValueError(f"products must be at least 1, got {products}.")
    if not 0 < failure < 1:
        raise ValueError(f"failure must be a probability between 0 and 1, got {failure}.")
    n = size(like)
    m = min(products, n)
    T = tridiagonalise(matvec, like, m, jax.random.key(0) if key is None else key)

    off = T.below[:-1]
    ritz, vectors = jnp.linalg.eigh(jnp.diag(T.diagonal) + jnp.diag(off, 1) + jnp.diag(off, -1))
    residuals = jnp.abs(T.below[-1] * vectors[-1])

    # Products and reductions are rounded: by some eps in each of m steps, and in sums of n terms.
    rounding = eps(like) * (4 * m + math.sqrt(n)) * jnp.max(jnp.abs(ritz))
    beyond = jnp.zeros(2, ritz.dtype)
    if m < n:
        log_reach = jnp.asarray(_log_reach(m, n, failure), ritz.dtype)[T.starts - 1]
        # The lower end of A is the upper end of −A.
        ends = jnp.stack([-T.diagonal, T.diagonal]), jnp.stack([-ritz[0], ritz[-1]])
        beyond = jax.vmap(_beyond, in_axes=(0, 0, None, None))(*ends, T.below, log_reach)

    low, high = ritz[0], ritz[-1]
    smallest = Bracket(low - beyond[0] - rounding, low + rounding, low, residuals[0])
    largest = Bracket(high - rounding, high + beyond[1] + rounding, high, residuals[-1])
    return Extremes(smallest, largest, m, m == n)


def tridiagonalise(matvec: Product, like: PyTree, m: int, key: PRNGKeyArray) -> Tridiagonal:
    """T after m steps from a uniform random start, with full reorthogonalisation.

    w = Aq_j,  α_j = ⟨q_j, w⟩,  w ← w − Q(Qᵀw) twice,  β_j = ‖w‖,  q_{j+1} = w/β_j

    Where β_j is rounding error, the space so far is invariant, and a new random start is made in
    its complement.
    """
    dtype = accumulator(like)
    accuracy = float(jnp.finfo(dtype).eps)
    noise = max(m, 10) * accuracy

    def body(j: Array, state: tuple[PyTree, PyTree, Array, Tridiagonal]) -> tuple:
        basis, w, anew, T = state
        q = lax.cond(
            anew,
            lambda: _complement(basis, direction(jax.random.fold_in(key, j), like)),
            lambda: _unit(w),
        )
        basis = jax.tree.map(
            lambda rows, q: lax.dynamic_update_index_in_dim(rows, q, j, axis=0), basis, q
        )
        product = matvec(jax.tree.map(lambda q, a: q.astype(a.dtype), q, like))
        w = jax.tree.map(lambda w: w.astype(dtype), product)
        a, length = inner_product(q, w), norm(w)
        # Once leaves an error of eps‖Aq‖, which counts where β is small; twice is enough, unless
        # little is left even then: that is noise, and its direction means nothing.
        once = _orthogonal_part(basis, w)
        w = _orthogonal_part(basis, once)
        b = norm(w)
        invariant = (b <= noise * length) | (b <= 0.5 * norm(once))
        # No β is known better than rounding, even if it happens to come out as zero.
        b = jnp.maximum(b, accuracy * length)
        starts = T.starts + anew.astype(jnp.int32)
        T = Tridiagonal(T.diagonal.at[j].set(a), T.below.at[j].set(b), starts)
        return basis, w, invariant, T

    empty = Tridiagonal(jnp.zeros(m, dtype), jnp.zeros(m, dtype), jnp.zeros((), jnp.int32))
    basis = jax.tree.map(lambda a: jnp.zeros((m, *a.shape), dtype), like)
    w = jax.tree.map(lambda a: jnp.zeros(a.shape, dtype), like)
    return lax.fori_loop(0, m, body, (basis, w, jnp.asarray(True), empty))[3]


def direction(key: PRNGKeyArray, like: PyTree) -> PyTree:
    """A vector uniform on the unit sphere of the space of `like`, in the dtype of reductions."""
    dtype = accumulator(like)
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(key, len(leaves))
    normal = [jax.random.normal(k, a.shape, dtype) for k, a in zip(keys, leaves, strict=True)]
    return _unit(jax.tree.unflatten(structure, normal))


def _complement(basis: PyTree, w: PyTree) -> PyTree:
    """The direction of w orthogonal to the basis."""
    w = _unit(_orthogonal_part(basis, w))
    return _unit(_orthogonal_part(basis, w))


def _unit(w: PyTree) -> PyTree:
    length = norm(w)
    return jax.tree.map(lambda w: w / length, w)


def _orthogonal_part(basis: PyTree, w: PyTree) -> PyTree:
    """w − Q Qᵀ w. Rows of the basis that are not filled yet are zero."""
    full = lax.Precision.HIGHEST  # accelerators would round the factors to ten bits
    shares = jax.tree.leaves(
        jax.tree.map(lambda Q, w: jnp.tensordot(Q, w, axes=w.ndim, precision=full), basis, w)
    )
    share = sum(shares[1:], shares[0])
    return jax.tree.map(lambda Q, w: w - jnp.tensordot(share, Q, axes=1, precision=full), basis, w)


@functools.lru_cache(maxsize=64)
def _log_reach(m: int, n: int, failure: float) -> np.ndarray:
    """ln(1/r) for b = 1, …, m random starts, r being what Π|⟨q, u⟩| over them exceeds.

    P(|⟨q, u⟩| ≤ t) ≤ ct with c = 2Γ(n/2)/(√π Γ((n−1)/2)), twice the largest density of an entry of
    q, for n ≥ 3; for n = 2, c = 1 will do. Then −ln(c|⟨q, u⟩|) is at most exponential, and the sum
    of b of them at most of law Gamma(b), whose quantile is found by bisection of

        P(Gamma(b) > s) = e^{−s} Σ_{i<b} sⁱ/i!
    """
    log_c = 0.0
    if n > 2:
        log_c = math.log(2 / math.sqrt(math.pi)) + math.lgamma(n / 2) - math.lgamma((n - 1) / 2)
    starts, i = np.arange(1, m + 1), np.arange(m)
    log_factorial = np.array([math.lgamma(j + 1) for j in i])
    low, high = np.zeros(m), starts * (1 - math.log(failure)) + 10
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        terms = np.exp(np.outer(np.log(middle), i) - middle[:, None] - log_factorial)
        rare = np.cumsum(terms, axis=1)[i, i] <= failure
        low, high = np.where(rare, low, middle), np.where(rare, middle, high)
    return starts * log_c + high


def _beyond(
    diagonal: Float[Array, " m"],
    top: Float[Array, ""],
    below: Float[Array, " m"],
    log_reach: Float[Array, ""],
) -> Float[Array, ""]:
    """The s > 0 with p(θ_k + s) = 1/r, by bisection from above.

    Π(t − θ_j) = det(t − T) = Π d_j,   d_j = t − α_j − β²_{j−1}/d_{j−1},   all positive for t > θ_k
    """
    log_target = jnp.sum(jnp.log(below)) + log_reach
    squares = jnp.concatenate([jnp.zeros_like(below[:1]), below[:-1] ** 2])

    def grown(s: Array) -> Array:
        def pivot(carry: tuple[Array, Array], entry: tuple[Array, Array]) -> tuple:
            previous, log_det = carry
            a, square = entry
            d = top + s - a - square / previous
            positive = d > 0  # else s is lost in the rounding of θ_k + s: not grown
            d = jnp.where(positive, d, 1)
            return (d, log_det + jnp.where(positive, jnp.log(d), -jnp.inf)), None

        start = (jnp.ones_like(s), jnp.zeros_like(s))
        (_, log_det), _ = lax.scan(pivot, start, (diagonal, squares))
        return log_det >= log_target

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        enough = grown(middle)
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    # t − θ_j ≥ s for every j, so Π(t − θ_j) ≥ s^m.
    high = jnp.exp(log_target / diagonal.size)
    return lax.fori_loop(0, _HALVINGS, halve, (jnp.zeros_like(high), high))[1]
