"""H + δI where H is not positive definite: how large δ is, and what is known of it.

    K. Levenberg (1944), D. W. Marquardt (1963): δ grows where a system does not work, and falls
    where it does.

v = (H + δI)⁻¹b is the adjoint of an inner problem that stays close to where it is,
g(x, ·) + δ/2 ‖· − y‖², as in iMAML (Rajeswaran et al., 2019). Directions of curvature well above δ
are seen as they are, those below it as if they had the curvature δ: relative to H⁻¹b the bias is
about δ/(μ + δ).
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.loops.adaptive import Curvature
from biloop.oracles import Product
from biloop.vectors import add_scaled

PATIENCE = 100  # products for a system once H was seen not to be positive definite
_FIRST = 1e-2  # of the largest curvature that was seen
_UP, _DOWN = 4.0, 0.5
_VISIBLE = 0.1  # of the share that a loop leaves: a bias below it is none
_ROUNDING = 100.0  # eps of the largest curvature: what is below may be zero


def shifted(matvec: Product, damping: Float[Array, ""]) -> Product:
    """v ↦ (H + δI) v."""
    return lambda v: add_scaled(matvec(v), damping, v)


def is_negative(lowest: Array, top: Array, like: PyTree) -> Bool[Array, ""]:
    """Whether a curvature is negative beyond rounding."""
    return lowest < -_ROUNDING * vectors.eps(like) * top


def raised(damping: Array, lowest: Array, top: Array) -> Float[Array, ""]:
    """The next δ after a curvature ⟨p, (H + δI)p⟩ / ⟨p, p⟩ = `lowest` that was not positive."""
    needed = damping + 2 * jnp.abs(lowest)
    return jnp.maximum(jnp.maximum(_UP * damping, needed), _FIRST * top)


def adjusted(
    damping: Array, top: Array, steps: Int[Array, ""], arrived: Bool[Array, ""], like: PyTree
) -> Float[Array, ""]:
    """The δ of the next system after one that was positive definite: less, unless it took long.

    Nothing is left of it once it is rounding.
    """
    stalled = ~arrived & (steps >= PATIENCE)
    after = jnp.where(stalled, _UP * damping, _DOWN * damping)
    return jnp.where(after > vectors.eps(like) * top, after, jnp.zeros_like(after))


def is_biased(damping: Array, lowest: Array, share: float | Array) -> Bool[Array, ""]:
    """Whether δ/(μ + δ) is more than a loop that leaves this share may hide."""
    bound = _VISIBLE * jnp.asarray(share, damping.dtype) * lowest
    return (damping > 0) & ~(damping <= bound)


def capped(inverse_mu: Array, damping: Array) -> Float[Array, ""]:
    """What is known of 1/μ for H + δI, which is at most 1/δ where H has no negative curvature."""
    return jnp.where(
        damping > 0,
        jnp.minimum(inverse_mu, 1 / jnp.where(damping > 0, damping, jnp.ones_like(damping))),
        inverse_mu,
    )


def shortened(known: Curvature, tries: Int[Array, ""]) -> Curvature:
    """More of δ after a step of Newton's method that was too long."""
    more = jnp.where(tries > 0, _UP * known.damping, known.damping)
    return known._replace(damping=more)
