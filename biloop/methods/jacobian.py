"""How the inner solution moves with x: ∂y*/∂x, for small x."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from biloop.compilation import compiled
from biloop.linear.block import block_cg
from biloop.loops.iteration import LoopInfo
from biloop.oracles import Cost, linearise
from biloop.problem import Problem, check, refuse_kind
from biloop.problem.variables import as_variable
from biloop.vectors import norm, size, zeros_like


class Response(NamedTuple):
    """∂y*/∂x in the form of `jax.jacobian`, how well it was solved for, and what it cost."""

    jacobian: PyTree
    info: LoopInfo
    cost: Cost


def response(
    problem: Problem,
    x: PyTree,
    y: PyTree,
    *,
    steps: int = 100,
    tolerance: float = 1e-6,
    limit: int = 500,
) -> Response:
    """The derivative of y*(x), from the inner solution y ≈ y*(x): implicit differentiation.

    ∂y*/∂x = −(∇²_y g)⁻¹ ∇_y∇_x g

    by block CG on the p columns of ∇_y∇_x g, with x of dimension p: (Q + 3) p products, until the
    residual is at most `tolerance` times their norm. The Jacobian has p q entries; `limit` refuses
    a larger p, for which products with it (`AID`) are the way.

    Parameters
    ----------
    problem : Problem
    x, y : pytrees
        A point, and the inner solution there.
    steps : int
        The most steps of block CG.
    tolerance : number
        Relative to the right-hand sides.
    limit : int
        The largest dimension of x.

    Returns
    -------
    Response
        `jacobian`, `info` and `cost`.

    Examples
    --------
    >>> tracking = bl.Problem(lambda x, y: jnp.sum((y - 2 * x) ** 2), lambda x, y: jnp.sum(y))
    >>> print(bl.response(tracking, jnp.ones(2), 2 * jnp.ones(2)).jacobian)
    [[2. 0.]
     [0. 2.]]
    """
    x, y = as_variable(x, "x"), as_variable(y, "y")
    check(problem, x, y)
    refuse_kind(problem, ("minimum",), "response", "Use jax.jacobian of bl.argmin.")
    if (p := size(x)) > limit:
        raise ValueError(
            f"x has {p} entries, and the response a column for each; the limit is {limit}. Raise "
            f"it with limit={p}, or use AID for hypergradients, which needs one column."
        )
    return _response(problem, x, y, steps, tolerance)


@compiled
def _response(problem: Problem, x: PyTree, y: PyTree, steps: int, tolerance: float) -> Response:
    flat, unravel = ravel_pytree(x)
    hessian, cross = linearise(problem, x, y)
    # v ↦ ∇_x∇_y g v is linear, and its transpose is δ ↦ ∇_y∇_x g δ.
    mixed = jax.linear_transpose(cross, y)
    units = jax.vmap(unravel)(jnp.eye(flat.size, dtype=flat.dtype))
    columns = jax.tree.map(jnp.negative, jax.vmap(lambda unit: mixed(unit)[0])(units))
    solved, info = block_cg(
        hessian, columns, zeros_like(columns), steps=steps, tolerance=tolerance * norm(columns)
    )

    def split(leaf: Float[Array, "p ..."]) -> PyTree:
        """One leaf of y: its p derivatives with the axes of x, last."""
        rows = jax.vmap(unravel)(jnp.moveaxis(leaf, 0, -1).reshape(-1, flat.size))
        return jax.tree.map(lambda row: row.reshape(*leaf.shape[1:], *row.shape[1:]), rows)

    cost = Cost(jnp.zeros((), jnp.int32), info.cost.products + flat.size)
    return Response(jax.tree.map(split, solved), info, cost)
