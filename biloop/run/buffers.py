"""Who owns the arrays of a state: those of a chunk's own are overwritten, others must stay."""

from itertools import compress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree


def to_lend(tree: PyTree) -> PyTree:
    """The tree for a program that may overwrite what it is given, and leaves this as it is.

    Of what lies in the memory of the host NumPy's view is enough, in a tenth of the time of a copy.
    """
    if jax.default_backend() != "cpu":
        return copied(tree)
    return jax.tree.map(lambda leaf: np.asarray(leaf) if _is_plain(leaf) else copied(leaf), tree)


def _is_plain(leaf: Any) -> bool:
    """Whether a program given its view is the same one, with the same bits."""
    if not isinstance(leaf, jax.Array):
        return True
    special = jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
    return not (special or leaf.committed or leaf.weak_type)


def copied(tree: PyTree) -> PyTree:
    """The tree in buffers of its own: those of a state are given to the next chunk."""
    leaves, structure = jax.tree.flatten(tree)
    here = [isinstance(leaf, jax.Array) and leaf.is_fully_addressable for leaf in leaves]
    # In one call, which compiles nothing.
    copies = iter(jax.device_put([*compress(leaves, here)], may_alias=False))
    elsewhere = lambda leaf: leaf.copy() if isinstance(leaf, jax.Array) else leaf  # noqa: E731
    chosen = [next(copies) if h else elsewhere(a) for a, h in zip(leaves, here, strict=True)]
    return jax.tree.unflatten(structure, chosen)
