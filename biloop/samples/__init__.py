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
    if not isinstance(batch, tuple):
        batch = batch, batch
    if len(batch) != 2:
        raise ValueError(
            f"batch must be a number of rows, or a pair of them for inner and outer, got {batch}."
        )
    inner, outer = batch
    return Samples(_as_sampler(inner), _as_sampler(outer), key)


def _as_sampler(batch: Any) -> Sampler:
    if isinstance(batch, Sampler):
        return batch
    return All() if batch is None else Blocks(batch)


__all__ = ["Sampler", "Samples", "Pair", "All", "Blocks", "Uniform", "as_samples", "as_key"]
