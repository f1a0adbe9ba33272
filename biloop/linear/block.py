"""Block conjugate gradients: several right-hand sides at once.

D. P. O'Leary, The block conjugate gradient algorithm and related methods, Linear Algebra Appl. 29
(1980), in the form with orthonormal residuals of A. A. Dubrulle, Retooling the method of block
conjugate gradients, Electron. Trans. Numer. Anal. 12 (2001), which does not break down where some
of the right-hand sides are dependent, or solved before the others.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from biloop.linear.base import LinearInfo
from biloop.loops.iteration import count, iterate
from biloop.oracles import Product
from biloop.results import Code, Status, code, first_failure
from biloop.schedules import Count, as_steps
from biloop.vectors import accumulator, eps, where


class _State(NamedTuple):
    V: Float[Array, "q p"]
    Q: Float[Array, "q m"]  # orthonormal columns; the residual B − HV is QC
    C: Float[Array, "m p"]
    P: Float[Array, "q m"]  # search directions
    result: Code


def block_cg(
    matvec: Product,
    B: PyTree,
    V0: PyTree,
    *,
    steps: Count,
    tolerance: float | Float[Array, ""] | None = None,
) -> tuple[PyTree, LinearInfo]:
    """V ≈ H⁻¹B for p right-hand sides, stacked along a leading axis of each leaf of B and V.

    A = (PᵀHP)⁻¹,   V ← V + PAC,   Q⁺S = Q − HPA (QR),   P ← Q⁺ + PSᵀ,   C ← SC

    from QC = B − HV⁰ and P = Q. A step is p products, and never later than p separate CGs: each
    column minimises the energy over the directions of all. Ends when ‖HV − B‖ over all columns is
    at most `tolerance`, if there is one. Q steps cost (Q + 1)p products, or Qq + p if p exceeds the
    dimension q.
    """
    _, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], B))
    columns = _columns(B)
    dtype = accumulator(columns)
    rounding = eps(columns)

    def product(P: Float[Array, "q m"]) -> Float[Array, "q m"]:
        one = jax.vmap(lambda v: ravel_pytree(matvec(unravel(v)))[0], in_axes=1, out_axes=1)
        return one(P.astype(columns.dtype)).astype(dtype)

    def step(s: _State) -> tuple[_State, Array]:
        HP = product(s.P)
        energy = s.P.T @ HP
        curvatures, U = jnp.linalg.eigh((energy + energy.T) / 2)
        lowest, cutoff = curvatures[0], rounding * curvatures[-1]
        breakdown = jnp.where(
            lowest < -jnp.abs(cutoff),
            code(Status.INDEFINITE),
            jnp.where(lowest <= cutoff, code(Status.SINGULAR), code(Status.COMPLETED)),
        )
        result = first_failure(s.result, breakdown)
        A = U @ jnp.diag(1 / curvatures) @ U.T
        Q, S = jnp.linalg.qr(s.Q - HP @ A)
        after = _State(s.V + s.P @ (A @ s.C), Q, S @ s.C, Q + s.P @ S.T, result)
        # After a breakdown V stays what it was before it.
        after = where(result == code(Status.COMPLETED), after, s._replace(result=result))
        return after, after.C

    V = _columns(V0).astype(dtype)
    Q, C = jnp.linalg.qr(columns.astype(dtype) - product(V))
    start = _State(V, Q, C, Q, code(Status.COMPLETED))
    target = None if tolerance is None else jnp.asarray(tolerance)
    loop = iterate(step, start, C, count(as_steps(minimum=1)(steps), 0), target)
    s = loop.state
    V = jax.vmap(unravel, in_axes=1)(s.V.astype(columns.dtype))
    products = loop.steps * Q.shape[1] + columns.shape[1]
    return V, LinearInfo(loop.residual, loop.steps, first_failure(s.result, loop.result), products)


def _columns(stack: PyTree) -> Float[Array, "q p"]:
    return jax.vmap(lambda leaf: ravel_pytree(leaf)[0], out_axes=1)(stack)
