"""x and y: pytrees of floating arrays, in which a module may hold other things as well.

The activation functions, flags and counters of a model are no variables. Inside, each of them is
wrapped as `Fixed`, which has no leaves: what is left is a vector. The functions of a problem, and
whoever gets x and y back, see the model as it was given (`thawed`).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop.schedules.arguments import shown


@jax.tree_util.register_static
class Fixed:
    """A part of a model that is not optimised: a pytree without leaves."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self._content = _content(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    def __repr__(self) -> str:
        """Without an address: checkpoints compare structures by their words."""
        return f"Fixed({getattr(self.value, '__qualname__', type(self.value).__qualname__)})"


def _content(value: Any) -> Any:
    """What makes two of them equal: arrays by their bits, other things by themselves."""
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        array = np.asarray(value)
        return array.shape, str(array.dtype), array.tobytes()
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value), value


def thawed(tree: PyTree) -> PyTree:
    """The tree with what is `Fixed` as it was given."""
    leaves, structure = jax.tree.flatten(tree, is_leaf=_is_fixed)
    if not any(map(_is_fixed, leaves)):
        return tree
    return jax.tree.unflatten(
        structure, [leaf.value if _is_fixed(leaf) else leaf for leaf in leaves]
    )


def frozen_like(tree: PyTree, like: PyTree) -> PyTree:
    """The tree with what is `Fixed` in `like`, for a function that returns something like it."""
    places, structure = jax.tree.flatten(like, is_leaf=_is_fixed)
    if not any(map(_is_fixed, places)):
        return tree
    leaves = structure.flatten_up_to(tree)
    chosen = [a if _is_fixed(a) else b for a, b in zip(places, leaves, strict=True)]
    return jax.tree.unflatten(structure, chosen)


def _is_fixed(node: Any) -> bool:
    return isinstance(node, Fixed)


def as_variable(tree: PyTree, name: str) -> PyTree:
    """`tree` with floating arrays as leaves, or an error that names the leaf that is none.

    In a module (equinox, flax) whatever is no floating array is `Fixed`.
    """
    leaves = jax.tree.leaves(tree)
    if not leaves:
        raise ValueError(f"{name} has no leaves: {tree!r}.")
    if all(map(_is_variable, leaves)):
        return tree

    def convert(path: Any, node: PyTree) -> PyTree:
        if jax.tree_util.all_leaves([node]):
            return _as_floating(name + jax.tree_util.keystr(path), node)

        def inside(within: Any, leaf: object) -> PyTree:
            if not eqx.is_inexact_array(leaf):
                return Fixed(leaf)
            return _as_floating(name + jax.tree_util.keystr((*path, *within)), leaf)

        return jax.tree_util.tree_map_with_path(inside, node)

    variable = jax.tree_util.tree_map_with_path(convert, tree, is_leaf=_is_module)
    if not jax.tree.leaves(variable):
        raise TypeError(f"{name} has no floating arrays that could be optimised: {tree!r}.")
    return variable


def _is_variable(leaf: object) -> bool:
    """Whether this is a leaf as they all shall be."""
    if not isinstance(leaf, jax.Array) or not jnp.issubdtype(leaf.dtype, jnp.floating):
        return False
    return leaf.size > 0 and not leaf.weak_type


def _is_module(node: Any) -> bool:
    """Whether this is neither a leaf nor one of Python's containers."""
    return node is not None and not isinstance(node, dict | list | tuple)


def _as_floating(where: str, leaf: object) -> jax.Array:
    try:
        array = jnp.asarray(leaf)
    except OverflowError:
        raise ValueError(f"{where} is {shown(leaf)}, too large a number.") from None
    except Exception:  # whatever a foreign object raises when it is made an array
        raise TypeError(
            f"{where} is a {type(leaf).__name__}, not an array. Keep it inside of an eqx.Module, "
            f"or out of x and y."
        ) from None
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(
            f"{where} has dtype {array.dtype}, but only floating arrays can be optimised; "
            f"convert it, e.g. with .astype(float), or move it to the data."
        )
    if array.size == 0:
        raise ValueError(f"{where} is empty: its shape is {array.shape}.")
    # A weakly typed scalar would change its type in the first iteration of a compiled loop.
    return jax.lax.convert_element_type(array, array.dtype) if array.weak_type else array
