"""Conjugate gradients on the normal equations, for a matrix that is not symmetric."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop.linear.base import LinearSolver, linear_info
from biloop.linear.cg import CG
from biloop.loops.adaptive import Curvature
from biloop.loops.iteration import limit
from biloop.loops.results import Code, Status, code, code_if, first_failure
from biloop.oracles import transposed
from biloop.schedules import Adaptive, Constant, Count, step_count
from biloop.schedules.arguments import shown
from biloop.vectors import norm, subtract

_ROUNDS = 20  # each leaves at most half of the residual, or is the last one
_SOLVED = 0.3  # of b: a residual that is larger is no solution
_CLOSER = 0.5  # of the share of ‖Aᵀr‖ that is missing, so that the next round is enough


class NormalEquations(LinearSolver):
    """Conjugate gradients on AᵀA v = Aᵀb, for any A that is not singular.

    2Q + 4 products with A and Aᵀ for Q steps. The condition number is squared; it is safe where
    nothing is known of A. Limits are those of the inner `CG`, and so is the tolerance, which is one
    for ‖Av − b‖ here. `CG` sees Aᵀ(Av − b) only: it is asked for as much less of that as it takes,
    and started anew where that was too little.

    Parameters
    ----------
    cg : CG
        Its steps and its tolerance.

    Examples
    --------
    >>> A = jnp.array([[1.0, -2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 4.0]])
    >>> solver = bl.NormalEquations(bl.CG(steps=3))
    >>> v, state, info = solver(lambda v: A @ v, b, y0, solver.init(y0), 0)
    >>> print(np.asarray(v).round(3))
    [ 0.6  -0.2   0.25]
    """

    cg: CG

    def __check_init__(self):
        if not isinstance(self.cg, CG):
            raise TypeError(f"cg must be a CG, e.g. CG(steps=50); got {shown(self.cg)}.")

    @property
    def needs_symmetry(self):
        return False

    @property
    def judges(self):
        return self.cg.judges

    @property
    def refines(self):
        return self.cg.refines

    def init(self, v):
        return self.cg.init(v)

    def __call__(self, matvec, b, v0, state, k):
        back = transposed(matvec, b)
        right, target, size = back(b), limit(self.cg.tolerance, k), norm(b)
        # What loops have seen of A and tell one another is for AᵀA its square.
        squared = _inverse_mu(jnp.square, state)

        def attempt(last: _Round) -> _Round:
            cg = self._until(last, target, k)
            v, known, info = cg(lambda v: back(matvec(v)), right, last.v, last.known, k)
            residual = norm(subtract(matvec(v), b))
            missing = ~(residual <= (0 if target is None else target.astype(residual.dtype)))
            gained = (info.result == code(Status.COMPLETED)) & (residual <= _CLOSER * last.residual)
            return _Round(
                v, known, residual, info.residual, last.steps + info.steps,
                last.products + 2 * jnp.asarray(info.cost.products) + 1, info.result, missing,
                missing & (gained | (last.rounds == 0)), last.rounds + 1,
            )  # fmt: skip

        none, one = jnp.zeros((), jnp.int32), jnp.ones((), jnp.int32)
        yes = jnp.ones((), bool)
        # As if it were at v = 0: ‖Aᵀr‖ / ‖r‖ is what one with ‖r‖ says of the other.
        end = _Round(v0, squared, size, norm(right), none, one, none, yes, yes, none)
        if target is None:
            end = attempt(end)
            # The least squares of a singular A solve AᵀA v = Aᵀb, and nothing else.
            missed = self.cg.judges & ~(end.residual <= _SOLVED * size)
            result = first_failure(end.result, code_if(missed, Status.UNCONVERGED))
        else:
            end = lax.while_loop(lambda s: s.again & (s.rounds < _ROUNDS), attempt, end)
            result = first_failure(end.result, code_if(end.missing, Status.UNCONVERGED))
        state = _inverse_mu(jnp.sqrt, end.known)
        return end.v, state, linear_info(end.residual, end.steps, end.products, result)

    def _until(self, last: "_Round", target: Float[Array, ""] | None, k: Count) -> CG:
        """CG for what is missing, in its own units, with the steps that are left."""
        if target is None:
            return self.cg
        ratio = last.transposed / jnp.where(last.residual > 0, last.residual, 1.0)
        tolerance = _CLOSER * ratio * target.astype(ratio.dtype)
        cg = eqx.tree_at(lambda cg: cg.tolerance, self.cg, Constant(tolerance))
        if isinstance(cg.steps, Adaptive):
            return cg
        left = jnp.asarray(step_count(cg.steps, k)) - last.steps
        return eqx.tree_at(lambda cg: cg.steps, cg, Constant(left))


class _Round(NamedTuple):
    """v, ‖Av − b‖ and ‖Aᵀ(Av − b)‖ there, what it took, and whether there is more to do."""

    v: PyTree
    known: PyTree
    residual: Float[Array, ""]
    transposed: Float[Array, ""]
    steps: Int[Array, ""]
    products: Int[Array, ""]
    result: Code
    missing: Bool[Array, ""]
    again: Bool[Array, ""]
    rounds: Int[Array, ""]


def _inverse_mu(change: Callable[[Array], Array], state: PyTree) -> PyTree:
    """The state of a CG with its inverse curvature changed, if it keeps one."""
    if not isinstance(state, Curvature):
        return state
    return state._replace(inverse_mu=change(state.inverse_mu))
