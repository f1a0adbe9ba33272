"""Whether what the loops of a run ended with is what it seems to be: a look around the last y.

A few gradients at the end of a run, outside of its cost: for kinks of g, for inner solvers that
minimise something else, and for loops that do not settle.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from biloop import vectors
from biloop.compilation import compiled
from biloop.methods import Method, Residuals
from biloop.oracles import inner_gradient, outer_gradients
from biloop.problem import Problem
from biloop.results import Status
from biloop.run.diagnosis import excessive_steps, explain, extreme_eigenvalues
from biloop.run.record import Record
from biloop.vectors import norm

_MISTAKEN = 100.0  # times the residual that the inner loop claims
_MANY = 5  # outer steps after which an inner residual should have fallen
_FALLEN = 0.3  # of the first inner residual: one that is below makes no suspicion
_ROUGH = 3.0  # the changes of ∇_y g per length of short steps differ less where g is smooth
_SHORT = 1e-3  # of y
_LOST = 1e3  # times ‖∇_y f‖: a linear residual that v = 0 would beat by so much


class Probe(NamedTuple):
    """What is seen around (x, y): ‖∇_y g‖, a curvature, rounding, roughness, and ‖∇_y f‖.

    `roughness` is the largest change of ∇_y g per length over the smallest, along steps of steepest
    descent of several lengths: about 1 where g is smooth.
    """

    gradient: Float[Array, ""]
    curvature: Float[Array, ""]
    rounding: Float[Array, ""]
    roughness: Float[Array, ""]
    outer_gradient: Float[Array, ""]


@compiled
def probe(problem: Problem, x: PyTree, y: PyTree) -> Probe:
    """Five gradients of g, compiled once, and one of f."""
    y_norm = norm(y)
    short = _SHORT * jnp.where(y_norm > 0, y_norm, jnp.ones_like(y_norm))

    def look(carry: tuple[PyTree, Array, Array], i: Array) -> tuple[tuple, Array]:
        """First ∇g at y; then its change over a short step, a tenth of it, and two natural ones."""
        d, size, curvature = carry
        natural = 1 / jnp.where(curvature > 0, curvature, jnp.ones_like(curvature))
        safe = jnp.where(size > 0, size, jnp.ones_like(size))
        lengths = [jnp.zeros_like(safe), short / safe, short / safe / 10, natural, natural / 10]
        t = jnp.stack(lengths)[i]
        e = vectors.subtract(inner_gradient(problem, x, vectors.add_scaled(y, -t, d)), d)
        change = norm(e)
        d = vectors.where(i == 0, e, d)
        size = jnp.where(i == 0, change, size)
        seen = -vectors.inner_product(e, d) / jnp.where(i == 1, t, 1.0) / safe**2
        curvature = jnp.where(i == 1, seen, curvature)
        return (d, size, curvature), change / jnp.where(t > 0, t, jnp.ones_like(t))

    zero = jnp.zeros_like(y_norm)
    start = (vectors.zeros_like(y), zero, zero)
    (_, size, curvature), slopes = lax.scan(look, start, jnp.arange(5))
    slopes = slopes[1:]
    roughness = jnp.max(slopes) / jnp.where(jnp.min(slopes) > 0, jnp.min(slopes), jnp.max(slopes))
    rounding = vectors.eps(y) * jnp.abs(curvature) * y_norm
    _, _, f_y = outer_gradients(problem, x, y)
    return Probe(size, curvature, rounding, roughness, norm(f_y))


def doubted(
    status: Status,
    problem: Problem,
    method: Method,
    x: PyTree,
    y: PyTree,
    record: Record,
    claimed: Residuals,
) -> tuple[Status, str]:
    """The status of a run that ended well, unless what its loops ended with is not what it seems.

    Then DIVERGED or UNCONVERGED, with the reason. `claimed` are the residuals that the loops told
    at (x, y).
    """
    seen = jax.device_get(probe(problem, x, y))
    # Only a step size that is given can be too large; other loops end by themselves.
    given = any(loop == "linear" for loop, *_ in method.stability(np.inf))
    if given and claimed.linear > _LOST * seen.outer_gradient > 0:
        return explain(Status.DIVERGED, problem, method, x, y, record)
    cause = _doubt(seen, problem, method, x, y, record, claimed)
    claims = status in (Status.COMPLETED, Status.CONVERGED, Status.SETTLED)
    return (Status.UNCONVERGED if cause and claims else status), cause


def _doubt(
    seen: Probe,
    problem: Problem,
    method: Method,
    x: PyTree,
    y: PyTree,
    record: Record,
    claimed: Residuals,
) -> str:
    """Why y is not the minimiser of g(x, ·), if so."""
    first, told = record.first("inner_residual"), float(claimed.inner)
    if not seen.gradient > 1e3 * seen.rounding:
        return ""
    if np.isfinite(told) and seen.gradient > _MISTAKEN * told:
        return (
            f"The inner solver says that ‖∇_y g‖ is {told:.3g}, but at the y that it returned "
            f"it is {seen.gradient:.3g}: that y does not minimise g(x, ·), and h is not the "
            f"gradient of Φ."
        )
    if seen.gradient < _FALLEN * first:
        return ""
    if record.rows >= _MANY:
        # A residual that does not fall: worth the products that find the largest eigenvalue.
        L = float(extreme_eigenvalues(problem, x, y)[1])
        if excess := [excess for excess in excessive_steps(method, L) if excess.loop == "inner"]:
            return f"The inner loop does not settle. {excess[0]}"
    # ITD differentiates the steps that were made, whatever they lead to.
    implicit = np.isfinite(claimed.linear)
    if implicit and seen.roughness > _ROUGH:
        return (
            f"∇_y g jumps close to y: per length of a step it changes {seen.roughness:.3g} times "
            f"as much over some as over others, and ‖∇_y g‖ is still {seen.gradient:.3g}. g is not "
            f"smooth there (an absolute value, a maximum?), so h is not the gradient of Φ."
        )
    return ""
