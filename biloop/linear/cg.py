"""Conjugate gradients, also where H is not positive definite.

M. R. Hestenes and E. Stiefel, Methods of conjugate gradients for solving linear systems (1952); the
recurrence, and how it differs from the textbook, is in `linear.conjugate`.
"""

from typing import Literal, NamedTuple, get_args

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.linear import damping
from biloop.linear.base import LinearSolver, linear_info
from biloop.linear.conjugate import State, System
from biloop.linear.preconditioning import Preconditioner
from biloop.loops.adaptive import Curvature, adaptivity, curvature_state, unknown
from biloop.loops.iteration import Loop, LoopInfo, Rule, limit
from biloop.loops.results import Code, Status, code, code_if, first_failure
from biloop.oracles import Product
from biloop.schedules import Adaptive, Count, Schedule, as_steps, as_tolerance, step_count
from biloop.schedules.arguments import MOST, one_of, shown
from biloop.vectors import scaled

Indefinite = Literal["fail", "truncate", "damp"]

_TRIES = 8  # how often δ is raised for one system
_SHARE = 0.1  # ... of the error that a loop of given length is taken to leave


class CG(LinearSolver):
    """Conjugate gradients for H v = b, started at v⁰.

    a = ⟨r, z⟩ / ⟨p, Hp⟩,   v ← v + a p,   r⁺ ← r − a Hp,   p ← z⁺ + (⟨r⁺, z⁺⟩ / ⟨r, z⟩) p

    with z = r, or z = M⁻¹r for a `preconditioner` M (`Diagonal`, `Jacobi`). Q steps cost Q + 1
    products, one of them for the residual at v⁰, and those of the preconditioner. The residual
    reported includes what it may have lost to rounding.

    Parameters
    ----------
    steps : integer, schedule of k or "auto"
        Q, the largest number of steps. "auto" is `Adaptive()`.
    tolerance : number or schedule of k
        The loop ends at ‖Hv − b‖ ≤ tolerance. 0, the default, spends all steps.
    preconditioner : Preconditioner, optional
        `Diagonal(values)`, `Jacobi()` or one's own.
    indefinite : "fail", "truncate" or "damp"
        What happens where H is not positive definite, as it is for most networks. "fail" is a
        failure of the run. "truncate" returns the v before the first negative curvature, or ηb with
        η = ‖b‖/‖Hb‖ if nothing is before it (T. Steihaug, 1983); biased by all that lies behind
        that point. "damp" solves (H + δI) v = b with a δ that it finds by itself, anew from where
        it is when it meets negative curvature; biased by about δ/(μ + δ), see `linear.damping`. δ
        is at first a hundredth of the largest curvature, and halved from one outer step to the
        next unless that takes more than 100 products. Both say NONCONVEX.

    Examples
    --------
    >>> solver = bl.CG(steps=3)
    >>> v, state, info = solver(matvec, b, y0, solver.init(y0), 0)
    >>> print(np.asarray(v).round(3), int(info.cost.products))
    [1.   0.5  0.25] 4
    """

    steps: Schedule = eqx.field(converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)
    preconditioner: Preconditioner | None = None
    indefinite: Indefinite = eqx.field(
        default="fail", static=True, converter=one_of("indefinite", get_args(Indefinite))
    )

    def __check_init__(self):
        if not isinstance(self.preconditioner, Preconditioner | None):
            raise TypeError(
                f"preconditioner must be Diagonal(values), Jacobi() or another Preconditioner, got "
                f"{shown(self.preconditioner)}."
            )

    @property
    def judges(self):
        return self.tolerance is not None or isinstance(self.steps, Adaptive)

    @property
    def refines(self):
        return isinstance(self.steps, Adaptive)

    def init(self, v):
        return unknown(v) if self.indefinite == "damp" else curvature_state(self.steps, v)

    def __call__(self, matvec, b, v0, state, k):
        if self.indefinite == "damp":
            return self._damped(matvec, b, v0, state, k)
        v, loop, products = self._solve(matvec, b, v0, state, k)
        if self.indefinite == "truncate":
            v, result, more = _truncated(matvec, b, v, loop)
            loop, products = loop._replace(result=result), products + more
        return v, loop.curvature, linear_info(loop.residual, loop.steps, products, loop.result)

    def _solve(
        self,
        matvec: Product,
        b: PyTree,
        v0: PyTree,
        known: Curvature | tuple[()],
        k: Count,
        most: Count | None = None,
    ) -> tuple[PyTree, Loop, Int[Array, ""]]:
        """v, the loop, and its products; of no more than `most` steps if that is given."""
        precondition, spent = None, 0
        if self.preconditioner is not None:
            precondition, spent = self.preconditioner(matvec, b, k)
        system = System(matvec, b, v0, precondition)
        adaptive = adaptivity(
            self.steps, system.v0, lambda _, after: after.v, known, first=system.r
        )
        steps = step_count(self.steps, k)
        steps = steps if most is None else jnp.minimum(steps, most)
        v, loop = system.solve(Rule(steps, limit(self.tolerance, k), adaptive))
        return v, loop, loop.steps + 1 + spent

    def _damped(
        self, matvec: Product, b: PyTree, v0: PyTree, known: Curvature, k: Count
    ) -> tuple[PyTree, Curvature, LoopInfo]:
        """(H + δI) v = b, with more of δ until it is positive definite as far as one sees."""
        unlimited = jnp.full((), MOST, jnp.int32)

        def attempt(last: _Attempt) -> _Attempt:
            delta = last.damping
            cap = damping.capped(known.inverse_mu, delta)
            most = jnp.where(delta > 0, damping.PATIENCE, unlimited)
            v, loop, products = self._solve(
                damping.shifted(matvec, delta), b, last.v, Curvature(cap, delta), k, most
            )
            seen: State = loop.state
            bad = (loop.result == code(Status.INDEFINITE)) | (loop.result == code(Status.SINGULAR))
            bad = bad & ((delta > 0) | damping.is_negative(seen.lowest, seen.top, b))
            learnt = loop.curvature if isinstance(loop.curvature, Curvature) else known
            quiet = damping.adjusted(delta, seen.top, loop.steps, loop.arrived, b)
            return _Attempt(
                v=vectors.where(bad, vectors.where(last.tries == 0, v0, v), v),
                damping=jnp.where(bad, damping.raised(delta, seen.lowest, seen.top), delta),
                after=learnt._replace(damping=quiet),
                lowest=seen.lowest,
                info=linear_info(
                    loop.residual, loop.steps, last.info.cost.products + products, loop.result
                ),
                tries=last.tries + 1,
                again=bad & (last.tries < _TRIES),
            )

        zero = jnp.zeros((), jnp.int32)
        nothing = linear_info(jnp.full_like(known.inverse_mu, jnp.nan), zero, zero, zero)
        one = jnp.ones_like(known.inverse_mu)
        delta, yes = jnp.asarray(known.damping), jnp.ones((), bool)
        start = _Attempt(v0, delta, known, one, nothing, zero, yes)
        end = lax.while_loop(lambda s: s.again, attempt, start)
        share = self.steps.share if isinstance(self.steps, Adaptive) else _SHARE
        biased = damping.is_biased(end.damping, end.lowest, share)
        result = first_failure(end.info.result, code_if(biased, Status.NONCONVEX))
        return end.v, end.after, end.info._replace(result=result)


class _Attempt(NamedTuple):
    """v for a δ, and what comes of it; `after` is for the next outer step."""

    v: PyTree
    damping: Float[Array, ""]
    after: Curvature
    lowest: Float[Array, ""]
    info: LoopInfo
    tries: Int[Array, ""]
    again: Bool[Array, ""]


def _truncated(
    matvec: Product, b: PyTree, v: PyTree, loop: Loop
) -> tuple[PyTree, Code, Int[Array, ""]]:
    """v as it was before negative curvature, ηb where that is 0; the result, products more."""
    bad = (loop.result == code(Status.INDEFINITE)) | (loop.result == code(Status.SINGULAR))
    nothing = bad & (vectors.norm(v) == 0)

    def plain() -> PyTree:
        size, curved = vectors.norm(b), vectors.norm(matvec(b))
        return scaled(size / jnp.where(curved > 0, curved, jnp.ones_like(curved)), b)

    v = lax.cond(nothing, plain, lambda: v)
    result = jnp.where(bad, code(Status.NONCONVEX), loop.result)
    return v, result, nothing.astype(jnp.int32)
