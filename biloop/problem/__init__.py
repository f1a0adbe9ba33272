"""A problem: its functions and data, the rows of it, x and y, and proximal maps for y."""

from biloop.problem.composite import Composite
from biloop.problem.definition import (
    Kind,
    Problem,
    check,
    evaluating,
    refuse_kind,
    refuse_other,
    same_space,
)
from biloop.problem.stream import Stream

__all__ = [
    "Composite",
    "Stream",
    "Kind",
    "Problem",
    "check",
    "evaluating",
    "refuse_kind",
    "refuse_other",
    "same_space",
]
