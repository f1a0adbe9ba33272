"""Whether what the loops of a run ended with is what it seems to be: a look around the last y.

A few gradients at the end of a run, outside of its cost: for kinks of g, for inner solvers that
minimise something else, and for loops that do not settle.
"""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import PyTree

from biloop import vectors
from biloop.inner.kinks import has_no_kinks
from biloop.loops.results import Status
from biloop.methods import Method, Residuals
from biloop.problem import Problem
from biloop.run.diagnosis import (
    excessive_steps,
    expanding,
    explain,
    extreme_eigenvalues,
    is_lost,
)
from biloop.run.probing import Around, around, distance, jump, jump_at
from biloop.run.prox_doubts import no_proximal_map
from biloop.run.record import Record

_MISTAKEN = 100.0  # times the residual that the inner loop claims
_MANY = 5  # outer steps after which an inner residual should have fallen
_FALLEN = 0.3  # of the first inner residual: one that is below makes no suspicion
_JUMP = 0.03  # of ∇_y g: a jump that explains so much of it
_COARSE = 1e-4  # half precision shows neither jumps nor small steps
_HELD = 0.3  # of the same: a loop that moves y by less at a kink does not get away from it
_LARGE = 10**7  # entries of y: beyond, no vectors like it are made only for a look
_STILL = 1e-2  # of a step 1/L along −∇_y g: a loop that moves y by less stands still


_RESIDUAL = {
    "minimum": "‖∇_y g‖",
    "proximal": "‖y − prox(x, y − α∇_y g, α)‖ / α",
    "equilibrium": "‖y − T(x, y)‖",
}


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
    here = around(problem, x, y)
    if is_lost(method, float(claimed.linear), float(here.outer_gradient)):
        return explain(Status.DIVERGED, problem, method, x, y, record)
    cause = no_proximal_map(problem, x, y)
    cause = cause or _doubt(here, problem, method, x, y, record, claimed, again)
    claims = status in (Status.COMPLETED, Status.CONVERGED, Status.SETTLED)
    # Where g is not convex (a network) h is known to be biased, and a run has said so.
    claims = claims and record.last("result") != Status.NONCONVEX
    return (Status.UNCONVERGED if cause and claims else status), cause


def _doubt(
    here: Around,
    problem: Problem,
    method: Method,
    x: PyTree,
    y: PyTree,
    record: Record,
    claimed: Residuals,
    again: Callable[[], PyTree] | None,
) -> str:
    """Why y is not the minimiser of g(x, ·), if so."""
    seen = jax.tree.map(np.asarray, here)  # in less time than device_get
    first, told = record.first("inner_residual"), float(claimed.inner)
    implicit, large = np.isfinite(claimed.linear), vectors.size(y) > _LARGE
    solved = not seen.gradient > 1e3 * seen.rounding
    # A derivative of the steps is wrong before y shows that they are too long.
    unrolled = not (implicit or large or problem.start is not None or problem.is_equilibrium)
    if unrolled and (solved or record.rows < _MANY) and method.stability(np.inf):
        L = extreme_eigenvalues(problem, x, y)[1]
        if excess := _too_long(method, L):
            return f"The inner loop is unstable, and its derivative grows with each step. {excess}"
    if solved:
        return _on_a_kink(problem, x, y) if implicit else ""
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
    smooth = large or has_no_kinks(problem, x, y)
    by = 0.0 if smooth else float(jump(problem, x, y, here))
    jumps = by > _JUMP * seen.gradient
    kink = (
        f"∇_y g jumps by {by:.3g} close to y, and ‖∇_y g‖ is still {seen.gradient:.3g}. "
        f"g is not smooth there (an absolute value, a maximum?), so h is not the gradient of Φ."
    )
    if jumps and implicit:
        return kink
    # With a start y⁰(x) Φ is where the steps lead that are differentiated: they need not settle.
    if problem.start is not None and not implicit:
        return ""
    # A step that is not known may do anything; of the others only many calls say that they stand.
    unknown = all(loop != "inner" for loop, *_ in method.stability(np.inf))
    followed = method.follows and not large and (jumps or unknown or record.rows >= _MANY)
    call_again = again if followed else None
    moved = np.inf if call_again is None else float(distance(call_again(), y))
    # ITD differentiates the steps that were made: wrong where they only go to and fro.
    if jumps and moved * extreme_eigenvalues(problem, x, y)[1] < _HELD * seen.gradient:
        return kink
    still = moved * abs(float(seen.curvature)) < _STILL * seen.gradient
    if record.rows < _MANY and not (unknown and still):
        return ""
    if seen.gradient < _FALLEN * first and not still:
        return ""
    # Worth the products that find the largest eigenvalue; along the gradient of a loop
    # that does not settle the curvature is nearly that.
    L = abs(float(seen.curvature)) if large else extreme_eigenvalues(problem, x, y)[1]
    if excess := _too_long(method, L):
        return f"The inner loop does not settle. {excess}"
    if still and moved * L < _STILL * seen.gradient:
        return (
            f"The inner loop has come to a stand, it moves y by {moved:.3g}, where ‖∇_y g‖ is "
            f"{seen.gradient:.3g}: that y does not minimise g(x, ·), and h is not the gradient of "
            f"Φ. (A step of gradient descent could move it by {seen.gradient / L:.3g}.)"
        )
    return ""


def _too_long(method: Method, L: float) -> str:
    """A sentence if the step size of the inner loop is too large for the eigenvalue L."""
    return next((str(each) for each in excessive_steps(method, L) if each.loop == "inner"), "")


def _on_a_kink(problem: Problem, x: PyTree, y: PyTree) -> str:
    """A sentence if ∇_y g vanishes at y only because it jumps there."""
    if vectors.eps(y) > _COARSE or vectors.size(y) > _LARGE or has_no_kinks(problem, x, y):
        return ""
    by = float(jump_at(problem, x, y))
    if not by > 0:
        return ""
    return (
        f"∇_y g jumps by {by:.3g} at y itself: g is not smooth there (an absolute value, a "
        f"maximum?), so h is not the gradient of Φ. What is not smooth belongs into "
        f"Problem(prox=…)."
    )
