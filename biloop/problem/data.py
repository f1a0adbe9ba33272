"""The data of a problem: arrays with a row for each sample, pytrees without, or a stream."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from biloop.problem.stream import Stream


def as_data(name: str) -> Callable[[Any], Any]:
    """A converter for the data of one level: a tuple of arrays and pytrees, or a stream."""

    def convert(data: Any) -> Any:
        if isinstance(data, Stream):
            return data
        if not isinstance(data, tuple | list):
            raise TypeError(
                f"{name} must be a tuple of arrays or pytrees, got {type(data).__name__}; "
                f"for a single array write {name}=(array,)."
            )
        arrays = jax.tree_util.tree_map_with_path(partial(_as_array, name), tuple(data))
        _check_leading_axes(name, arrays)
        return arrays

    return convert


def _as_array(name: str, path: Any, leaf: Any) -> jax.Array:
    where = name + jax.tree_util.keystr(path)
    if callable(leaf) or isinstance(leaf, str | bytes):
        raise TypeError(f"{where} must be an array, got {type(leaf).__name__}.")
    array = jnp.asarray(leaf)
    if array.size == 0:
        raise ValueError(f"{where} is empty: its shape is {array.shape}.")
    return array


def _check_leading_axes(name: str, data: tuple[PyTree, ...]) -> None:
    """Refuse samples that do not line up, before broadcasting hides it."""
    shapes = [entry.shape for entry in data if is_sampled(entry)]
    if len({shape[0] for shape in shapes}) > 1:
        raise ValueError(
            f"The arrays of {name} have different leading axes: shapes "
            f"{', '.join(map(str, shapes))}. Samples and labels must line up; arrays that are not "
            f"samples go together into one pytree, e.g. {name}=({{'A': A, 'b': b}},)."
        )


def is_sampled(entry: Any) -> bool:
    """Whether an entry of a data tuple has a row for each sample."""
    return eqx.is_array(entry) and entry.ndim > 0


def count_samples(data: Any) -> int:
    """The number of samples in a data tuple, 0 if there are none."""
    if isinstance(data, Stream):
        return data.samples
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
