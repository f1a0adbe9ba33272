"""Which loops pay on a problem: all schemes, tuned and timed on it, and a verdict in words."""

from biloop.compare.comparison import Comparison
from biloop.compare.driver import compare

__all__ = ["Comparison", "compare"]
