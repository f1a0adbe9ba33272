"""Rows: some of the samples of a problem, by whatever way they are read fast."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from biloop.arguments import is_concrete


class Rows(eqx.Module):
    """Some rows of an array: `rows(array)`, by whatever way is fast."""

    @abstractmethod
    def __call__(self, array: Array) -> Array:
        """These rows of the array, in order."""

    @property
    def block(self) -> Int[Array, ""] | None:
        """The number of the block that they are; None where they are none."""
        return None


class AllRows(Rows):
    """Every row: the only block there is."""

    def __call__(self, array):
        return array

    @property
    def block(self):
        return jnp.zeros((), jnp.int32)


class Block(Rows):
    """The rows number · size, …, number · size + size − 1, read in one piece."""

    number: Int[Array, ""]
    size: int = eqx.field(static=True)

    def __call__(self, array):
        return jax.lax.dynamic_slice_in_dim(array, self.number * self.size, self.size)

    @property
    def block(self):
        return self.number


class ListedRows(Rows):
    """The rows with these numbers, in any order and as often as they are named."""

    numbers: Int[Array, " batch"]

    def __call__(self, array):
        return jnp.take(array, self.numbers, axis=0, mode="clip")  # there are no others: `as_rows`


class Slice(Rows):
    """The rows array[start:stop:step]."""

    start: int | None = eqx.field(static=True)
    stop: int | None = eqx.field(static=True)
    step: int | None = eqx.field(default=None, static=True)

    def __call__(self, array):
        return array[self.start : self.stop : self.step]


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
    if numbers.ndim != 1 or not jnp.issubdtype(numbers.dtype, jnp.integer) or numbers.size == 0:
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


def as_pytree(function: Any) -> Any:
    """A callable whose arrays, if it has any, are leaves; a plain function has none."""
    if not callable(function):
        raise TypeError(f"inner and outer must be functions, got {function!r}.")
    is_pytree = isinstance(function, eqx.Module | jax.tree_util.Partial)
    return function if is_pytree else jax.tree_util.Partial(function)


class _OnRows(eqx.Module):
    """An inner function that sees only some rows of what x has for each sample."""

    function: Callable[..., Any]
    rows: tuple[Rows, ...]
    per_sample: Callable[[PyTree], PyTree] = eqx.field(static=True)

    def __call__(self, x, y, *data):
        for rows in self.rows:
            x = eqx.tree_at(self.per_sample, x, replace_fn=rows)
        return self.function(x, y, *data)


class Composite(eqx.Module):
    """An inner function that says where its loss begins: g = loss(outputs) + penalty.

    g(x, y, *data) = loss(x, outputs(x, y, *data), *data) + penalty(x, y)

    `outputs` is a network, say, and `loss` convex in what it returns (any pytree). It is used like
    any other inner function; `GaussNewton` needs to see its parts.

    Parameters
    ----------
    outputs : function of x, y, *data
    loss : function of x, outputs, *data
    penalty : function of x, y, optional

    Examples
    --------
    >>> inner = bl.Composite(outputs=lambda x, y, X, Y: X @ y,
    ...                      loss=lambda x, z, X, Y: jnp.mean((z - Y) ** 2),
    ...                      penalty=lambda x, y: jnp.exp(x) * jnp.sum(y**2))
    """

    outputs: Callable[..., Any] = eqx.field(converter=as_pytree)
    loss: Callable[..., Any] = eqx.field(converter=as_pytree)
    penalty: Callable[..., Any] | None = eqx.field(
        default=None, converter=lambda part: None if part is None else as_pytree(part)
    )

    def __call__(self, x: PyTree, y: PyTree, *data: PyTree) -> Array:
        """g(x, y, *data)."""
        value = self.loss(x, self.outputs(x, y, *data), *data)
        return value if self.penalty is None else value + self.penalty(x, y)


def on_rows(
    function: Callable[..., Any], rows: Rows, per_sample: Callable[[PyTree], PyTree]
) -> Callable[..., Any]:
    """An inner function on these rows of what x has for each sample, or on rows of its rows."""
    if isinstance(function, Composite):
        parts = (function.outputs, function.loss, function.penalty)
        return Composite(
            *(None if part is None else on_rows(part, rows, per_sample) for part in parts)
        )
    if isinstance(function, _OnRows):
        return _OnRows(function.function, (*function.rows, rows), per_sample)
    return _OnRows(function, (rows,), per_sample)


def is_sampled(entry: Any) -> bool:
    """Whether an entry of a data tuple has a row for each sample."""
    return eqx.is_array(entry) and entry.ndim > 0


def count_samples(data: tuple[PyTree, ...]) -> int:
    """The number of samples in a data tuple, 0 if there are none."""
    return next((len(entry) for entry in data if is_sampled(entry)), 0)


def as_selection(which: Any) -> Callable[[PyTree], PyTree] | None:
    """A converter for the leaves of x that have a row for each sample."""
    if which is True:
        return jax.tree.leaves
    if which is None or which is False:
        return None
    if not callable(which):
        raise TypeError(
            f"per_sample must be True or a function that picks leaves of x, got {which!r}."
        )
    return which
