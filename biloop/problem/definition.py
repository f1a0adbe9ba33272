"""Problem: the inner and the outer function with their data.

    min_x Φ(x) = f(x, y*(x))   subject to   y*(x) = argmin_y g(x, y)

or argmin_y g(x, y) + r(x, y) with r known by its proximal map, or y* = T(x, y*), an equilibrium.

Data are leaves of the problem and so arguments of everything that is compiled, never constants in
it: other data of the same shape compile nothing.
"""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from biloop.compilation import compiled
from biloop.problem.composite import Composite, as_pytree, on_rows
from biloop.problem.data import as_data, as_selection, count_samples, is_sampled
from biloop.problem.rows import AllRows, as_rows
from biloop.problem.stream import Window
from biloop.problem.variables import frozen_like, thawed
from biloop.schedules.arguments import as_flag

__all__ = ["Composite", "Problem"]


def _as_prox(function: Any) -> Any:
    """None, or a callable whose arrays are leaves."""
    if function is None:
        return None
    if not callable(function):
        raise TypeError(
            f"prox must be a function prox(x, y, step), e.g. bl.prox.L1(0.1); got {function!r}."
        )
    return as_pytree(function)


def _as_start(function: Any) -> Any:
    if function is not None and not callable(function):
        raise TypeError(f"start must be a function of x that returns a y, got {function!r}.")
    return None if function is None else as_pytree(function)


Kind = Literal["minimum", "proximal", "equilibrium"]


