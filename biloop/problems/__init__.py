"""Problems that ship, each with a start and constants that are known."""

from biloop.problems.log_cosh import LogCosh, log_cosh
from biloop.problems.quadratic import Quadratic, quadratic
from biloop.problems.worst_case import WorstCase, admissible_worst_case, worst_case

__all__ = [
    "worst_case",
    "admissible_worst_case",
    "quadratic",
    "log_cosh",
    "WorstCase",
    "Quadratic",
    "LogCosh",
]
