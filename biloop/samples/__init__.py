"""Which rows a step sees."""

from typing import Any

from biloop.samples.all import All
from biloop.samples.base import Pair, Sampler, Samples, as_key
from biloop.samples.blocks import Blocks
from biloop.samples.uniform import Uniform


def as_samples(batch: Any, key: Any) -> Samples:
    """What schemes take: a number for both levels, a pair of them, or samplers; None is all."""
    if isinstance(batch, Samples):
        return batch
    pair = batch if isinstance(batch, tuple) else (batch, batch)
    if len(pair) != 2:
        raise ValueError(f"batch must be a number of rows, or a pair (inner, outer), got {pair}.")
    return Samples(_as_sampler(pair[0]), _as_sampler(pair[1]), key)


def _as_sampler(batch: Any) -> Sampler:
    if isinstance(batch, Sampler):
        return batch
    return All() if batch is None else Blocks(batch)


__all__ = ["Sampler", "Samples", "Pair", "All", "Blocks", "Uniform", "as_samples", "as_key"]
