"""Rows: some of the samples of a problem, by whatever way they are read fast."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from biloop.schedules.arguments import is_concrete


class Rows(eqx.Module):
    """Some rows of an array: `rows(array)`, by whatever way is fast."""

    @abstractmethod
    def __call__(self, array: Array) -> Array:
        """These rows of the array, in order."""

    @abstractmethod
    def numbered(self, samples: int) -> Int[Array, " batch"]:
        """Their numbers, among so many samples."""

    @property
    def block(self) -> Int[Array, ""] | None:
        """The number of the block that they are; None where they are none."""
        return None


class AllRows(Rows):
    """Every row: the only block there is."""

    def __call__(self, array):
        return array

    def numbered(self, samples):
        return jnp.arange(samples, dtype=jnp.int32)

    @property
    def block(self):
        return jnp.zeros((), jnp.int32)


class Block(Rows):
    """The rows number · size, …, number · size + size − 1, read in one piece."""

    number: Int[Array, ""]
    size: int = eqx.field(static=True)

    def __call__(self, array):
        return jax.lax.dynamic_slice_in_dim(array, self.number * self.size, self.size)

    def numbered(self, samples):
        return self.number * self.size + jnp.arange(self.size, dtype=jnp.int32)

    @property
    def block(self):
        return self.number


class ListedRows(Rows):
    """The rows with these numbers, in any order and as often as they are named."""

    numbers: Int[Array, " batch"]

    def __call__(self, array):
        return jnp.take(array, self.numbers, axis=0, mode="clip")  # there are no others: `as_rows`

    def numbered(self, samples):
        return self.numbers


class Slice(Rows):
    """The rows array[start:stop:step]."""

    start: int | None = eqx.field(static=True)
    stop: int | None = eqx.field(static=True)
    step: int | None = eqx.field(default=None, static=True)

    def __call__(self, array):
        return array[self.start : self.stop : self.step]

    def numbered(self, samples):
        return self(jnp.arange(samples, dtype=jnp.int32))


def as_rows(rows: Any, samples: int, name: str) -> Rows:
    """What `batch` takes as rows: `Rows`, None for all, a slice, or integers below `samples`."""
    if isinstance(rows, Rows):
        return rows
    if rows is None:
        return AllRows()
    if samples == 0:
        raise ValueError(f"There are no samples in {name} to take rows of; give None.")
    if isinstance(rows, slice):
        return Slice(rows.start, rows.stop, rows.step)
    numbers = jnp.asarray(rows)
    if numbers.shape == (0,):
        raise ValueError(f"A batch needs a row: none of the {samples} samples of {name} was given.")
    if numbers.ndim != 1 or not jnp.issubdtype(numbers.dtype, jnp.integer):
        raise TypeError(
            f"The rows of a batch must be integers, a slice or None for all, got {numbers.dtype} "
            f"of shape {numbers.shape}."
        )
    if is_concrete(numbers):
        low, high = int(np.min(numbers)), int(np.max(numbers))
        if low < -samples or high >= samples:
            wrong = low if low < -samples else high
            raise IndexError(f"There is no row {wrong} in {name}, which has {samples} samples.")
    return ListedRows(jnp.where(numbers < 0, numbers + samples, numbers))
