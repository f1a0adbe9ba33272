"""Conjugate gradients on the normal equations, for a matrix that is not symmetric."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, PyTree

from biloop.linear.base import LinearSolver, linear_info
from biloop.linear.cg import CG
from biloop.loops.adaptive import Curvature
from biloop.oracles import transposed
from biloop.schedules.arguments import shown
from biloop.vectors import norm, subtract


class NormalEquations(LinearSolver):
    """Conjugate gradients on AᵀA v = Aᵀb, for any A that is not singular.

    2Q + 4 products with A and Aᵀ for Q steps. The condition number is squared; it is safe where
    nothing is known of A. Limits and tolerances are those of the inner `CG`, for ‖Aᵀ(Av − b)‖; the
    residual reported is ‖Av − b‖.

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
        # What loops have seen of A and tell one another is for AᵀA its square.
        squared = _inverse_mu(jnp.square, state)
        v, squared, info = self.cg(lambda v: back(matvec(v)), back(b), v0, squared, k)
        state = _inverse_mu(jnp.sqrt, squared)
        residual = norm(subtract(matvec(v), b))
        products = 2 * jnp.asarray(info.cost.products) + 2
        return v, state, linear_info(residual, info.steps, products, info.result)


def _inverse_mu(change: Callable[[Array], Array], state: PyTree) -> PyTree:
    """The state of a CG with its inverse curvature changed, if it keeps one."""
    if not isinstance(state, Curvature):
        return state
    return state._replace(inverse_mu=change(state.inverse_mu))
