"""Why a run failed or is not to be trusted: what can be found out on the host where it ended.

Called only at the end of a run or on suspicion of divergence. What it evaluates is not part of the
run's cost.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from biloop import vectors
from biloop.compilation import compiled
from biloop.linear.contraction import contraction
from biloop.linear.lanczos import Tridiagonal, tridiagonalise
from biloop.loops.results import Status
from biloop.methods import Method
from biloop.oracles import linearise, natural_step, outer_gradients, outer_value, residual
from biloop.problem import Problem
from biloop.run.prox_doubts import has_no_value
from biloop.run.record import Record
from biloop.run.sharding import mesh_of, to_host
from biloop.schedules import Schedule
from biloop.vectors import all_finite, norm, scaled

_PRODUCTS = 40
_ONE_PIECE = 2**24  # entries of y that may be copied to one vector
_BASIS = 2**32  # bytes that a basis of vectors like y may take
SUSPICIOUS_GROWTH = 1e3
_LEFT_BEHIND = 1e6  # times the largest stable one: a step size that was right at another x
LOST = 1e3  # times ‖∇_y f‖: a linear residual that v = 0 would beat by so much


class Excess(NamedTuple):
    """A step size beyond the largest stable one, for eigenvalues of the inner Hessian up to L."""

    loop: str
    step_size: float
    largest: float
    L: float

    def __str__(self) -> str:
        """Name the number to change."""
        return (
            f"The {self.loop} step size {self.step_size:.4g} is above the largest stable one, "
            f"{self.largest:.4g}, at the last finite iterate, where the largest eigenvalue of the "
            f"inner Hessian is about {self.L:.4g}; try {self.largest / 2:.4g}."
        )


def explain(
    status: Status, problem: Problem, method: Method, x: PyTree, y: PyTree, record: Record
) -> tuple[Status, str]:
    """The cause of a failure as far as it can be told; DIVERGED if that is a step size."""
    if status is Status.BAD_SCHEDULE:  # no loop has run
        return status, ""
    if found := _bad_number(method, record.rows):
        return status, found
    if found := has_no_value(problem, x, y):
        return status, found
    start = norm(residual(problem, x, y, natural_step(problem, x, y)))
    # Values that the losses mask do no harm.
    harmless = jnp.isfinite(start) and jnp.isfinite(outer_value(problem, x, y))
    if not harmless and (bad := " ".join(_bad_data(problem))):
        return status, bad
    if status in _AFTER_OUTER and not all_finite(outer_gradients(problem, x, y)):
        return Status.OUTER_NOT_FINITE, ""
    if problem.is_equilibrium:
        expands = " ".join(expanding(problem, method, x, y).values())
        return (Status.DIVERGED if expands else status), expands or _outer_growth(record)
    low, high = extreme_eigenvalues(problem, x, y)
    if not (np.isfinite(low) and np.isfinite(high)):
        return status, (
            f"The inner Hessian is not finite where this outer step starts: x has an entry of size "
            f"{float(vectors.largest(x)):.3g}. ‖h‖ was {record.most('hypergradient_norm'):.3g} at "
            f"its largest: a step size of a loop, or of x, is too large."
        )
    findings = []
    if status is not Status.SINGULAR and low < -1e-5 * abs(high):
        findings.append(
            f"The inner Hessian has the eigenvalue {low:.4g} there: g(x, ·) is not convex."
        )
    excess = excessive_steps(method, high)
    findings += told(excess, x, record)
    # A step size may be too large without being the cause: its loop must have grown.
    b = norm(outer_gradients(problem, x, y)[2])
    linear = not record.last("linear_residual") <= LOST * float(b)
    grown = {
        "inner": not record.last("inner_residual") <= SUSPICIOUS_GROWTH * float(start),
        "linear": linear,
    }
    if any(grown[e.loop] for e in excess):
        status = Status.DIVERGED
    if _flat(status):
        findings += filter(None, [far_away(problem, x, y)])
    return status, " ".join(findings) or _outer_growth(record)


def _bad_number(method: Method, k: int) -> str:
    """A sentence if a schedule gives what is no step size in the step that failed, k − 1 or k."""
    is_schedule = lambda node: isinstance(node, Schedule)  # noqa: E731
    schedules = filter(is_schedule, jax.tree.leaves(method, is_leaf=is_schedule))
    given = [(schedule, at, float(schedule(at))) for schedule in schedules for at in (k - 1, k)]
    return next(
        (
            f"The schedule {schedule!r} gives {value:.4g} at k = {at}: no number to use."
            for schedule, at, value in given
            if not 0 <= value < np.inf
        ),
        "",
    )


def told(excess: list[Excess], x: PyTree, record: Record) -> list[str]:
    """The step sizes to change; or, where no step size could follow, what may have driven x there.

    Only g at the last x is known here, not how steep it was at the first.
    """
    if not any(e.step_size > _LEFT_BEHIND * e.largest for e in excess):
        return list(map(str, excess))
    first, most = record.first("hypergradient_norm"), record.most("hypergradient_norm")
    cause = "the outer step size is too large; try a tenth of it"
    if most > SUSPICIOUS_GROWTH * first:
        cause = f"‖h‖ grew from {first:.3g} to {most:.3g}, as where the linear loop diverges"
    return [
        f"The {e.loop} step size {e.step_size:.4g} is {e.step_size / e.largest:.3g} times the "
        f"largest stable one at the last finite iterate, where x has entries of up to "
        f"{float(vectors.largest(x)):.3g} and the largest eigenvalue of the inner Hessian is about "
        f"{e.L:.4g}. Unless g is as steep at the start, x has run away: {cause}, or keep x in "
        f"bounds with Projected(step, Box(low, high))."
        for e in excess[:1]
    ]


def excessive_steps(method: Method, L: float) -> list[Excess]:
    """The step sizes of the loops that are certainly too large for the eigenvalue L."""
    if L <= 0:
        return []
    return [
        Excess(loop, size, largest, L)
        for loop, size, largest in method.stability(L)
        if size > largest
    ]


def is_lost(method: Method, residual: float, outer_gradient: float) -> bool:
    """Whether a linear loop diverges: v = 0 would do far better than the v that it has.

    Only where a step size is given, which can be too large; other loops end by themselves.
    """
    return float(residual) > LOST * float(outer_gradient) > 0 and has_linear_step(method)


def has_linear_step(method: Method) -> bool:
    """Whether the step size of the linear loop is given."""
    return any(loop == "linear" for loop, *_ in method.stability(np.inf))


def _flat(status: Status) -> bool:
    """Whether a failure may come from a g that is flat, or all penalty."""
    return status in (Status.SINGULAR, Status.INDEFINITE, Status.LINEAR_NOT_FINITE)


def far_away(problem: Problem, x: PyTree, y: PyTree) -> str:
    """Penalties such as exp(x) without bounds drive x to where g is flat, or all penalty.

    They are known by what they do to the inner Hessian, whatever the unit of x: along x/4, x/2, x
    its largest eigenvalue grows, or its smallest one falls, exponentially. No power of x does that,
    and nothing that is singular at this x alone.
    """
    if problem.is_equilibrium:
        return ""
    places = [scaled(share, x) for share in (0.25, 0.5, 1.0)]
    lows, highs = np.array([extreme_eigenvalues(problem, at, y) for at in places]).T
    known = np.isfinite(lows).all() and (highs > 0).all()
    if not known:
        return ""
    lows = np.maximum(lows, vectors.eps(y) * highs)  # what is less is rounding
    early, late = np.log([lows[:2] / lows[1:], highs[1:] / highs[:2]]).T
    if not np.any((late >= _STEEP) & (early >= _EVEN * late)):
        return ""
    largest = float(vectors.largest(x))
    rate = max(4 * early.max(), 2 * late.max()) / largest  # 1 for exp(x)
    bound = float(f"{_HARMLESS / rate:.1g}")
    return (
        f"The largest entry of x is {largest:.3g} there, and the eigenvalues of the inner Hessian "
        f"lie between {lows[-1]:.3g} and {highs[-1]:.3g}: if x is the logarithm of a penalty, "
        f"it runs away from the data; keep it in bounds, e.g. "
        f'outer=Projected("auto", Box(-{bound}, {bound})).'
    )


# What a gradient of f that is not finite shows itself as.
_AFTER_OUTER = (Status.LINEAR_NOT_FINITE, Status.HYPERGRADIENT_NOT_FINITE)
_STEEP = 6.0  # logarithms: from x/2 to x an eigenvalue becomes 400 times another
_EVEN = 0.2  # of that from x/4 to x/2: for an exponential it is half, if nothing else is added
_HARMLESS = 8.0  # ... and within bounds of so many a penalty is at most 3000 times that of x = 0


def expanding(problem: Problem, method: Method, x: PyTree, y: PyTree) -> dict[str, str]:
    """The loops of an equilibrium y = T(x, y) that rely on a contraction which is none at y."""
    found = {}
    for loop, size, _ in method.stability(np.inf):
        radius = float(contraction(problem, x, y, damping=size))
        if radius >= 1 - 1e-3:  # it is an estimate
            damped = "" if size == 1 else f" with steps of {size:.4g}"
            found[loop] = (
                f"The {loop} loop iterates a map that does not contract there{damped}: its "
                f"spectral radius is about {radius:.4g}. Use Anderson and GMRES, more damping, or "
                f"another T with the same fixed point."
            )
    return found


def extreme_eigenvalues(problem: Problem, x: PyTree, y: PyTree) -> tuple[float, float]:
    """Ritz values of ∇²_y g(x, y): certainly not below λ_min and not above λ_max.

    Those of the small matrix are found on the host: its eigenvalues by JAX are a program of LAPACK,
    or of a library on a GPU, that takes longer to load than all else here.
    """
    in_one_piece = vectors.size(y) <= _ONE_PIECE and mesh_of(y) is None
    diagonal, below, _ = map(to_host, inner_tridiagonal(problem, x, y, in_one_piece))
    T = np.diag(diagonal) + np.diag(below[:-1], 1) + np.diag(below[:-1], -1)
    if not np.isfinite(T).all():
        return np.nan, np.nan
    ritz = np.linalg.eigvalsh(T.astype(float))
    return float(ritz[0]), float(ritz[-1])


@compiled(often="once")
def inner_tridiagonal(problem: Problem, x: PyTree, y: PyTree, in_one_piece: bool) -> Tridiagonal:
    """T of the inner Hessian. As one vector, of many leaves of y there is little to compile."""
    hessian, _ = linearise(problem, x, y)
    # Each product leaves a vector like y: of a large network there is room for few.
    most = _BASIS // (vectors.size(y) * vectors.accumulator(y).itemsize)
    m = min(max(2, min(_PRODUCTS, most)), vectors.size(y))
    if not in_one_piece:
        return tridiagonalise(hessian, y, m, jax.random.key(0))
    wide = jax.tree.map(lambda leaf: leaf.astype(vectors.accumulator(y)), y)
    flat, unravel = ravel_pytree(wide)

    def product(v: Array) -> Array:
        Hv = hessian(jax.tree.map(lambda v, a: v.astype(a.dtype), unravel(v), y))
        return ravel_pytree(jax.tree.map(lambda a: a.astype(flat.dtype), Hv))[0]

    return tridiagonalise(product, flat, m, jax.random.key(0))


def _bad_data(problem: Problem) -> Iterator[str]:
    for name, data in (("inner_data", problem.inner_data), ("outer_data", problem.outer_data)):
        for path, leaf in jax.tree_util.tree_leaves_with_path(data):
            if jnp.issubdtype(leaf.dtype, jnp.inexact) and not all_finite(leaf):
                count = int(jnp.sum(~jnp.isfinite(leaf)))
                yield (
                    f"{name}{jax.tree_util.keystr(path)} contains {count} values that are NaN or "
                    f"infinite; remove those samples or mask them."
                )


def _outer_growth(record: Record) -> str:
    """What remains when both loops are stable: an outer step that throws x farther each time."""
    norms = record.columns()["hypergradient_norm"]
    norms = norms[np.isfinite(norms)]
    if len(norms) < 2 or not norms[-1] > SUSPICIOUS_GROWTH * norms[0]:
        return ""
    return (
        f"Both loops are stable, but ‖h‖ grew from {norms[0]:.3g} to {norms[-1]:.3g}: the outer "
        f"step size is too large; try a tenth of it, or project x onto a bounded set."
    )
