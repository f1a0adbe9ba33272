"""Preconditioners for CG: a matrix M ≈ H that is easy to invert.

CG then takes as many steps as the eigenvalues of M^{−½} H M^{−½} ask for, not those of H. With M
the diagonal of H this undoes any scaling of the coordinates of y, and is within a factor of q of
the best diagonal M (van der Sluis, Condition numbers and equilibration of matrices, 1969).
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from biloop.oracles import Product
from biloop.problem.variables import as_variable
from biloop.schedules import Count, is_concrete
from biloop.schedules.arguments import as_count


class Preconditioner(eqx.Module):
    """A way to some M ≈ H, symmetric positive definite. A new one is `__call__`."""

    @abstractmethod
    def __call__(self, matvec: Product, b: PyTree, k: Count) -> tuple[Product, Int[Array, ""]]:
        """r ↦ M⁻¹r on the space of b, and the products with H that finding it took."""


def _as_diagonal(values: Any) -> PyTree:
    values = as_variable(values, "values")
    for leaf in jax.tree.leaves(values):
        if is_concrete(leaf) and not np.all(np.asarray(leaf) > 0):
            raise ValueError(
                f"The values of a diagonal must be positive; the smallest is {np.min(leaf):.4g}."
            )
    return values


class Diagonal(Preconditioner):
    """A diagonal that is known: `values` is a pytree like y, positive, and costs no products.

    Any positive values will do, say the diagonal of H at the start of a run.

    Parameters
    ----------
    values : pytree like y
        The diagonal of M, positive.

    Examples
    --------
    >>> solver = bl.CG(steps=1, preconditioner=bl.Diagonal(jnp.array([1.0, 2.0, 4.0])))
    >>> v, state, info = solver(matvec, b, y0, solver.init(y0), 0)
    >>> print(np.asarray(v).round(3))
    [1.   0.5  0.25]
    """

    values: PyTree = eqx.field(converter=_as_diagonal)

    def __call__(self, matvec, b, k):
        shapes, expected = (jax.tree.map(jnp.shape, tree) for tree in (self.values, b))
        if shapes != expected:
            raise ValueError(
                f"The diagonal does not have the structure of y: it is {shapes}, y is {expected}."
            )
        return _divide_by(self.values), jnp.zeros((), jnp.int32)


class Jacobi(Preconditioner):
    """The diagonal of H, found anew in each outer step.

    Without `probes` exactly, H_ii = (H e_i)_i, for q products with y of dimension q. With them from
    so many products with random signs z (Bekas, Kokiopoulou and Saad, An estimator for the diagonal
    of a matrix, 2007):

        H_ii = E z_i (Hz)_i,   with standard deviation (Σ_{j≠i} H_ij²)^½ / √probes

    An entry that cannot be told from zero is taken to be its standard error. This is worth its
    products only where the diagonal dominates; a `Diagonal` that the user knows costs nothing.

    Parameters
    ----------
    probes : int, optional
        Products with random signs; exact, by q products, unless given.
    limit : int
        A larger dimension of y is refused where the diagonal is to be exact.

    Examples
    --------
    >>> solver = bl.CG(steps=1, preconditioner=bl.Jacobi())
    >>> v, state, info = solver(matvec, b, y0, solver.init(y0), 0)
    >>> print(np.asarray(v).round(3), int(info.cost.products))
    [1.   0.5  0.25] 5
    """

    probes: int | None = eqx.field(
        default=None, static=True, converter=as_count("probes", minimum=2, optional=True)
    )
    limit: int = eqx.field(default=5000, static=True, converter=as_count("limit"))

    def __call__(self, matvec, b, k):
        flat, unravel = ravel_pytree(b)

        def product(v: Float[Array, " q"]) -> Float[Array, " q"]:
            return ravel_pytree(matvec(unravel(v)))[0]

        if self.probes is None:
            diagonal, products = self._exact(product, flat), flat.size
        else:
            key = jax.random.fold_in(jax.random.key(0), k)
            diagonal, products = _estimate(product, flat, self.probes, key), self.probes
        return _divide_by(unravel(diagonal)), jnp.asarray(products, jnp.int32)

    def _exact(self, product: Product, like: Float[Array, " q"]) -> Float[Array, " q"]:
        if like.size > self.limit:
            raise ValueError(
                f"The exact diagonal of H would take {like.size} products in each outer step; the "
                f"limit is {self.limit}. Give probes, or the diagonal itself with Diagonal(values)."
            )

        def entry(i: Int[Array, ""]) -> Float[Array, ""]:
            return product(jnp.zeros_like(like).at[i].set(1.0))[i]

        return lax.map(entry, jnp.arange(like.size))


def _estimate(
    product: Product, like: Float[Array, " q"], probes: int, key: Array
) -> Float[Array, " q"]:
    def sample(key: Array) -> Float[Array, " q"]:
        z = jax.random.rademacher(key, like.shape, like.dtype)
        return z * product(z)

    samples = lax.map(sample, jax.random.split(key, probes))
    error = jnp.std(samples, axis=0, ddof=1) / jnp.sqrt(jnp.asarray(probes, like.dtype))
    return jnp.maximum(jnp.mean(samples, axis=0), error)


def _divide_by(diagonal: PyTree) -> Product:
    return lambda r: jax.tree.map(lambda r, d: r / d.astype(r.dtype), r, diagonal)