class Problem(eqx.Module):
    """inner(x, y, *inner_data) and outer(x, y, *outer_data), both scalars; x and y any pytrees.

    Arrays given directly in a data tuple are samples and must agree in their leading axis. Anything
    else (matrices of a quadratic, a dictionary of constants) goes into the tuple as one pytree.

    `Problem.fixed_point(T, outer, …)` makes a problem whose y solves y = T(x, y).

    Parameters
    ----------
    inner, outer : functions
        g(x, y, *inner_data) and f(x, y, *outer_data).
    inner_data, outer_data : tuples
        Arguments of the compiled programs: other data of the same shape compile nothing. A `Stream`
        instead is for data larger than memory.
    per_sample : True or function of x, optional
        The leaves of x that have a row for each inner sample, such as weights of samples: all of x,
        or those that `per_sample(x)` returns. `batch` takes their rows together with the data.
    prox : function (x, z, α) or one of `bl.prox`, optional
        That of a convex r(x, ·), smooth or not: argmin_y r(x, y) + ‖y − z‖² / 2α. The inner problem
        is then to minimise inner + r; a projection is the prox of a constraint.
    start : function of x, optional
        y⁰(x), something like y: where every inner loop starts, instead of where the last one ended
        (meta-learning: `start=lambda x: x`). `ITD` differentiates it, `AID` does not: an inner
        solution does not depend on where it was looked for. Other methods refuse it.
    has_aux : bool
        Whether `outer` returns (value, {"accuracy": …}): such numbers are columns of the trace.

    Examples
    --------
    >>> def inner(x, y, X, t):
    ...     return jnp.mean((X @ y - t) ** 2) / 2 + jnp.exp(x) * jnp.sum(y**2) / 2
    >>> def outer(x, y, X, t):
    ...     return jnp.mean((X @ y - t) ** 2) / 2
    >>> problem = bl.Problem(inner, outer, inner_data=(X, t), outer_data=(X, t))
    >>> problem.batch(jnp.arange(8), None).inner_data[0].shape
    (8, 3)
    """

    inner: Callable[..., Any] = eqx.field(converter=as_pytree)
    outer: Callable[..., Any] = eqx.field(converter=as_pytree)
    inner_data: tuple[PyTree, ...] = eqx.field(default=(), converter=as_data("inner_data"))
    outer_data: tuple[PyTree, ...] = eqx.field(default=(), converter=as_data("outer_data"))
    per_sample: Callable[[PyTree], PyTree] | None = eqx.field(
        default=None, static=True, converter=lambda which: as_selection(which)
    )
    prox: Callable[..., Any] | None = eqx.field(default=None, converter=_as_prox, kw_only=True)
    start: Callable[..., Any] | None = eqx.field(default=None, converter=_as_start, kw_only=True)
    has_aux: bool = eqx.field(
        default=False, static=True, kw_only=True, converter=as_flag("has_aux")
    )
    is_equilibrium: bool = eqx.field(
        default=False, static=True, kw_only=True, converter=as_flag("is_equilibrium")
    )
    # Of streams, inner and outer: which of their batches the data are. Made by a run.
    windows: tuple[Window | None, Window | None] = eqx.field(default=(None, None), kw_only=True)

    def __check_init__(self):
        if self.is_equilibrium and self.prox is not None:
            raise ValueError(
                "An equilibrium y = T(x, y) has no prox: put the proximal map into T, e.g. "
                "T = lambda x, y: prox(x, y - step * gradient(x, y), step)."
            )

    @classmethod
    def fixed_point(
        cls,
        T: Callable[..., Any],
        outer: Callable[..., Any],
        inner_data: Any = (),
        outer_data: Any = (),
        *,
        has_aux: bool = False,
    ) -> "Problem":
        """An equilibrium instead of a minimum: y*(x) = T(x, y*(x), *inner_data).

        T returns something like y. As in hypertorch, and in deep equilibrium models.
        """
        return cls(T, outer, inner_data, outer_data, is_equilibrium=True, has_aux=has_aux)

    @property
    def kind(self) -> Kind:
        """What y*(x) is: a smooth "minimum", a "proximal" one, or an "equilibrium"."""
        if self.is_equilibrium:
            return "equilibrium"
        return "minimum" if self.prox is None else "proximal"

    @property
    def inner_samples(self) -> int:
        """The number of inner samples; 0 where no array stands directly in `inner_data`."""
        window = self.windows[0]
        return count_samples(self.inner_data) if window is None else window.samples

    @property
    def outer_samples(self) -> int:
        """The number of outer samples; 0 where no array stands directly in `outer_data`."""
        window = self.windows[1]
        return count_samples(self.outer_data) if window is None else window.samples

    def batch(self, inner_rows: Any = None, outer_rows: Any = None) -> "Problem":
        """The problem on some of its samples: rows are integers, a slice, or None for all of them.

        A batch of a problem is a problem. x keeps its shape: the losses see the rows of what is
        `per_sample`, and derivatives with respect to the others are zero.
        """
        i = as_rows(inner_rows, self.inner_samples, "inner_data")
        j = as_rows(outer_rows, self.outer_samples, "outer_data")
        inner = self.inner
        if self.per_sample is not None and not isinstance(i, AllRows):
            inner = on_rows(inner, i, self.per_sample)
        data = tuple(
            tuple(rows(entry) if is_sampled(entry) else entry for entry in data)
            for rows, data in ((i, self.inner_data), (j, self.outer_data))
        )
        windows = tuple(
            window if isinstance(rows, AllRows) else None
            for rows, window in zip((i, j), self.windows, strict=True)
        )
        return dataclasses.replace(
            self, inner=inner, inner_data=data[0], outer_data=data[1], windows=windows
        )


def refuse_other(problem: Any) -> None:
    """Refuse what is no problem."""
    if not isinstance(problem, Problem):
        raise TypeError(
            f"problem must be a biloop.Problem, got {type(problem).__name__}; two losses make one: "
            f"Problem(inner, outer, inner_data=(…), outer_data=(…))."
        )


def refuse_kind(problem: Problem, kinds: tuple[str, ...], who: str, instead: str) -> None:
    """Refuse, in the name of `who`, a problem that is not of one of these kinds."""
    if problem.kind not in kinds:
        raise TypeError(f"{who} cannot take {_KINDS[problem.kind]}. {instead}")


_KINDS = {
    "minimum": "a problem whose y minimises a smooth g",
    "proximal": "a problem whose y minimises g + r with a proximal map for r",
    "equilibrium": "a problem whose y is the equilibrium y = T(x, y)",
}


