"""The derivatives of a root: the implicit function theorem as a rule that JAX can apply.

A root y*(p) of F(p, ·), where p is x and the data and whatever inner closes over, moves as

    ẏ = −F_y⁻¹ F_p ṗ

by the implicit function theorem. The rule is forwards, transposes to the reverse, and calls itself
for y*, so that it can be differentiated again: Hessians, and argmins inside argmins. How y* was
found is not differentiated. After M. Blondel et al., Efficient and modular implicit differentiation
(2022).

No derivative is wrong in silence. Where a solve failed, y and its derivatives are NaN. Where it is
UNCONVERGED, y is what was found, and its derivatives are NaN unless ‖F‖ is at most `accuracy` times
max(‖F_y (y − y0)‖, ‖F_y y‖), as it is in units of y itself; and so for a solver that has no target
and spends its steps, wherever it ends. Where y is on a kink of g they are NaN. Where the linear
system of a derivative failed, it is NaN, and where that is UNCONVERGED or has no target, unless its
residual is at most `accuracy`, or √eps, of its right side.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, PyTree

from biloop import vectors
from biloop.inner.kinks import across, has_no_kinks
from biloop.inner.solution_maps.finding import Find
from biloop.linear import LinearSolver
from biloop.loops.iteration import LoopInfo
from biloop.loops.results import FIRST_FAILURE, Status, code, code_if, first_failure
from biloop.oracles import Product, curved_by, motion, natural_step
from biloop.problem import Problem
from biloop.vectors import norm


@eqx.filter_custom_jvp
def root(
    problem: Problem, x: PyTree, y0: PyTree, *, find: Find, linear: LinearSolver, accuracy: Array
) -> tuple[PyTree, LoopInfo]:
    """A root y of F(x, ·) from y0, and how it was found; NaN if it was not."""
    y, info = find(problem, x, y0)
    failed = (info.result >= FIRST_FAILURE) | ~jnp.isfinite(info.residual)
    result = jnp.where(
        (info.result < FIRST_FAILURE) & failed, code(Status.INNER_NOT_FINITE), info.result
    )
    if find.until_rounding:  # what a rounding is was seen on the way, and may be less where it ends
        coarse = jnp.maximum(accuracy, vectors.eps(y) ** 0.5)
        lost = _is_lost(problem, x, y0, y, info, coarse)
        result = first_failure(result, code_if(lost, Status.UNCONVERGED))
    elif not find.judges:  # but by its residual alone
        good = ~_is_lost(problem, x, y0, y, info, accuracy)
        result = jnp.where(failed, result, code_if(~good, Status.UNCONVERGED))
    return _nan_where(failed, y), info._replace(result=result)


@root.def_jvp
def _moved(
    primals: Any, tangents: Any, *, find: Find, linear: LinearSolver, accuracy: Array
) -> Any:
    problem, x, y0 = primals
    *moves, y0_moves = tangents
    if jax.tree.leaves(y0_moves):
        raise TypeError(
            "y*(x) does not depend on y0, where the solver starts, so there is no derivative with "
            "respect to it. If y0 comes from something that is differentiated, wrap it: "
            "jax.lax.stop_gradient(y0)."
        )
    y, info = root(problem, x, y0, find=find, linear=linear, accuracy=accuracy)
    step = lax.stop_gradient(natural_step(problem, x, y))
    solve = functools.partial(_solve, linear, accuracy, not problem.is_equilibrium)
    moved = motion(problem, x, y, tuple(moves), step, solve)
    lost = lax.cond(  # what it takes to judge is evaluated where there is a doubt
        info.result == code(Status.UNCONVERGED),
        lambda: _is_lost(problem, x, y0, y, info, accuracy),
        lambda: info.result >= FIRST_FAILURE,
    )
    if problem.kind == "minimum" and not has_no_kinks(problem, x, y):
        lost = lost | (across(*stopped((problem, x, y, y0))) > 0)
    moved = _spoilt(moved, lost, moves)
    return (y, info), (moved, jax.tree.map(lambda _: None, info))


def _spoilt(moved: PyTree, lost: Bool[Array, ""], moves: PyTree) -> PyTree:
    """NaN where `lost`, for whatever moves.

    A term and neither a choice, whose transpose would be zero where it is not made, nor a factor of
    `moved`, which may be zero for all that JAX knows: at a kink no derivative could be NaN.
    """
    dtype = vectors.accumulator(moved)
    total = sum(jnp.sum(t).astype(dtype) for t in jax.tree.leaves(moves))
    spoilt = jnp.where(lost, jnp.nan, 0.0).astype(dtype) * total
    return jax.tree.map(lambda a: a + spoilt.astype(a.dtype), moved)


def _is_lost(
    problem: Problem, x: PyTree, y0: PyTree, y: PyTree, info: LoopInfo, accuracy: Array
) -> Bool[Array, ""]:
    """Whether an UNCONVERGED y is too far from a root, by scales that are its own."""
    problem, x, y0, y = stopped((problem, x, y0, y))
    step = natural_step(problem, x, y)

    def is_large(error: PyTree) -> Bool[Array, ""]:
        scale = curved_by(problem, x, y, step, error)
        return ~(info.residual <= accuracy.astype(scale.dtype) * scale)

    # One after the other by one program: that of an inner problem in g is long.
    errors = jax.tree.map(lambda *es: jnp.stack(es), vectors.subtract(y, y0), y)
    return jnp.all(lax.map(is_large, errors))


def _solve(
    linear: LinearSolver, accuracy: Array, symmetric: bool, product: Product, b: PyTree
) -> PyTree:
    """A⁻¹b by the linear solver, as something that JAX can transpose and differentiate."""

    def run(matvec: Product, b: PyTree) -> PyTree:
        zero = vectors.zeros_like(b)
        v, _, info = linear(matvec, b, zero, linear.init(zero), 0)
        share = jnp.maximum(accuracy.astype(info.residual.dtype), vectors.eps(b) ** 0.5)
        doubtful = (info.result == code(Status.UNCONVERGED)) | (not linear.judges)
        doubtful = doubtful & ~(info.residual <= share * norm(b))
        return _nan_where((info.result >= FIRST_FAILURE) | doubtful, v)

    # As one vector: JAX cannot transpose a system some of whose right sides do not move.
    flat, unravel = ravel_pytree(b)
    matvec = lambda v: ravel_pytree(product(unravel(v)))[0]  # noqa: E731
    solved = lax.custom_linear_solve(matvec, flat, run, transpose_solve=run, symmetric=symmetric)
    return unravel(solved)


def _nan_where(bad: Array, tree: PyTree) -> PyTree:
    return jax.tree.map(lambda a: jnp.where(bad, jnp.full_like(a, jnp.nan), a), tree)


def stopped(tree: PyTree) -> PyTree:
    """The tree as a constant of derivatives."""
    return jax.tree.map(lambda a: lax.stop_gradient(a) if eqx.is_inexact_array(a) else a, tree)
