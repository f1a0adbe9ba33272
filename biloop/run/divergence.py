"""When growth is divergence: residuals, or f and ‖h‖, that are far beyond where they began."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop.loops.results import Status
from biloop.methods import Method
from biloop.problem import Problem
from biloop.run.diagnosis import (
    LOST,
    SUSPICIOUS_GROWTH,
    excessive_steps,
    expanding,
    explain,
    extreme_eigenvalues,
    is_lost,
    told,
)
from biloop.run.probing import around
from biloop.run.record import Record
from biloop.run.step import NUMBERS

_UNBOUNDED = 1e6  # growth of ‖h‖ and of |f| over a run that is still growing at its end
_LOOPS = {"inner": 2, "linear": 3}  # the levels of their residuals
NO_LEVELS = -np.inf  # before there is a row
_FINE = 4  # that of a linear residual up to which no divergence in a first step is suspected


class DivergenceWatch:
    """Notices residuals that grow, and calls it divergence only if a step size is proven too large.

    Growth alone proves nothing (a run may start at the solution), so it only leads to a look at the
    spectrum; the run goes on if that does not explain it, until it has grown as much again. What
    leads to a look are `levels`: of |f| and ‖h‖ (both), of the two residuals, and of the linear one
    once more. A chunk ends with the first row that is beyond, wherever it would have ended
    otherwise. They are changed in place, but not by a row that has proven divergence, so that it
    can be asked again.
    """

    def __init__(self, levels: np.ndarray | None = None) -> None:
        self._levels = np.full(5, NO_LEVELS, jnp.result_type(float)) if levels is None else levels

    def suspects(self, record: Record) -> bool:
        """Whether the last row is beyond the levels, as the compiled loop sees it."""
        value, *rest = (abs(record.last(name)) for name in NUMBERS)
        value, size, *residuals = np.array([value, *rest, rest[-1]]) > self._levels
        return bool((value and size) or np.any(residuals))

    @np.errstate(over="ignore")  # a level that overflows is never reached
    def check(
        self, record: Record, problem: Problem, method: Method, x: PyTree, y: PyTree
    ) -> tuple[Status, str] | None:
        """A failure and its proof as a sentence, or None."""
        if np.all(self._levels == NO_LEVELS):
            self._begin(record, method)
        for loop, level in _LOOPS.items():
            residual = record.last(f"{loop}_residual")
            if not residual > self._levels[level]:
                continue
            first = self._levels[level] / SUSPICIOUS_GROWTH
            grew = f"Its residual grew from {first:.3g} to {residual:.3g}."
            if problem.is_equilibrium:
                if expands := expanding(problem, method, x, y).get(loop):
                    return Status.DIVERGED, f"{expands} {grew}"
            else:
                _, high = extreme_eigenvalues(problem, x, y)
                if excess := [e for e in excessive_steps(method, high) if e.loop == loop]:
                    return Status.DIVERGED, " ".join([*told(excess, x, record), grew])
            self._levels[level] = SUSPICIOUS_GROWTH * residual
        found = self._lost(record, problem, method, x, y) or self._unbounded(record)
        if found is not None and method.sampled is not None:
            # On batches a linear loop tells no residual: v may be what grows without end.
            _, high = extreme_eigenvalues(problem, x, y)
            if excess := excessive_steps(method, high):
                return Status.DIVERGED, " ".join([*told(excess, x, record), found[1]])
        return found

    def _begin(self, record: Record, method: Method) -> None:
        """Levels from the first row; what can never be divergence has none."""
        # Under unbounded curvature every given step size would be too large.
        given = {excess.loop for excess in excessive_steps(method, np.inf)}
        self._levels[:] = np.inf
        f, h = abs(record.first("value")), record.first("hypergradient_norm")
        if f > 0 and h > 0:
            self._levels[:2] = _UNBOUNDED * f, _UNBOUNDED * h
        for loop in given:
            self._levels[_LOOPS[loop]] = SUSPICIOUS_GROWTH * record.first(f"{loop}_residual")
        if "linear" in given and method.sampled is None:
            self._levels[_FINE] = 0.0

    def _lost(
        self, record: Record, problem: Problem, method: Method, x: PyTree, y: PyTree
    ) -> tuple[Status, str] | None:
        """A linear loop that diverges in the first outer step does not grow from then on."""
        residual = record.last("linear_residual")
        if not (np.isfinite(residual) and residual > self._levels[_FINE]):
            return None
        size = float(around(problem, x, y).outer_gradient)
        if not is_lost(method, residual, size):
            self._levels[_FINE] = max(residual, LOST * size)
            return None
        status, cause = explain(Status.DIVERGED, problem, method, x, y, record)
        return status, f"{cause} Its residual is {residual:.3g}, and that of v = 0 is {size:.3g}."

    def _unbounded(self, record: Record) -> tuple[Status, str] | None:
        """f and ‖h‖ far beyond where they began, and both the largest so far."""
        value, size = record.last("value"), record.last("hypergradient_norm")
        if not (abs(value) > self._levels[0] and size > self._levels[1]):
            return None
        most = record.most("value"), record.most("hypergradient_norm")
        left_again = record.last("result") == Status.UNDONE
        if left_again or abs(value) < most[0] or size < most[1]:
            self._levels[:2] = most
            return None
        f, h = record.first("value"), record.first("hypergradient_norm")
        return (
            Status.UNBOUNDED,
            f"‖h‖ went from {h:.3g} to {size:.3g} and f from {f:.3g} to {value:.3g}.",
        )
