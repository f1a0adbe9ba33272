"""Conjugate gradients.

M. R. Hestenes and E. Stiefel, Methods of conjugate gradients for solving linear systems (1952).
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from biloop import vectors
from biloop.linear.base import LinearInfo, LinearSolver
from biloop.loops import count, iterate, limit
from biloop.results import Code, Status, code, first_failure
from biloop.schedules import Schedule, as_steps, as_tolerance
from biloop.vectors import add_scaled, inner_product, subtract


class _State(NamedTuple):
    v: PyTree
    r: PyTree  # b − H v
    p: PyTree  # search direction
    rr: Float[Array, ""]  # ⟨r, r⟩
    top: Float[Array, ""]  # the largest |⟨p, Hp⟩| / ⟨p, p⟩ so far: a lower bound of ‖H‖
    result: Code


class CG(LinearSolver):
    """Conjugate gradients for H v = b, started at v⁰.

    a = ⟨r, r⟩ / ⟨p, Hp⟩,   v ← v + a p,   r⁺ ← r − a Hp,   p ← r⁺ + (⟨r⁺, r⁺⟩ / ⟨r, r⟩) p

    Q steps cost Q + 1 products, one of them for the residual at v⁰. Negative curvature and a
    singular H end in a result code; the v returned is then the last one before it.
    """

    steps: Schedule = eqx.field(converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)

    def __call__(self, matvec, b, v0, k):
        r = subtract(b, matvec(v0))
        rr = inner_product(r, r)
        eps = vectors.eps(b)
        # Below this the residual is rounding error, and another step would divide zero by zero.
        # (The CG of several bilevel libraries returns the iterate before the converged one.)
        solved_at = eps**2 * jnp.maximum(inner_product(b, b), rr)

        def step(s: _State) -> tuple[_State, PyTree]:
            Hp = matvec(s.p)
            pp = inner_product(s.p, s.p)
            curvature = inner_product(s.p, Hp)
            solved = s.rr <= solved_at

            rayleigh = curvature / jnp.where(pp > 0, pp, jnp.ones_like(pp))
            top = jnp.maximum(s.top, jnp.abs(rayleigh))
            flat = jnp.abs(rayleigh) <= eps * top
            breakdown = jnp.where(
                solved | (rayleigh > eps * top),
                code(Status.COMPLETED),
                jnp.where(flat, code(Status.SINGULAR), code(Status.INDEFINITE)),
            )
            # A NaN fails every comparison; it must reach v and r and not be called a breakdown.
            breakdown = jnp.where(jnp.isnan(rayleigh), code(Status.COMPLETED), breakdown)
            result = first_failure(s.result, breakdown)

            stop = solved | (result != code(Status.COMPLETED))
            a = jnp.where(stop, jnp.zeros_like(rr), s.rr / jnp.where(stop, 1.0, curvature))
            v = add_scaled(s.v, a, s.p)
            r = add_scaled(s.r, -a, Hp)
            rr_next = inner_product(r, r)
            ratio = jnp.where(stop, jnp.zeros_like(rr), rr_next / jnp.where(stop, 1.0, s.rr))
            p = add_scaled(r, ratio, s.p)
            return _State(v, r, p, rr_next, top, result), r

        start = _State(v0, r, r, rr, jnp.zeros_like(rr), code(Status.COMPLETED))
        loop = iterate(step, start, b, count(self.steps, k), limit(self.tolerance, k))
        s = loop.state
        result = first_failure(s.result, loop.result)
        return s.v, LinearInfo(loop.residual, loop.steps, result, loop.steps + 1)
