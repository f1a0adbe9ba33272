"""Which loops pay on a problem: all schemes, tuned and timed on it, and a verdict in words."""

from biloop.comparison.candidates import Candidate
from biloop.comparison.driver import compare
from biloop.comparison.result import Comparison

__all__ = ["Candidate", "Comparison", "compare"]
