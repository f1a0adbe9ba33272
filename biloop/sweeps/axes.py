"""What varies: axes with their labels, and the grid they span."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from biloop.schedules.arguments import listed, shown

SEED = "seed"
_PLAIN = bool | int | float | str  # what can be a label


class Axis(NamedTuple):
    """Paths that vary together, and for each position a value and a label per path."""

    paths: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    labels: tuple[tuple[Any, ...], ...]

    @property
    def name(self) -> str:
        """The path, or the paths that vary together."""
        return ", ".join(self.paths)

    def label(self, position: int) -> list[tuple[str, Any]]:
        """The paths with their labels at one position."""
        return list(zip(self.paths, self.labels[position], strict=True))

    def at(self, positions: Sequence[int]) -> "Axis":
        """The axis with these positions only."""
        return Axis(
            self.paths,
            tuple(self.values[i] for i in positions),
            tuple(self.labels[i] for i in positions),
        )


def shape(axes: Sequence[Axis]) -> tuple[int, ...]:
    """The lengths of the axes."""
    return tuple(len(axis.labels) for axis in axes)


def positions(axes: Sequence[Axis]) -> list[tuple[int, ...]]:
    """All positions of the grid, the last axis fastest."""
    return [tuple(map(int, p)) for p in np.ndindex(*shape(axes))]


def label_cells(axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """The labels of each cell by path, the last axis fastest."""
    return [
        {path: label for axis, i in zip(axes, p, strict=True) for path, label in axis.label(i)}
        for p in positions(axes)
    ]


def make_axes(
    over: Mapping[Any, Any] | None, seeds: Iterable[int] | None, taken: Iterable[str] = ()
) -> tuple[Axis, ...]:
    """The axes in the order given, the seeds last; the names in `taken` mean something else."""
    if not isinstance(over, Mapping | None):
        raise TypeError(f"over must be a dictionary from paths to values, got {over!r}.")
    axes = [_make_axis(key, values) for key, values in (over or {}).items()]
    if seeds is not None:
        axes.append(_seed_axis(seeds))
    paths = [path for axis in axes for path in axis.paths]
    for path in paths:
        if path in taken:
            raise ValueError(f"{path!r} is a column of the results; write 'method.{path}'.")
        if paths.count(path) > 1:
            raise ValueError(f"{path!r} is on two axes; a path can vary in one way only.")
    return tuple(axes)


def _make_axis(key: Any, values: Any) -> Axis:
    paths = key if isinstance(key, tuple) else (key,)
    if not paths or not all(isinstance(path, str) for path in paths):
        raise TypeError(f"An axis of over is a path or a tuple of paths, got {shown(key)}.")
    if SEED in paths:
        raise ValueError("The seeds are given by seeds=, e.g. seeds=range(5), not by over=.")
    if isinstance(values, Mapping):
        names, entries = list(values), list(values.values())
        for name in names:
            if not isinstance(name, _PLAIN):
                raise TypeError(f"The labels of {key!r} must be numbers or words, got {name!r}.")
    elif isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(
            f"The values of {key!r} must be a list, or a dictionary from labels to values; "
            f"got {shown(values)}."
        )
    else:
        names, entries = None, list(values)
    if not entries:
        raise ValueError(f"The axis {key!r} has no values.")

    if isinstance(key, tuple):
        for entry in entries:
            if not isinstance(entry, tuple | list) or len(entry) != len(paths):
                raise ValueError(f"An entry of {key!r} needs {len(paths)} values, got {entry!r}.")
    else:
        entries = [(entry,) for entry in entries]
    if names is None:
        labels = list(zip(*map(_labels, zip(*entries, strict=True)), strict=True))
    else:
        labels = [(name,) * len(paths) for name in names]
    return _without_repetition(Axis(tuple(paths), tuple(map(tuple, entries)), tuple(labels)))


def _seed_axis(seeds: Iterable[int]) -> Axis:
    found = listed(seeds, "seeds", "a sequence of integers such as range(5)")
    for seed in found:
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool):
            raise TypeError(f"seeds must be integers, got {seed!r}.")
    if not found:
        raise ValueError("seeds is empty.")
    entries = tuple((int(seed),) for seed in found)
    return _without_repetition(Axis((SEED,), entries, entries))


def _labels(values: Sequence[Any]) -> list[Any]:
    """Numbers and words are their own labels; anything else is called by its position."""
    plain = [value.item() if _is_number(value) else value for value in values]
    if all(isinstance(value, _PLAIN) for value in plain):
        return plain
    return list(range(len(plain)))


def _is_number(value: Any) -> bool:
    """Whether it is an array without axes of what Python has too, as no key is."""
    single = isinstance(value, np.generic | jax.Array) and value.ndim == 0
    return single and not jnp.issubdtype(value.dtype, jax.dtypes.extended)


def _without_repetition(axis: Axis) -> Axis:
    for i, label in enumerate(axis.labels):
        if label in axis.labels[:i]:
            shown = label[0] if len(label) == 1 else label
            raise ValueError(f"The axis {axis.name!r} has {shown!r} twice.")
    return axis
