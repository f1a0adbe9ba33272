"""Which cells run together, and what they share.

Cells of one structure and one set of shapes run the same program. A leaf that is one object in all
of them is passed once; the others are stacked, but for two kinds that split the cells into groups:
loop sizes, because cells side by side would all run to the longest, and large data that several
cells share, because they would be copied for each.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop.sweeps.cells import Cell

_LARGE = 2**20  # bytes


class Batch(NamedTuple):
    """Cells that run side by side: their indices, what they share, and the rest with an axis."""

    indices: tuple[int, ...]
    width: int
    shared: Cell
    varying: Cell


class Program:
    """The cells that one compiled program serves, whatever their groups."""

    def __init__(self, cells: Sequence[Cell], indices: Sequence[int]) -> None:
        """Find out which leaves vary and which of those split the cells into groups."""
        self.indices = list(indices)
        flat = [jax.tree.flatten(cells[i]) for i in indices]
        self._structure = flat[0][1]
        self._leaves = {i: leaves for i, (leaves, _) in zip(indices, flat, strict=True)}
        columns = list(zip(*self._leaves.values(), strict=True))
        parts = _part_of_each_leaf(cells[indices[0]])
        varies = [
            _is_array(column[0]) and any(leaf is not column[0] for leaf in column)
            for column in columns
        ]
        self._splits = [
            v and _splits(part, column)
            for v, part, column in zip(varies, parts, columns, strict=True)
        ]
        self._stacked = [v and not s for v, s in zip(varies, self._splits, strict=True)]

    def groups(self) -> list[list[int]]:
        """The indices of the cells that may be stacked."""

        def key(i: int) -> tuple[Any, ...]:
            return tuple(
                int(leaf) if leaf.ndim == 0 else id(leaf)
                for leaf, splits in zip(self._leaves[i], self._splits, strict=True)
                if splits
            )

        return _grouped(self.indices, key)

    def batch(self, indices: Sequence[int], width: int) -> Batch:
        """Stack what varies, with the last cell repeated where there are fewer than `width`."""
        filled = [*indices, *[indices[-1]] * (width - len(indices))]
        lanes = [self._leaves[i] for i in filled]
        flags = self._stacked
        varying = [
            jnp.stack([leaves[n] for leaves in lanes]) if flag else None
            for n, flag in enumerate(flags)
        ]
        shared = [None if flag else leaf for leaf, flag in zip(lanes[0], flags, strict=True)]
        return Batch(
            tuple(indices),
            width,
            jax.tree.unflatten(self._structure, shared),
            jax.tree.unflatten(self._structure, varying),
        )


def programs(cells: Sequence[Cell]) -> list[Program]:
    """Cells of the same structure, shapes and compiled-in settings, in the order of appearance."""

    def signature(i: int) -> Any:
        leaves, structure = jax.tree.flatten(cells[i])
        return structure, tuple(
            (leaf.shape, leaf.dtype) if _is_array(leaf) else leaf for leaf in leaves
        )

    return [Program(cells, same) for same in _grouped(range(len(cells)), signature)]


def even_split(indices: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """As few parts of at most `most` as possible, equally long but for the last."""
    parts = -(-len(indices) // most)
    length = -(-len(indices) // parts)
    return [tuple(indices[i : i + length]) for i in range(0, len(indices), length)]


def _grouped(indices: Sequence[int], key: Callable[[int], Any]) -> list[list[int]]:
    groups: dict[Any, list[int]] = {}
    for i in indices:
        groups.setdefault(key(i), []).append(i)
    return list(groups.values())


def _part_of_each_leaf(cell: Cell) -> list[str]:
    return [name for name, part in cell._asdict().items() for _ in jax.tree.leaves(part)]


def _splits(part: str, column: Sequence[Any]) -> bool:
    leaf = column[0]
    if part == "method":
        return leaf.ndim == 0 and bool(jnp.issubdtype(leaf.dtype, jnp.integer))
    shared_by_some = len(set(map(id, column))) < len(column)
    return part == "problem" and leaf.nbytes >= _LARGE and shared_by_some


def _is_array(leaf: PyTree) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray)
