"""Problem: the inner and the outer function with their data.

    min_x Φ(x) = f(x, y*(x))   subject to   y*(x) = argmin_y g(x, y)

Data are leaves of the problem and so arguments of everything that is compiled, never constants in
it: other data of the same shape compile nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree


def _as_pytree(function: Any) -> Any:
    """A callable whose arrays, if it has any, are leaves; a plain function has none."""
    if not callable(function):
        raise TypeError(f"inner and outer must be functions, got {function!r}.")
    is_pytree = isinstance(function, eqx.Module | jax.tree_util.Partial)
    return function if is_pytree else jax.tree_util.Partial(function)


def _as_data(name: str) -> Callable[[Any], tuple[PyTree, ...]]:
    def convert(data: Any) -> tuple[PyTree, ...]:
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
    shapes = [entry.shape for entry in data if eqx.is_array(entry) and entry.ndim > 0]
    if len({shape[0] for shape in shapes}) > 1:
        raise ValueError(
            f"The arrays of {name} have different leading axes: shapes "
            f"{', '.join(map(str, shapes))}. Samples and labels must line up; arrays that are not "
            f"samples go together into one pytree, e.g. {name}=({{'A': A, 'b': b}},)."
        )


class Problem(eqx.Module):
    """inner(x, y, *inner_data) and outer(x, y, *outer_data), both scalars; x and y any pytrees.

    Arrays given directly in a data tuple are samples and must agree in their leading axis. Anything
    else (matrices of a quadratic, a dictionary of constants) goes into the tuple as one pytree.
    """

    inner: Callable[..., Any] = eqx.field(converter=_as_pytree)
    outer: Callable[..., Any] = eqx.field(converter=_as_pytree)
    inner_data: tuple[PyTree, ...] = eqx.field(default=(), converter=_as_data("inner_data"))
    outer_data: tuple[PyTree, ...] = eqx.field(default=(), converter=_as_data("outer_data"))


def as_variable(tree: PyTree, name: str) -> PyTree:
    """`tree` with floating arrays as leaves, or an error that names the leaf that is none."""
    if not jax.tree.leaves(tree):
        raise ValueError(f"{name} has no leaves: {tree!r}.")

    def convert(path: Any, leaf: object) -> jax.Array:
        where = name + jax.tree_util.keystr(path)
        try:
            array = jnp.asarray(leaf)
        except TypeError:
            raise TypeError(
                f"{where} is a {type(leaf).__name__}, not an array. Split a model with "
                f"eqx.partition(model, eqx.is_inexact_array) and combine it inside the loss."
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

    return jax.tree_util.tree_map_with_path(convert, tree)


def check(problem: Problem, x: PyTree, y: PyTree) -> None:
    """Refuse a problem whose functions cannot be evaluated at (x, y) or are not scalars."""
    for name, function, data in (
        ("inner", problem.inner, problem.inner_data),
        ("outer", problem.outer, problem.outer_data),
    ):
        try:
            value = eqx.filter_eval_shape(_evaluate, function, x, y, *data)
        except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
            raise ValueError(
                f"{name}(x, y, *{name}_data) cannot be evaluated at these x and y: {error}\n"
                f"  x: {_shapes(x)}\n  y: {_shapes(y)}\n  {name}_data: {_shapes(data)}"
            ) from error
        if not isinstance(value, jax.ShapeDtypeStruct):
            raise TypeError(f"{name} must return a scalar array, got {value!r}.")
        if value.shape != ():
            raise ValueError(
                f"{name} must return a scalar, got shape {value.shape}; take its sum or mean."
            )
        if not jnp.issubdtype(value.dtype, jnp.floating):
            raise TypeError(f"{name} must return a floating scalar, got dtype {value.dtype}.")


@eqx.filter_jit
def _evaluate(function: Callable[..., Any], *arguments: PyTree) -> Any:
    """Compiled only in name: what JAX remembers of it makes the second check almost free."""
    return function(*arguments)


def same_space(tree: PyTree, like: PyTree, name: str, like_name: str) -> None:
    """Refuse a tree whose structure, shapes or dtypes differ from those of `like`."""
    if _signature(tree) != _signature(like):
        raise ValueError(
            f"{name} does not have the structure of {like_name}: "
            f"{name} is {_shapes(tree)}, {like_name} is {_shapes(like)}."
        )


def _signature(tree: PyTree) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]


def _shapes(tree: PyTree) -> str:
    return eqx.tree_pformat(tree, width=88)
