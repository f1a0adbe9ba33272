"""Which loops pay on a problem: all schemes, tuned and timed on it, and a verdict in words."""

from biloop.comparison.comparison import Comparison
from biloop.comparison.driver import compare

__all__ = ["Comparison", "compare"]
