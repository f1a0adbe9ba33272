"""Numbers that may change with the outer iteration k, and the converters of what users give.

A schedule is a function of k. Plain numbers become schedules on the way in: a Python integer is
fixed at compile time (`Fixed`), anything else is an argument of the compiled program (`Constant`).
"""

from biloop.schedules.arguments import as_count, is_concrete, number, positive
from biloop.schedules.converters import as_number, as_steps, as_tolerance, as_weight
from biloop.schedules.forms import (
    Adaptive,
    Constant,
    Count,
    Fixed,
    Function,
    Geometric,
    Power,
    Schedule,
    is_first,
    number_at,
    step_count,
)

# The converters of numbers are had from here, too, by modules that use schedules.
__all__ = [
    "Count",
    "Schedule",
    "Fixed",
    "Constant",
    "Power",
    "Geometric",
    "Function",
    "Adaptive",
    "step_count",
    "number_at",
    "is_first",
    "as_number",
    "as_weight",
    "as_steps",
    "as_tolerance",
    "as_count",
    "number",
    "positive",
    "is_concrete",
]
