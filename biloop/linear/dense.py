"""Direct solution with the dense Hessian, for small y."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from biloop.linear.base import LinearSolver, linear_info
from biloop.loops.results import Code, Status, code
from biloop.oracles import Product
from biloop.schedules.arguments import as_count
from biloop.vectors import accumulator, norm, size


class Dense(LinearSolver):
    """v = H⁻¹ b from the eigenvalues of the dense H: q products for y of dimension q, then O(q³).

    The eigenvalues also say whether H is singular or indefinite. `limit` refuses a dimension that
    would not fit: the matrix has q² entries.

    Parameters
    ----------
    limit : int
        A larger dimension is refused.

    Examples
    --------
    >>> solver = bl.Dense()
    >>> v, state, info = solver(matvec, b, y0, solver.init(y0), 0)
    >>> print(np.asarray(v).round(3), int(info.cost.products))
    [1.   0.5  0.25] 3
    """

    limit: int = eqx.field(default=5000, static=True, converter=as_count("limit"))

    @property
    def judges(self):
        return True

    def init(self, v):
        return ()

    def __call__(self, matvec, b, v0, state, k):
        q = size(b)
        if q > self.limit:
            raise ValueError(
                f"Dense would form a {q} × {q} matrix; its limit is {self.limit}. "
                f"Use CG, or raise the limit with Dense(limit={q})."
            )
        flat, unravel = ravel_pytree(b)
        v, residual, result = solve_symmetric(dense_matrix(matvec, b), flat)
        one = jnp.ones((), jnp.int32)
        return unravel(v.astype(flat.dtype)), (), linear_info(residual, one, q * one, result)


def dense_matrix(matvec: Product, like: PyTree) -> Float[Array, "q q"]:
    """The matrix of a symmetric product, column by column, in at least float32."""
    flat, unravel = ravel_pytree(like)
    columns = jax.vmap(lambda e: ravel_pytree(matvec(unravel(e)))[0])(
        jnp.eye(flat.size, dtype=flat.dtype)
    )
    matrix = columns.astype(accumulator(flat))
    return (matrix + matrix.T) / 2


def solve_symmetric(
    matrix: Float[Array, "q q"], b: Float[Array, " q"]
) -> tuple[Float[Array, " q"], Float[Array, ""], Code]:
    """V with matrix · v = b, ‖matrix · v − b‖, and whether the matrix is positive definite."""
    b = b.astype(matrix.dtype)
    eigenvalues, vectors = jnp.linalg.eigh(matrix)
    v = vectors @ ((vectors.T @ b) / eigenvalues)
    cutoff = b.size * jnp.finfo(matrix.dtype).eps * jnp.max(jnp.abs(eigenvalues))
    result = jnp.where(
        jnp.min(jnp.abs(eigenvalues)) <= cutoff,
        code(Status.SINGULAR),
        jnp.where(jnp.min(eigenvalues) < 0, code(Status.INDEFINITE), code(Status.COMPLETED)),
    )
    return v, norm(matrix @ v - b), result
