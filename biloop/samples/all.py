"""All rows in every step: full batches."""

from biloop.problem.rows import AllRows
from biloop.samples.base import Sampler


class All(Sampler):
    """Every row in every draw: with it a sampled method is the one without samples.

    Examples
    --------
    >>> bl.schemes.soba(batch=(8, bl.All())).samples
    Samples(Blocks(size=8), All())
    """

    def check(self, samples, name):
        pass

    def batch(self, samples):
        return max(1, samples)

    def blocks(self, samples):
        return 1

    def __call__(self, key, t, samples):
        return AllRows()
