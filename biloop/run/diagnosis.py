"""Why a run failed: what can be found out on the host at the last finite iterate.

Called only after a failure or on suspicion of divergence. What it evaluates is not part of the
run's cost.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from biloop.compilation import compiled
from biloop.linear import Neumann, Richardson
from biloop.linear.lanczos import extremes
from biloop.loops.step_size import BarzilaiBorwein
from biloop.methods import AID, ITD, Hypergradient
from biloop.oracles import inner_gradient, linearise, outer_value
from biloop.problem import Problem
from biloop.results import Status
from biloop.run.chunk import State
from biloop.run.record import Record
from biloop.vectors import all_finite, norm

_PRODUCTS = 40
_SUSPICIOUS_GROWTH = 1e3


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
    status: Status, problem: Problem, method: Hypergradient, state: State, record: Record
) -> tuple[Status, str]:
    """The cause of a failure as far as it can be told; DIVERGED if that is a step size."""
    x, y = state.x, state.warm.y
    start = norm(inner_gradient(problem, x, y))
    # Values that the losses mask do no harm.
    harmless = jnp.isfinite(start) and jnp.isfinite(outer_value(problem, x, y))
    if not harmless and (bad := " ".join(_bad_data(problem))):
        return status, bad
    low, high = extreme_eigenvalues(problem, x, y)
    if not (jnp.isfinite(low) and jnp.isfinite(high)):
        return status, "The inner Hessian is not finite where this outer step starts."
    findings = []
    if status is not Status.SINGULAR and low < -1e-5 * abs(high):
        findings.append(
            f"The inner Hessian has the eigenvalue {float(low):.4g} there: g(x, ·) is not convex."
        )
    excess = excessive_steps(method, float(high))
    findings += map(str, excess)
    # A step size may be too large without being the cause: its loop must have grown.
    grown = {
        "inner": not record.last("inner_residual") <= _SUSPICIOUS_GROWTH * float(start),
        "linear": status is Status.LINEAR_NOT_FINITE,
    }
    if any(grown[e.loop] for e in excess):
        status = Status.DIVERGED
    return status, " ".join(findings) or _outer_growth(record)


def excessive_steps(method: Hypergradient, L: float) -> list[Excess]:
    """The step sizes of the loops that are certainly too large for the eigenvalue L."""
    if L <= 0:
        return []
    excess = []
    if isinstance(method, AID | ITD):
        stability = method.inner.stability(L)
        if stability is not None and stability[0] > stability[1]:
            excess.append(Excess("inner", *stability, L))
    if isinstance(method, AID) and isinstance(method.linear, Richardson | Neumann):
        step = method.linear.step_size
        if not isinstance(step, BarzilaiBorwein) and float(step) > 2 / L:
            excess.append(Excess("linear", float(step), 2 / L, L))
    return excess


class DivergenceWatch:
    """Notices residuals that grow, and calls it divergence only if a step size is proven too large.

    Growth alone proves nothing (a run may start at the solution), so it only leads to a look at the
    spectrum; the run goes on if that does not explain it.
    """

    def __init__(self) -> None:
        self._first: dict[str, float] = {}

    def check(self, record: Record, problem: Problem, method: Hypergradient, state: State) -> str:
        """The proof as a sentence, or an empty string."""
        # Under unbounded curvature every given step size would be too large.
        for loop in (excess.loop for excess in excessive_steps(method, np.inf)):
            residual = record.last(f"{loop}_residual")
            first = self._first.setdefault(loop, record.first(f"{loop}_residual"))
            if not residual > _SUSPICIOUS_GROWTH * first:
                continue
            self._first[loop] = residual
            _, high = extreme_eigenvalues(problem, state.x, state.warm.y)
            for excess in excessive_steps(method, float(high)):
                if excess.loop == loop:
                    return f"{excess} Its residual grew from {first:.3g} to {residual:.3g}."
        return ""


@compiled
def extreme_eigenvalues(
    problem: Problem, x: PyTree, y: PyTree
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Ritz values of ∇²_y g(x, y): certainly not below λ_min and not above λ_max."""
    hessian, _ = linearise(problem, x, y)
    found = extremes(hessian, y, products=_PRODUCTS)
    return found.smallest.ritz, found.largest.ritz


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
    if len(norms) < 2 or not norms[-1] > _SUSPICIOUS_GROWTH * norms[0]:
        return ""
    return (
        f"Both loops are stable, but ‖h‖ grew from {norms[0]:.3g} to {norms[-1]:.3g}: the outer "
        f"step size is too large; try a tenth of it, or project x onto a bounded set."
    )
