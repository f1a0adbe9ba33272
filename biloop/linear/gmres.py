"""GMRES, for a matrix that is not symmetric: (I − ∂T/∂y)ᵀ v = ∇_y f of an equilibrium."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int

from biloop import vectors
from biloop.linear.base import LinearSolver, linear_info
from biloop.loops.iteration import limit
from biloop.loops.results import Status, code_if, first_failure
from biloop.schedules import Adaptive, Schedule, as_steps, as_tolerance, step_count
from biloop.schedules.arguments import as_count
from biloop.vectors import norm

_ROUNDING = 20.0  # eps: of ‖A‖‖v‖ + ‖b‖
_SOLVED = 0.3  # of b: a residual that is larger is no solution, whatever keeps it there
_STALLED = 0.999  # of the residual: a cycle that leaves more gets nowhere


class _Cycle(NamedTuple):
    v: Float[Array, " q"]
    r: Float[Array, " q"]  # b − A v, computed
    size: Float[Array, ""]
    top: Float[Array, ""]  # a lower bound of ‖A‖
    cycles: Int[Array, ""]
    arrived: Bool[Array, ""]
    running: Bool[Array, ""]


class GMRES(LinearSolver):
    """Restarted GMRES: each cycle minimises ‖b − Av‖ over a Krylov space of dimension `restart`.

    v ← v + V_m argmin_c ‖‖r‖ e₁ − H̄_m c‖,   A V_m = V_{m+1} H̄_m   (Arnoldi)

    Y. Saad and M. H. Schultz (1986). A need be neither symmetric nor definite. C cycles cost
    1 + C (restart + 1) products: the residual is computed after each.

    Parameters
    ----------
    steps : integer, schedule of k or "auto"
        The most Arnoldi steps, in whole cycles and at least one. `Adaptive(share, most)` ends where
        the residual is that share of the one at v⁰, or rounding.
    tolerance : number or schedule of k
        The loop ends at ‖Av − b‖ ≤ tolerance. 0 spends all steps, but for cycles that lead nowhere.
    restart : int
        The dimension of the Krylov space, and as many vectors like y.

    Examples
    --------
    >>> A = jnp.array([[1.0, -2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 4.0]])
    >>> solver = bl.GMRES(steps=3, restart=3)
    >>> v, state, info = solver(lambda v: A @ v, b, y0, solver.init(y0), 0)
    >>> print(np.asarray(v).round(3))
    [ 0.6  -0.2   0.25]
    """

    steps: Schedule = eqx.field(converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)
    restart: int = eqx.field(default=20, static=True, converter=as_count("restart"))

    @property
    def needs_symmetry(self):
        return False

    @property
    def judges(self):
        return self.tolerance is not None or isinstance(self.steps, Adaptive)

    @property
    def refines(self):
        return isinstance(self.steps, Adaptive)

    def init(self, v):
        return ()

    def __call__(self, matvec, b, v0, state, k):
        right, unravel = ravel_pytree(b)
        start, _ = ravel_pytree(v0)
        dtype = vectors.accumulator(b)
        product = lambda v: ravel_pytree(matvec(unravel(v.astype(right.dtype))))[0].astype(dtype)  # noqa: E731
        right, start = right.astype(dtype), start.astype(dtype)
        m = min(self.restart, right.size)
        steps = step_count(self.steps, k)
        most = jnp.maximum(jnp.asarray(steps) // m, 1)
        eps, b_size = vectors.eps(b), norm(right)

        r = right - product(start)
        first = norm(r)
        target = limit(self.tolerance, k)
        if target is None and isinstance(self.steps, Adaptive):
            target = self.steps.share.astype(dtype) * first

        def body(s: _Cycle) -> _Cycle:
            move, top = _arnoldi(product, s.r, s.size, m)
            top = jnp.maximum(s.top, top)
            v = s.v + move
            r = right - product(v)
            size = norm(r)
            better = size < s.size
            v, r = jnp.where(better, v, s.v), jnp.where(better, r, s.r)
            stalled = ~(size <= _STALLED * s.size)
            size = jnp.where(jnp.isnan(size), size, jnp.minimum(size, s.size))
            rounded = size <= _ROUNDING * eps * (top * norm(v) + b_size)
            rounded = rounded & (size <= _SOLVED * b_size)
            arrived = rounded if target is None else size <= target.astype(dtype)
            if isinstance(self.steps, Adaptive) and self.tolerance is None:
                arrived = arrived | rounded
            return _Cycle(v, r, size, top, s.cycles + 1, arrived, ~arrived & ~stalled)

        none = jnp.zeros((), jnp.int32)
        done = first <= (jnp.zeros((), dtype) if target is None else target.astype(dtype))
        zero = jnp.zeros((), dtype)
        begin = _Cycle(start, r, first, zero, none, done, ~done & jnp.isfinite(first))
        end = lax.while_loop(lambda s: s.running & (s.cycles < most), body, begin)
        missed = code_if(~end.arrived, Status.UNCONVERGED) if target is not None else none
        # A product with this v is off by a good part of b: it is a null vector as far as one sees.
        singular = (b_size > 0) & (eps * end.top * norm(end.v) > _SOLVED * b_size)
        result = first_failure(
            code_if(jnp.asarray(steps) < 0, Status.BAD_SCHEDULE),
            code_if(singular, Status.SINGULAR),
            missed,
        )
        products = 1 + end.cycles * (m + 1)
        v = unravel(end.v.astype(ravel_pytree(b)[0].dtype))
        return v, (), linear_info(end.size, jnp.maximum(end.cycles * m, 1), products, result)


def _arnoldi(product, r: Float[Array, " q"], size: Array, m: int) -> tuple[Array, Array]:
    """The update of one cycle, and the largest ‖A q‖ that was met."""
    q, tiny = r.size, jnp.finfo(r.dtype).tiny
    unit = r / jnp.maximum(size, tiny)
    basis = jnp.zeros((m + 1, q), r.dtype).at[0].set(unit)
    hessenberg = jnp.zeros((m + 1, m), r.dtype)

    def step(j: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        basis, H, top = carry
        w = product(basis[j])
        length = norm(w)
        shares = basis @ w
        w = w - shares @ basis
        more = basis @ w  # once more: what is left may be rounding
        w = w - more @ basis
        left = norm(w)
        # The space is invariant: what is left is noise, and zero rows end it.
        fresh = left > 10 * jnp.finfo(r.dtype).eps * length
        next_ = jnp.where(fresh, w / jnp.maximum(left, tiny), jnp.zeros_like(w))
        column = (shares + more).at[j + 1].set(jnp.where(fresh, left, jnp.zeros_like(left)))
        return basis.at[j + 1].set(next_), H.at[:, j].set(column), jnp.maximum(top, length)

    basis, H, top = lax.fori_loop(0, m, step, (basis, hessenberg, jnp.zeros_like(size)))
    return _least_squares(H, size) @ basis[:-1], top


def _least_squares(H: Float[Array, "n m"], size: Array) -> Float[Array, " m"]:
    """argmin_c ‖size e₁ − H c‖ for a Hessenberg matrix, by H = QR.

    R_jj is at least the entry below the diagonal, so that it is zero where the space ends alone:
    there c_j = 0 is as good as any.
    """
    Q, R = jnp.linalg.qr(H)
    diagonal, eps = jnp.abs(jnp.diag(R)), jnp.finfo(H.dtype).eps
    over = diagonal <= eps * jnp.sqrt(jnp.sum(H**2, axis=0))  # but not where it is NaN
    R = jnp.where(over[:, None], jnp.eye(len(R), dtype=R.dtype), R)
    right = jnp.where(over, jnp.zeros_like(diagonal), size * Q[0])
    return solve_triangular(R, right)
