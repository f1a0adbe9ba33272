"""Conjugate gradients.

M. R. Hestenes and E. Stiefel, Methods of conjugate gradients for solving linear systems (1952).
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from biloop import vectors
from biloop.linear.base import LinearInfo, LinearSolver
from biloop.linear.preconditioning import Preconditioner
from biloop.loops.iteration import Adaptivity, Look, adaptivity, count, first_length, iterate, limit
from biloop.oracles import Product
from biloop.results import Code, Status, code, first_failure
from biloop.schedules import Count, Schedule, as_steps, as_tolerance
from biloop.vectors import add_scaled, inner_product, subtract


class _State(NamedTuple):
    v: PyTree
    r: PyTree  # b − H v
    p: PyTree  # search direction
    rr: Float[Array, ""]  # ⟨r, r⟩
    rz: Float[Array, ""]  # ⟨r, M⁻¹r⟩
    pp: Float[Array, ""]  # ⟨p, Mp⟩
    top: Float[Array, ""]  # the largest |⟨p, Hp⟩| / ⟨p, Mp⟩ so far: a lower bound of ‖M⁻¹H‖
    bent: Float[Array, ""]  # ⟨p, Hp⟩ / ⟨p, Mp⟩ of the last step, 0 if it was none
    dd: Float[Array, ""]  # ⟨d, Md⟩ for d = v − v⁰
    dp: Float[Array, ""]  # ⟨d, Mp⟩
    result: Code


class CG(LinearSolver):
    """Conjugate gradients for H v = b, started at v⁰.

    a = ⟨r, z⟩ / ⟨p, Hp⟩,   v ← v + a p,   r⁺ ← r − a Hp,   p ← z⁺ + (⟨r⁺, z⁺⟩ / ⟨r, z⟩) p

    with z = r, or z = M⁻¹r for a `preconditioner` M (`Diagonal`, `Jacobi`). Q steps cost Q + 1
    products, one of them for the residual at v⁰ (none if v⁰ is None, for zero), and those of the
    preconditioner. Where the system is part of a longer loop, `come` is the way that this has come
    before: it counts in the rule of `Adaptive`. Negative curvature and a singular H end in a result
    code; the v returned is then the last one before it.
    """

    steps: Schedule = eqx.field(converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)
    preconditioner: Preconditioner | None = None

    def __check_init__(self):
        if not isinstance(self.preconditioner, Preconditioner | None):
            raise TypeError(
                f"preconditioner must be Diagonal(values), Jacobi() or another Preconditioner, got "
                f"{self.preconditioner!r}."
            )

    def first_memory(self, v):
        return first_length(self.steps, v)

    def __call__(self, matvec, b, v0, k, memory=None, come: float | Float[Array, ""] = 0.0):
        precondition, spent = self._precondition(matvec, b, k)
        if v0 is None:  # at zero, where the residual is known
            v0, r, first = vectors.zeros_like(b), b, 0
        else:
            r, first = subtract(b, matvec(v0)), 1
        z = precondition(r)
        rr, rz = inner_product(r, r), inner_product(r, z)
        eps = vectors.eps(b)
        # Below this the residual is rounding error, and another step would divide zero by zero.
        # (The CG of several bilevel libraries returns the iterate before the converged one.)
        solved_at = eps**2 * jnp.maximum(inner_product(b, b), rr)

        def step(s: _State) -> tuple[_State, PyTree]:
            Hp = matvec(s.p)
            curvature = inner_product(s.p, Hp)
            solved = s.rr <= solved_at

            rayleigh = curvature / jnp.where(s.pp > 0, s.pp, jnp.ones_like(s.pp))
            top = jnp.maximum(s.top, jnp.abs(rayleigh))
            flat = jnp.abs(rayleigh) <= eps * top
            definite = (rayleigh > eps * top) & (s.rz > 0)  # a negative entry of M shows in rz
            breakdown = jnp.where(
                solved | definite,
                code(Status.COMPLETED),
                jnp.where(flat, code(Status.SINGULAR), code(Status.INDEFINITE)),
            )
            # A NaN fails every comparison; it must reach v and r and not be called a breakdown.
            unknown = jnp.isnan(rayleigh) | jnp.isnan(s.rz)
            breakdown = jnp.where(unknown, code(Status.COMPLETED), breakdown)
            result = first_failure(s.result, breakdown)

            stop = solved | (result != code(Status.COMPLETED))
            a = jnp.where(stop, jnp.zeros_like(rr), s.rz / jnp.where(stop, 1.0, curvature))
            v = add_scaled(s.v, a, s.p)
            r = add_scaled(s.r, -a, Hp)
            z = precondition(r)
            rr_next, rz_next = inner_product(r, r), inner_product(r, z)
            ratio = jnp.where(stop, jnp.zeros_like(rr), rz_next / jnp.where(stop, 1.0, s.rz))
            p = add_scaled(z, ratio, s.p)
            pp = rz_next + ratio**2 * s.pp  # as ⟨p, r⁺⟩ = 0
            dd = s.dd + 2 * a * s.dp + a**2 * s.pp
            dp = ratio * (s.dp + a * s.pp)  # as ⟨d⁺, r⁺⟩ = 0
            bent = jnp.where(stop, jnp.zeros_like(rayleigh), rayleigh)
            return _State(v, r, p, rr_next, rz_next, pp, top, bent, dd, dp, result), r

        none = jnp.zeros_like(rr)
        start = _State(v0, r, z, rr, rz, rz, none, none, none, none, code(Status.COMPLETED))
        loop = iterate(
            step,
            start,
            b,
            count(self.steps, k),
            limit(self.tolerance, k),
            self._adaptivity(v0, r, memory, come),
        )
        s = loop.state
        result = first_failure(s.result, loop.result)
        products = loop.steps + first + spent
        return s.v, LinearInfo(loop.residual, loop.steps, result, products, loop.long)

    def _adaptivity(
        self,
        v0: PyTree,
        r: PyTree,
        long: Float[Array, ""] | None,
        come: float | Float[Array, ""],
    ) -> Adaptivity | None:
        """The rule of `Adaptive`; without a preconditioner nothing but numbers that are known.

        T. Steihaug, The conjugate gradient method and trust regions in large scale optimization
        (1983), has the recurrence for ‖v − v⁰‖.
        """
        rule = adaptivity(self.steps, v0, lambda _, after: after.v, long, first=r)
        if rule is None:
            return None
        rule = rule._replace(come=come)
        if self.preconditioner is not None:
            return rule

        def look(mind: PyTree, _before: _State, s: _State, _r: PyTree) -> tuple[PyTree, Look]:
            inverse = jnp.where(s.bent > 0, 1 / jnp.where(s.bent > 0, s.bent, 1.0), 0.0)
            return mind, Look(inverse.astype(s.bent.dtype), s.top, jnp.sqrt(s.dd))

        return rule._replace(look=look, mind=())

    def _precondition(
        self, matvec: Product, b: PyTree, k: Count
    ) -> tuple[Product, Int[Array, ""] | int]:
        if self.preconditioner is None:
            return lambda r: r, 0
        return self.preconditioner(matvec, b, k)
