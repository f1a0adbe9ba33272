"""When a run that is given no end has come to one: h has fallen far enough, or to rounding."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop import vectors
from biloop.results import Status
from biloop.run.record import Record

_WINDOW = 20  # steps in which something must become smaller
_FALLEN = 1e-4  # of the largest ‖h‖: far enough for a run that is given no end
_LESS = 0.9  # ... ‖h‖ by a tenth, or f by more than its rounding


def relative_epsilon(record: Record, x: PyTree) -> float | None:
    """ε = (share · the largest ‖h‖ so far)²: 10⁻⁴ of it in float64, 5·10⁻³ in float32."""
    share = max(_FALLEN, vectors.eps(x) ** (1 / 3))
    root = float(share * record.most("hypergradient_norm"))
    return root**2 if root < 1e150 else None  # whose square overflows: a run that diverges


def has_settled(record: Record, x: PyTree) -> bool:
    """Whether neither f nor ‖h‖ has become smaller in the last steps, beyond rounding."""
    columns = record.columns()
    # Points that were left again say nothing of where the run is.
    kept = columns["result"] != Status.UNDONE
    values, norms = columns["value"][kept], columns["hypergradient_norm"][kept]
    if len(values) < 2 * _WINDOW or not np.isfinite(values).all():
        return False
    rounding = 4 * float(jnp.finfo(vectors.accumulator(x)).eps)
    before, after = values[:-_WINDOW], values[-_WINDOW:]
    fell = before.min() - after.min() > rounding * np.abs(before).max()
    return not fell and bool(norms[-_WINDOW:].min() > _LESS * norms[:-_WINDOW].min())
