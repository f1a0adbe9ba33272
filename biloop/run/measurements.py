"""‖∇Φ(x)‖² and Φ(x) on all samples, as a function that a run can watch."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import PyTree

from biloop import vectors
from biloop.compilation import compiled
from biloop.methods.reference import Truth, measure
from biloop.problem import Problem
from biloop.schedules.arguments import as_count

_ACCURACY = 0.01


class Measurement(eqx.Module):
    """watch(x, y): ‖∇Φ(x)‖², Φ(x), and the error of the norm of ∇Φ; NaN where they are not found.

    Looked for from y by Newton's method and conjugate gradients, or dense algebra where y is small.

    Parameters
    ----------
    problem : Problem

    Examples
    --------
    >>> measured = bl.Measurement(problem)(x0, y0)
    >>> sorted(measured)
    ['error', 'squared_norm', 'value']
    """

    problem: Problem

    def __call__(self, x: PyTree, y: PyTree) -> dict[str, float]:
        """All three at x."""
        truth: Truth = jax.device_get(_measured(self.problem, x, y))
        if not truth.found:
            return {"squared_norm": float("nan"), "value": float("nan"), "error": float("nan")}
        size = float(vectors.norm(truth.h))
        return {
            "squared_norm": size**2,
            "value": float(truth.value),
            "error": float(truth.error),
        }


def as_watch(problem: Problem, watch: Any, measure: Any) -> Measurement:
    """What `measure` watches; a function of the user's own has to call it itself."""
    as_count("measure")(measure)
    if watch is not None:
        raise ValueError(
            "measure is a value to watch, and watch gives another: return both from one function, "
            'e.g. watch=lambda x, y: {"mine": …} | Measurement(problem)(x, y), watch_every=….'
        )
    return Measurement(problem)


@compiled
def _measured(problem: Problem, x: PyTree, y: PyTree) -> Truth:
    return measure(problem, x, y, vectors.zeros_like(y), accuracy=_ACCURACY)
