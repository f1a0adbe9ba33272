"""What each run is given: the settings of the call with the values of one position put in."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop.methods import ITD, Growing, Method
from biloop.outer import as_outer_step
from biloop.problem.variables import as_variable
from biloop.run.step import Settings
from biloop.schedules import Schedule
from biloop.schedules.arguments import LONGEST, as_function, nearest
from biloop.sweeps.axes import SEED, Axis, positions
from biloop.sweeps.paths import all_paths, replaced, value_at
from biloop.vectors import all_finite

_SEEDED = ("problem", "x0", "y0", "v0")  # what may be a function of the seed


class Cell(NamedTuple):
    """The arguments of one run; as a pytree, its leaves are what cells share or differ in."""

    problem: Any
    method: Any
    outer: Any
    x0: PyTree
    y0: PyTree
    v0: PyTree

    @property
    def settings(self) -> Settings:
        """What the steps of a run need: not its start."""
        return Settings(self.problem, self.method, self.outer)


def make_cells(base: Cell, axes: Sequence[Axis], check: Callable[[Any, Any], None]) -> list[Cell]:
    """The cells of the grid, the last axis fastest. What two of them share is one object.

    `check` refuses what is no problem or no method.
    """
    _check_seeds(base, axes)
    build = _Builder(base, axes, check)
    return [build(position) for position in positions(axes)]


class _Builder:
    """From positions to cells, with a memory of everything that was made on the way."""

    def __init__(self, base: Cell, axes: Sequence[Axis], check: Callable[[Any, Any], None]) -> None:
        self._base, self._axes, self._check = base, axes, check
        self._made: dict[Any, tuple[Any, Any]] = {}
        self._first: dict[int, Any] = {}

    def __call__(self, position: tuple[int, ...]) -> Cell:
        chosen = {
            path: value
            for axis, i in zip(self._axes, position, strict=True)
            for path, value in zip(axis.paths, axis.values[i], strict=True)
        }
        seed = chosen.pop(SEED, None)
        whole = {path: chosen.pop(path) for path in Cell._fields if path in chosen}
        cell = self._base._replace(**whole)
        # Functions of the seed come first, so that the other paths lead into what they return.
        cell = cell._replace(**{n: self._once(_draw, getattr(cell, n), seed) for n in _SEEDED})
        self._check(cell.problem, cell.method)
        if isinstance(cell.method, Growing) and cell.method.takes_batches(cell.problem):
            raise TypeError(
                "auto(batch=…) goes on with all rows when it is time, which runs side by side "
                "cannot do: call solve for each, or give auto(), or a scheme such as soba."
            )
        if seed is not None and cell.method.sampled is not None:
            cell = cell._replace(method=self._once(with_seed, cell.method, seed))
        if cell.outer is None:
            raise TypeError("outer is missing: give outer=0.1, or put 'outer' on an axis.")
        cell = cell._replace(outer=self._once(as_outer_step, cell.outer))
        for path, value in chosen.items():
            cell = self._put(cell, path, value)
        return cell._replace(
            **{
                name: self._once(_start, getattr(cell, name), name)
                for name in ("x0", "y0", "v0")
                if name != "v0" or cell.v0 is not None
            }
        )

    def _put(self, cell: Cell, path: str, value: Any) -> Cell:
        inside = full_path(path)
        try:
            here = value_at(cell, inside)
        except KeyError:
            written = [p.removeprefix(".").removeprefix("method.") for p in all_paths(cell)]
            raise ValueError(
                f"There is no {path!r} to vary; the nearest path is {nearest(path, written)!r}."
            ) from None
        loop_size = isinstance(here, Schedule) and _room_is_dynamic(cell.method)
        argument = self._once(_as_argument, value, loop_size)
        try:
            return replaced(cell, inside, argument)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{path!r} cannot be {_shown(value)}: {error}") from error

    def _once(self, make: Callable[..., Any], thing: Any, *more: Any) -> Any:
        """make(thing, *more), and the same object when it is asked for again."""
        key = make, id(thing), *more
        if key not in self._made:
            made = make(thing, *more)
            if make is _draw and made is not thing:
                made = _share(made, self._first.setdefault(id(thing), made))
            self._made[key] = thing, made  # holds the thing, or its address might be used again
        return self._made[key][1]


def full_path(path: str) -> str:
    """From the root, a cell. A path that names none of its parts leads into the method."""
    path = path.replace('"', "'")
    head = path.replace("[", ".").partition(".")[0]
    return f".{path}" if head in Cell._fields else f".method.{path}"


def is_function(part: Any) -> bool:
    """Whether a part of the call is a function of the seed; models are callable, but pytrees."""
    return callable(part) and not isinstance(part, eqx.Module)


def _check_seeds(base: Cell, axes: Sequence[Axis]) -> None:
    given = dict(base._asdict())
    for axis in axes:
        for i, path in enumerate(axis.paths):
            if path in given:
                seeded = [e[i] for e in axis.values if is_function(e[i]) or _draws(e[i])]
                given[path] = seeded[0] if seeded else None
    functions = [name for name in _SEEDED if is_function(given[name])]
    for name in functions:
        as_function(name, "the seed", 1)(given[name])
    functions += ["method"] if _draws(given["method"]) else []
    seeded = any(SEED in axis.paths for axis in axes)
    if functions and functions != ["method"] and not seeded:
        raise TypeError(
            f"{functions[0]} is a function of the seed: give the seeds, e.g. seeds=range(5)."
        )
    if seeded and not functions:
        raise TypeError(
            "seeds were given, but nothing depends on them: pass problem, x0 or y0 as a function "
            "of the seed, e.g. x0=lambda seed: jax.random.normal(jax.random.key(seed), (30,))."
        )


def _draws(method: Any) -> bool:
    return isinstance(method, Method) and method.sampled is not None


def with_seed(method: Method, seed: int) -> Method:
    """The method with other keys: one of the seed for each that it has."""

    def fold(leaf: Any) -> Any:
        is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return jax.random.fold_in(leaf, seed) if is_key else leaf

    return jax.tree.map(fold, method)


def _draw(part: Any, seed: int | None) -> Any:
    return part(seed) if is_function(part) else part


def _share(tree: PyTree, first: PyTree) -> PyTree:
    """`tree` with the leaves of `first` wherever they are equal."""
    if jax.tree.structure(tree) != jax.tree.structure(first):
        return tree
    return jax.tree.map(lambda leaf, other: other if _equal(leaf, other) else leaf, tree, first)


def _equal(a: Any, b: Any) -> bool:
    if not (eqx.is_array(a) and eqx.is_array(b)):
        return a is b
    return a.shape == b.shape and a.dtype == b.dtype and bool(jnp.array_equal(a, b))


def _start(tree: PyTree, name: str) -> PyTree:
    variable = as_variable(tree, name)
    if not all_finite(variable):
        raise ValueError(f"{name} has entries that are NaN or infinite.")
    return variable


def _room_is_dynamic(method: Any) -> bool:
    """ITD without `max_steps` reserves memory for its iterates when it is compiled."""
    return not (isinstance(method, ITD) and method.max_steps is None)


def _as_argument(value: Any, loop_size: bool) -> Any:
    """Arrays are put on the device once; as an argument, a loop size compiles for all sizes."""
    count = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if loop_size and count and 0 <= value <= LONGEST:  # others are refused as they are
        return jnp.asarray(value, jnp.int32)
    of_numbers = lambda v: isinstance(v, np.ndarray) and v.dtype != object  # noqa: E731
    return jax.tree.map(lambda v: jnp.asarray(v) if of_numbers(v) else v, value)


def _shown(value: Any) -> str:
    return repr(value) if np.ndim(value) == 0 else f"an array of shape {np.shape(value)}"
