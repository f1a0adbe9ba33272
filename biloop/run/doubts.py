"""Whether what the loops of a run ended with is what it seems to be: a look around the last y.

A few gradients at the end of a run, outside of its cost: for kinks of g, for inner solvers that
minimise something else, and for loops that do not settle.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from biloop import vectors
from biloop.compilation import compiled
from biloop.methods import Method, Residuals
from biloop.oracles import curved_by, inner_gradient, natural_step, outer_gradients, residual
from biloop.problem import Problem
from biloop.results import Status
from biloop.run.diagnosis import (
    excessive_steps,
    expanding,
    explain,
    extreme_eigenvalues,
    is_lost,
)
from biloop.run.record import Record
from biloop.vectors import norm

_MISTAKEN = 100.0  # times the residual that the inner loop claims
_MANY = 5  # outer steps after which an inner residual should have fallen
_FALLEN = 0.3  # of the first inner residual: one that is below makes no suspicion
_SHORT = 1e-3  # of y: where a curvature is measured
_JUMP = 0.03  # of ∇_y g: a jump that explains so much of it
_STAYS = 0.7  # of a jump over eight times the length; a change of a smooth gradient would be 0.125
_COARSE = 1e-4  # half precision shows neither jumps nor small steps
_HELD = 0.3  # of the same: a loop that moves y by less at a kink does not get away from it
_STILL = 1e-2  # of a step 1/L along −∇_y g: a loop that moves y by less stands still


_RESIDUAL = {
    "minimum": "‖∇_y g‖",
    "proximal": "‖y − prox(x, y − α∇_y g, α)‖ / α",
    "equilibrium": "‖y − T(x, y)‖",
}


class Probe(NamedTuple):
    """What is seen around (x, y): ‖∇_y g‖, a curvature, rounding, a jump of ∇_y g, and ‖∇_y f‖.

    `jump` is how much ∇_y g changes at a single point close to y, 0 where g is smooth.
    """

    gradient: Float[Array, ""]
    curvature: Float[Array, ""]
    rounding: Float[Array, ""]
    jump: Float[Array, ""]
    outer_gradient: Float[Array, ""]


@compiled
def probe(problem: Problem, x: PyTree, y: PyTree) -> Probe:
    """Some 30 gradients of g, compiled once, and one of f.

    A jump is looked for by bisection, from y + 0.8 s to y − 2 s where s is the step to the minimum
    if g were a parabola along ∇_y g: always on into the half over which ∇_y g changes more. Where
    it is continuous, the change goes with the length.
    """
    if problem.kind != "minimum":
        return _probe_residual(problem, x, y)
    y_norm = norm(y)
    short = _SHORT * jnp.where(y_norm > 0, y_norm, jnp.ones_like(y_norm))
    halvings = 20 if vectors.eps(y) < 1e-10 else 12

    def look(carry: _Search, i: Array) -> tuple[_Search, Array]:
        """∇g at y; over a short step; at both ends; then in the middle, again and again."""
        d, size, low, high, at_low, at_high = carry
        safe = jnp.where(size > 0, size, jnp.ones_like(size))
        middle = (low + high) / 2
        t = jnp.stack([jnp.zeros_like(safe), short / safe, low, high])
        t = jnp.where(i < 4, t[jnp.minimum(i, 3)], middle)
        seen = inner_gradient(problem, x, vectors.add_scaled(y, -t, d))
        d = vectors.where(i == 0, seen, d)
        size = jnp.where(i == 0, norm(seen), size)

        curvature = vectors.inner_product(vectors.subtract(d, seen), d) / (short * safe)
        natural = jnp.where(curvature > 0, 1 / jnp.where(curvature > 0, curvature, 1.0), y_norm)
        far = 2 * jnp.maximum(natural, short / safe)
        low = jnp.where(i == 1, -0.4 * far, low)
        high = jnp.where(i == 1, far, high)
        at_low = vectors.where(i == 2, seen, at_low)
        at_high = vectors.where(i == 3, seen, at_high)
        below, above = norm(vectors.subtract(seen, at_low)), norm(vectors.subtract(at_high, seen))
        right, inside = above > below, i >= 4
        low, at_low = vectors.where(inside & right, (middle, seen), (low, at_low))
        high, at_high = vectors.where(inside & ~right, (middle, seen), (high, at_high))
        told = jnp.where(i == 1, curvature, jnp.maximum(below, above))
        return _Search(d, size, low, high, at_low, at_high), told

    zero, nothing = jnp.zeros_like(y_norm), vectors.zeros_like(y)
    start = _Search(nothing, zero, zero, zero, nothing, nothing)
    end, told = lax.scan(look, start, jnp.arange(4 + halvings))
    curvature, jump = told[1], told[-1]
    # Points must differ by more than their rounding, and a jump must not shrink with the length.
    apart = (end.high - end.low) * end.size > 30 * vectors.eps(y) * y_norm
    jump = jnp.where(apart & (jump > _STAYS * told[-4]), jump, jnp.zeros_like(jump))
    rounding = vectors.eps(y) * jnp.abs(curvature) * y_norm
    _, _, f_y = outer_gradients(problem, x, y)
    return Probe(end.size, curvature, rounding, jump, norm(f_y))


class _Search(NamedTuple):
    """∇g at y and its norm, and the two ends of the search along it with ∇g there."""

    d: PyTree
    size: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]
    at_low: PyTree
    at_high: PyTree


def _probe_residual(problem: Problem, x: PyTree, y: PyTree) -> Probe:
    """‖F(x, y)‖ in the place of ‖∇_y g‖. F may have kinks: what it is made for."""
    step = natural_step(problem, x, y)
    size = norm(residual(problem, x, y, step))
    curved = curved_by(problem, x, y, step)
    _, _, f_y = outer_gradients(problem, x, y)
    return Probe(size, curved, vectors.eps(y) * curved, jnp.zeros_like(size), norm(f_y))


def doubted(
    status: Status,
    problem: Problem,
    method: Method,
    x: PyTree,
    y: PyTree,
    record: Record,
    claimed: Residuals,
    again: Callable[[], PyTree] | None = None,
) -> tuple[Status, str]:
    """The status of a run that ended well, unless what its loops ended with is not what it seems.

    Then DIVERGED or UNCONVERGED, with the reason. `claimed` are the residuals that the loops told
    at (x, y), and `again`, if it can be had, is the y of another call of the method there.
    """
    seen = jax.device_get(probe(problem, x, y))
    if is_lost(method, float(claimed.linear), seen.outer_gradient):
        return explain(Status.DIVERGED, problem, method, x, y, record)
    cause = _doubt(seen, problem, method, x, y, record, claimed, again)
    claims = status in (Status.COMPLETED, Status.CONVERGED, Status.SETTLED)
    # Where g is not convex (a network) h is known to be biased, and a run has said so.
    claims = claims and record.last("result") != Status.NONCONVEX
    return (Status.UNCONVERGED if cause and claims else status), cause


def _doubt(
    seen: Probe,
    problem: Problem,
    method: Method,
    x: PyTree,
    y: PyTree,
    record: Record,
    claimed: Residuals,
    again: Callable[[], PyTree] | None,
) -> str:
    """Why y is not the minimiser of g(x, ·), if so."""
    first, told = record.first("inner_residual"), float(claimed.inner)
    if not seen.gradient > 1e3 * seen.rounding:
        return ""
    if np.isfinite(told) and seen.gradient > _MISTAKEN * told:
        return (
            f"The inner solver says that {_RESIDUAL[problem.kind]} is {told:.3g}, but at the y "
            f"that it returned it is {seen.gradient:.3g}: that y does not minimise g(x, ·), and h "
            f"is not the gradient of Φ."
        )
    if problem.is_equilibrium:
        fallen = seen.gradient < _FALLEN * first
        return "" if fallen else expanding(problem, method, x, y).get("inner", "")
    if vectors.eps(y) > _COARSE:
        return ""
    jumps = seen.jump > _JUMP * seen.gradient
    kink = (
        f"∇_y g jumps by {seen.jump:.3g} close to y, and ‖∇_y g‖ is still {seen.gradient:.3g}. "
        f"g is not smooth there (an absolute value, a maximum?), so h is not the gradient of Φ."
    )
    implicit = np.isfinite(claimed.linear)
    if jumps and implicit:
        return kink
    # With a start y⁰(x) Φ is where the steps lead that are differentiated: they need not settle.
    if problem.start is not None and not implicit:
        return ""
    look = again if method.follows and (jumps or record.rows >= _MANY) else None
    moved = np.inf if look is None else float(norm(vectors.subtract(look(), y)))
    # ITD differentiates the steps that were made: wrong where they only go to and fro.
    if jumps and moved * float(extreme_eigenvalues(problem, x, y)[1]) < _HELD * seen.gradient:
        return kink
    if record.rows < _MANY:
        return ""
    still = moved * abs(float(seen.curvature)) < _STILL * seen.gradient
    if seen.gradient < _FALLEN * first and not still:
        return ""
    # Worth the products that find the largest eigenvalue.
    L = float(extreme_eigenvalues(problem, x, y)[1])
    if excess := [excess for excess in excessive_steps(method, L) if excess.loop == "inner"]:
        return f"The inner loop does not settle. {excess[0]}"
    if still and moved * L < _STILL * seen.gradient:
        return (
            f"The inner loop has come to a stand, it moves y by {moved:.3g}, where ‖∇_y g‖ is "
            f"{seen.gradient:.3g}: that y does not minimise g(x, ·), and h is not the gradient of "
            f"Φ. (A step of gradient descent could move it by {seen.gradient / L:.3g}.)"
        )
    return ""
