"""A problem: its functions and data, the rows of it, x and y, and proximal maps for y."""

from biloop.problem.definition import Kind, Problem, check, refuse_kind, same_space
from biloop.problem.rows import Composite

__all__ = ["Composite", "Kind", "Problem", "check", "refuse_kind", "same_space"]
