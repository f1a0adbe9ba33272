"""Blocks of consecutive rows, each once in a pass over the data, in a new order for every pass."""

import equinox as eqx
import jax.numpy as jnp

from biloop.problem.rows import Block, Slice
from biloop.samples.base import Sampler
from biloop.samples.chance import shuffled
from biloop.schedules.arguments import as_count


class Blocks(Sampler):
    """Block π(t mod b) of b = ⌊n / size⌋ blocks, with a permutation π of its own for each pass.

    Rows beyond the last full block are never drawn, which a run says of itself; nothing is weighted
    to make up for them. Rows that are in some order (by label, say) should be shuffled before.

    Parameters
    ----------
    size : int
        The rows of a block.

    Examples
    --------
    >>> blocks = bl.Blocks(8)
    >>> blocks.blocks(samples=24), blocks.batch(samples=24)
    (3, 8)
    """

    size: int = eqx.field(static=True, converter=as_count("batch"))

    def check(self, samples, name):
        if samples == 0:
            raise ValueError(
                f"There are no samples in {name}, so that it has no batches of {self.size}: arrays "
                f"with one row per sample must stand directly in the tuple. A level without any "
                f"takes None, e.g. batch=({self.size}, None)."
            )
        if self.size > samples:
            raise ValueError(
                f"A batch of {self.size} is larger than {name}, which has {samples} samples."
            )

    def batch(self, samples):
        return self.size

    def blocks(self, samples):
        return samples // self.size

    def covered(self, samples):
        count = self.blocks(samples) * self.size
        return None if count == samples else Slice(0, count)

    def __call__(self, key, t, samples):
        count = self.blocks(samples)
        if count == 1:
            return Block(jnp.zeros((), jnp.int32), self.size)
        return Block(shuffled(key, t, count), self.size)