def check(problem: Problem, x: PyTree, y: PyTree) -> None:
    """Refuse a problem whose functions cannot be evaluated at (x, y) or return something else."""
    refuse_other(problem)
    for name, function, data in (
        ("inner", problem.inner, problem.inner_data),
        ("outer", problem.outer, problem.outer_data),
    ):
        value = _shape_of(f"{name}(x, y, *{name}_data)", function, x, y, data)
        if name == "outer" and problem.has_aux:
            value = _without_metrics(value)
        if name == "inner" and problem.is_equilibrium:
            _check_like_y(frozen_like(value, y), y, "T(x, y, *inner_data)")
        else:
            _check_scalar(value, name)
    if problem.prox is not None:
        step = (jnp.ones((), jnp.result_type(jax.tree.leaves(y)[0])),)
        after = _shape_of("prox(x, y, step)", problem.prox, x, y, step)
        _check_like_y(frozen_like(after, y), y, "prox(x, y, step)")

    if problem.start is not None:
        first = eqx.filter_eval_shape(lambda start, x: start(thawed(x)), problem.start, x)
        _check_like_y(frozen_like(first, y), y, "start(x)")


_TAKEN = ("k", "value", "hypergradient_norm", "inner_residual", "linear_residual", "gradients")
_TAKEN += ("products", "seconds", "result", "lane")


def _without_metrics(value: Any) -> Any:
    """The value of an outer function that returns metrics as well, once they have been checked."""
    pair = isinstance(value, tuple) and len(value) == 2
    if not pair or not isinstance(value[1], dict) or not value[1]:
        raise TypeError(
            f"With has_aux=True outer must return (value, {{name: number, …}}), got {value!r}."
        )
    for name, metric in value[1].items():
        if not isinstance(name, str) or name in _TAKEN or name.startswith("batch_"):
            raise ValueError(f"A metric cannot be called {name!r}: the trace has such a column.")
        array = isinstance(metric, jax.ShapeDtypeStruct) and metric.shape == ()
        if not (array or isinstance(metric, int | float)):
            raise TypeError(f"The metric {name!r} must be a single number, got {metric!r}.")
    return value[0]


@contextmanager
def evaluating(name: str, x: PyTree, y: PyTree, data: tuple[PyTree, ...]) -> Iterator[None]:
    """What is wrong with a function of (x, y, *data), with the shapes that it was given."""
    try:
        yield
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{name} cannot be evaluated at these x and y: {error}\n"
            f"  x: {_shapes(x)}\n  y: {_shapes(y)}\n  {_last_of(name)}: {_shapes(data)}"
        ) from error


def _shape_of(name: str, function: Any, x: PyTree, y: PyTree, data: tuple[PyTree, ...]) -> Any:
    with evaluating(name, x, y, data):
        return _evaluate.shape(function, x, y, data)


def _last_of(name: str) -> str:
    """inner_data of "inner(x, y, *inner_data)"."""
    return name.rpartition(" ")[2].strip("*)")


def _check_scalar(value: Any, name: str) -> None:
    if not isinstance(value, jax.ShapeDtypeStruct):
        raise TypeError(f"{name} must return a scalar array, got {value!r}.")
    if value.shape != ():
        raise ValueError(
            f"{name} must return a scalar, got shape {value.shape}; take its sum or mean."
        )
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"{name} must return a floating scalar, got dtype {value.dtype}.")


def _check_like_y(value: Any, y: PyTree, name: str) -> None:
    if _signature(value) != _signature(y):
        raise ValueError(
            f"{name} must return something like y, {_shapes(y)}; it returns {_shapes(value)}."
        )


@compiled
def _evaluate(function: Callable[..., Any], x: PyTree, y: PyTree, data: tuple[PyTree, ...]) -> Any:
    """Compiled only in name: what is remembered of its shapes makes the second check free."""
    return function(thawed(x), thawed(y), *data)


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
