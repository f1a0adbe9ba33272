"""Any solver of lineax (https://docs.kidger.site/lineax), an optional dependency."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from biloop.linear.base import LinearSolver, linear_info
from biloop.loops.results import Status, code
from biloop.schedules.arguments import as_flag, shown
from biloop.vectors import (
    largest,
    norm,
    power_of_two,
    scaled,
    size,
    subtract,
    where,
    zeros_like,
)

if TYPE_CHECKING:
    import lineax


class Lineax(LinearSolver):
    """v from a lineax solver, e.g. `Lineax(lx.CG(rtol=1e-6, atol=1e-6))` or `Lineax(lx.LU())`.

    Its tolerances and its `max_steps` are the loop's; iterative solvers start at v⁰. They are given
    the system divided by the largest entry of b (by a power of two near it): no square underflows,
    and an absolute tolerance is one in units of b. One product is spent on the residual. lineax
    does not report products: they follow from its steps, exactly for direct solvers, CG and
    BiCGStab, and as an upper bound for the others. `symmetric=False` says that the matrix need not
    be symmetric, as for an equilibrium.

    Parameters
    ----------
    solver : lineax.AbstractLinearSolver
        Any of them, with its own tolerances.
    symmetric : bool
        Whether the matrix is symmetric, as H is.

    Examples
    --------
    >>> import lineax as lx
    >>> solver = bl.Lineax(lx.CG(rtol=1e-6, atol=1e-6))
    >>> v, state, info = solver(matvec, b, y0, solver.init(y0), 0)
    >>> print(np.asarray(v).round(3))
    [1.   0.5  0.25]
    """

    solver: "lineax.AbstractLinearSolver"
    symmetric: bool = eqx.field(default=True, static=True, converter=as_flag("symmetric"))

    def __check_init__(self):
        lx = _lineax()
        if not isinstance(self.solver, lx.AbstractLinearSolver):
            raise TypeError(f"solver must be a lineax solver, got {shown(self.solver)}.")

    @property
    def needs_symmetry(self):
        return self.symmetric

    @property
    def judges(self):
        return True

    def init(self, v):
        return ()

    def __call__(self, matvec, b, v0, state, k):
        lx = _lineax()
        operator = lx.FunctionLinearOperator(
            matvec,
            jax.eval_shape(lambda: b),
            (lx.symmetric_tag, lx.positive_semidefinite_tag) if self.symmetric else (),
        )
        entry = largest(b)
        scale = power_of_two(entry)
        right, start = scaled(1 / scale, (b, v0))
        start = where(entry > 0, start, zeros_like(start))  # b = 0 has no scale, and v = 0
        # lineax has no strict dtype promotion.
        with jax.numpy_dtype_promotion("standard"):
            solution = lx.linear_solve(
                operator, right, self.solver, options={"y0": start}, throw=False
            )
        v = jax.tree.map(lambda v, b: v.astype(b.dtype), solution.value, b)
        v = scaled(scale, v)
        results = lx.RESULTS
        result = jnp.where(
            solution.result == results.successful,
            code(Status.COMPLETED),
            jnp.where(
                solution.result == results.max_steps_reached,
                code(Status.UNCONVERGED),
                jnp.where(
                    solution.result == results.singular,
                    code(Status.SINGULAR),
                    code(Status.LINEAR_FAILED),
                ),
            ),
        )
        steps = jnp.asarray(solution.stats.get("num_steps", 1), jnp.int32)
        residual = norm(subtract(matvec(v), b))
        products = self._products(steps, size(b), "num_steps" in solution.stats) + 1
        return v, (), linear_info(residual, steps, products, result)

    def _products(self, steps: Int[Array, ""], q: int, iterative: bool) -> Int[Array, ""]:
        lx = _lineax()
        solver = self.solver
        if not iterative:
            return jnp.asarray(q, jnp.int32)
        if isinstance(solver, lx.CG):
            recomputed = steps // solver.stabilise_every if solver.stabilise_every else 0
            return 1 + steps + recomputed
        if isinstance(solver, lx.BiCGStab):
            return 1 + 2 * steps
        if isinstance(solver, lx.GMRES):
            return steps + (steps - 1) * min(solver.restart, q)  # the first only takes the residual
        return 2 + 2 * steps  # normal equations: one product with H and one with its transpose


def _lineax():
    try:
        import lineax
    except ImportError:
        raise ImportError(
            "Lineax needs the package lineax: pip install 'biloop[solvers]'."
        ) from None
    return lineax
