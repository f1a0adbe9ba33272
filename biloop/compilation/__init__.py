"""From a function to compiled programs: compiled once, bounded in number, fast on its device.

programs (what is compiled when, donated, forgotten) uses products (matrix products in the form that
the device is fast at) and effort (how hard XLA tries); transformations (optax optimizers that
compare equal if they are equal); branches (what must not be fused); precision (float64 for some).
"""

from biloop.compilation.branches import apart, on_cpu
from biloop.compilation.precision import double_precision
from biloop.compilation.products import SWITCH
from biloop.compilation.programs import Compiled, compiled
from biloop.compilation.transformations import Built, Made, as_transformation, canonical

__all__ = [
    "SWITCH",
    "Built",
    "Compiled",
    "Made",
    "apart",
    "as_transformation",
    "canonical",
    "compiled",
    "double_precision",
    "on_cpu",
]
