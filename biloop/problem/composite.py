"""Inner functions that say where their loss begins, and functions on rows of x."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from biloop.problem.rows import Rows
from biloop.schedules.arguments import as_flag, shown


def as_pytree(function: Any, name: str = "inner and outer") -> Any:
    """A callable whose arrays, if it has any, are leaves; a plain function has none."""
    if not callable(function):
        raise TypeError(f"{name} must be functions, got {shown(function)}.")
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
    linear : bool
        Whether `outputs` are linear in y and made from y and data alone. Where inner and outer are
        such, SAGA keeps a few numbers per sample instead of vectors.

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
    linear: bool = eqx.field(default=False, static=True, converter=as_flag("linear"))

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
            *(None if part is None else on_rows(part, rows, per_sample) for part in parts),
            linear=function.linear,
        )
    if isinstance(function, _OnRows):
        return _OnRows(function.function, (*function.rows, rows), per_sample)
    return _OnRows(function, (rows,), per_sample)
