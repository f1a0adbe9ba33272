"""Rows drawn one by one, each as likely as any other in every draw."""

import equinox as eqx

from biloop.problem.rows import ListedRows
from biloop.samples.base import Sampler
from biloop.samples.blocks import Blocks
from biloop.samples.chance import integers
from biloop.schedules.arguments import as_count


class Uniform(Sampler):
    """`size` rows, independently and with replacement. There are no blocks, so no SAGA.

    Parameters
    ----------
    size : int
        The rows of a draw.

    Examples
    --------
    >>> bl.schemes.soba(batch=bl.Uniform(8)).samples
    Samples(Uniform(size=8), Uniform(size=8))
    """

    size: int = eqx.field(static=True, converter=as_count("batch"))

    def check(self, samples, name):
        Blocks(self.size).check(samples, name)

    def batch(self, samples):
        return self.size

    def blocks(self, samples):
        return None

    def __call__(self, key, t, samples):
        return ListedRows(integers(key, t, self.size, samples))
