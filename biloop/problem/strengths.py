"""What may depend on x: the strength of a penalty, the bounds of a constraint."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop.schedules.arguments import is_concrete, positive, shown


class Same(eqx.Module):
    """The same for every x."""

    value: PyTree

    def __call__(self, x: PyTree) -> PyTree:
        return self.value

    def __repr__(self) -> str:
        return repr(self.value)


def function_of_x(name: str, *, low: float) -> Callable[[Any], Any]:
    """A converter for what may depend on x: a number or pytree of arrays, or a function of x."""

    def convert(value: Any) -> Any:
        refusal = f"{name} must be a number, arrays, or a function of x, got {shown(value)}."
        if isinstance(value, eqx.Module | jax.tree_util.Partial) and callable(value):
            return value
        if callable(value):
            return jax.tree_util.Partial(value)
        try:
            arrays = jax.tree.map(jnp.asarray, value)
        except Exception:  # too large a number, or whatever a foreign object raises
            raise TypeError(refusal) from None
        dtypes = [leaf.dtype for leaf in jax.tree.leaves(arrays)]
        if not dtypes or not all(map(_is_real, dtypes)):
            raise TypeError(refusal)
        for leaf in jax.tree.leaves(arrays):
            if is_concrete(leaf) and not np.all(np.asarray(leaf) >= low):
                raise ValueError(f"{name} must be at least {low:g}, got {shown(value)}.")
        return Same(arrays)

    return convert


def _is_real(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.integer) or jnp.issubdtype(dtype, jnp.floating)


def positive_function_of_x(name: str) -> Callable[[Any], Any]:
    """The same for a number above zero."""
    given = function_of_x(name, low=0.0)
    return lambda value: given(value if callable(value) else positive(name)(value))


def spread(value: PyTree, y: PyTree, name: str) -> PyTree:
    """A number for every leaf of y, or arrays in the structure and shapes of y."""
    if jax.tree.structure(value) != jax.tree.structure(y):
        if jnp.ndim(value) != 0:
            raise ValueError(
                f"{name} must be a number or arrays in the structure of y, "
                f"{jax.tree.structure(y)}; got {shown(value)}."
            )
        value = jax.tree.map(lambda _: value, y)
    return jax.tree.map(lambda v, y: jnp.broadcast_to(v, y.shape).astype(y.dtype), value, y)
