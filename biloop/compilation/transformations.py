"""Optax optimizers that are one object if they do the same, and ones whose numbers are leaves.

An optax transformation is a pair of closures, and `optax.adam(0.01)` makes new ones each time: as
something compiled in, each would be another program. `canonical` finds the one that was made before
in the same way. `Built` keeps the factory and its numbers apart, so that numbers are arguments.
"""

import functools
import reprlib
import types
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jaxtyping import PyTree

KEPT = 256
"""How many transformations are remembered: those that were used last."""


def _as_options(options: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(options, Mapping):
        raise TypeError(
            f"The options of Built must be a mapping, e.g. {{'learning_rate': 0.01}}, got "
            f"{reprlib.repr(options)}."
        )
    return {k: jnp.asarray(v) if isinstance(v, float) else v for k, v in options.items()}


class Built(eqx.Module):
    """factory(**options), built inside the compiled program: other numbers compile nothing.

    `Built(optax.adam, {"learning_rate": 0.01})`. Floats and arrays are leaves; all else (a
    schedule, a flag, an integer) is compiled in.

    Parameters
    ----------
    factory : function
        One of optax.
    options : mapping
        Its arguments by name.

    Examples
    --------
    >>> adam = bl.Built(optax.adam, {"learning_rate": 0.1})
    >>> path = "outer.transformation.options['learning_rate']"
    >>> sweep = bl.sweep(
    ...     problem, x0, y0, bl.ITD(bl.GradientDescent(step_size=0.3, steps=5)), outer=adam,
    ...     over={path: [0.1, 0.2]}, steps=3,
    ... )
    >>> [run.status.name for run in sweep.runs]
    ['COMPLETED', 'COMPLETED']
    """

    factory: Callable[..., optax.GradientTransformation] = eqx.field(static=True)
    options: dict[str, Any] = eqx.field(converter=_as_options)

    def __check_init__(self):
        if not callable(self.factory):
            raise TypeError(
                f"The factory of Built must be a function, e.g. optax.adam, got {self.factory!r}."
            )
        made = self._transformation()  # a wrong option is refused by the factory
        if not isinstance(made, optax.GradientTransformation):
            raise TypeError(
                f"{self.factory!r} must return an optax.GradientTransformation, got {made!r}."
            )

    def init(self, params: PyTree) -> PyTree:
        """The state before the first update."""
        with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes
            return self._transformation().init(params)

    def update(
        self, updates: PyTree, state: PyTree, params: PyTree | None = None, value: Any = None
    ) -> tuple[PyTree, PyTree]:
        """What to add to params, and the next state, in the dtypes of the last one."""
        with jax.numpy_dtype_promotion("standard"):
            updates, after = _update(self._transformation(), updates, state, params, value)
        # A number that is an array may be wider than params; one written into the code is not.
        return updates, jax.tree.map(lambda new, old: new.astype(old.dtype), after, state)

    def _transformation(self) -> optax.GradientTransformation:
        with jax.numpy_dtype_promotion("standard"):
            return self.factory(**self.options)


class Made(eqx.Module):
    """An optax transformation as it is, compiled in: one that is made alike is the same program."""

    transformation: optax.GradientTransformation = eqx.field(
        static=True, converter=lambda made: canonical(made)
    )

    def init(self, params: PyTree) -> PyTree:
        """The state before the first update."""
        with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes
            return self.transformation.init(params)

    def update(
        self, updates: PyTree, state: PyTree, params: PyTree | None = None, value: Any = None
    ) -> tuple[PyTree, PyTree]:
        """What to add to params, and the next state. Some transformations want the value, too."""
        with jax.numpy_dtype_promotion("standard"):
            return _update(self.transformation, updates, state, params, value)


def _update(
    transformation: optax.GradientTransformation,
    updates: PyTree,
    state: PyTree,
    params: PyTree | None,
    value: Any,
) -> tuple[PyTree, PyTree]:
    """The update, with the value for those that want it."""
    wants_more = isinstance(transformation, optax.GradientTransformationExtraArgs)
    more = {"value": value} if wants_more and value is not None else {}
    return transformation.update(updates, state, params, **more)


def as_transformation(name: str) -> Callable[[Any], "Made | Built"]:
    """A converter for an optax transformation, or a `Built` one."""

    def convert(given: Any) -> Made | Built:
        if isinstance(given, Made | Built):
            return given
        if isinstance(given, optax.GradientTransformation):
            return Made(given)
        got = " ".join(reprlib.repr(given).split())
        raise TypeError(
            f"The transformation of {name} must be an optax.GradientTransformation, got {got}."
        )

    return convert


def canonical(transformation: optax.GradientTransformation) -> optax.GradientTransformation:
    """The first of all transformations that do the same as this one.

    Two functions do the same if they have the same code and equal things in their closures and
    defaults: constants, arrays and containers by value, functions if they do the same, anything
    else if it is the same object.
    """
    key = _description(transformation)
    first = _FIRST.pop(key, transformation)
    if first is not transformation and _description(first) != key:
        first = transformation  # somebody wrote into an array or a dictionary of the first
    _FIRST[key] = first
    while len(_FIRST) > KEPT:
        _FIRST.popitem(last=False)
    return first


_FIRST: OrderedDict[Hashable, optax.GradientTransformation] = OrderedDict()


class _Itself:
    """A thing that equals itself alone; it is held, or its address might be used again."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.thing is other.thing


def _description(thing: Any, around: tuple[int, ...] = ()) -> Hashable:
    """What a thing is made of: equal for things that do the same.

    `around` are the things that it is in, by their addresses: a function may refer to itself.
    """
    if id(thing) in around:
        return "around", around.index(id(thing))
    describe = functools.partial(_description, around=(*around, id(thing)))
    match thing:
        case _Itself():
            return thing
        case None | bool() | int() | str() | bytes():
            return type(thing), thing
        case float() | complex():
            return type(thing), repr(thing)  # as numbers 0.0 is −0.0, and NaN is not NaN
        case np.ndarray() | np.generic():
            return type(thing), thing.shape, str(thing.dtype), thing.tobytes()
        case jax.Array() if _is_readable(thing):
            return jax.Array, thing.weak_type, describe(np.asarray(thing))
        case tuple() | list():
            return type(thing), *map(describe, thing)
        case dict():
            return dict, *((describe(key), describe(value)) for key, value in thing.items())
        case functools.partial():
            return functools.partial, *map(describe, (thing.func, thing.args, thing.keywords))
        case types.MethodType():
            return types.MethodType, describe(thing.__func__), describe(thing.__self__)
        case types.FunctionType():
            return types.FunctionType, _Itself(thing.__code__), *map(describe, _parts(thing))
    return _Itself(thing)


def _is_readable(array: jax.Array) -> bool:
    if isinstance(array, Tracer) or not array.is_fully_addressable:
        return False
    return not jnp.issubdtype(array.dtype, jax.dtypes.extended)


def _parts(function: types.FunctionType) -> tuple:
    """What a function finds beside its code: defaults, closure, and numbers of its module."""
    cells = function.__closure__ or ()
    try:
        closure = [cell.cell_contents for cell in cells]
    except ValueError:  # one of them is still empty
        closure = list(map(_Itself, cells))
    names = [name for name in _names(function.__code__) if name in function.__globals__]
    found = {name: function.__globals__[name] for name in names}
    # Functions of a module, and what they call in turn, are taken to stay what they are.
    constants = {
        name: _Itself(value) if callable(value) else value for name, value in found.items()
    }
    return function.__defaults__, function.__kwdefaults__, closure, constants


@functools.lru_cache(4096)
def _names(code: types.CodeType) -> tuple[str, ...]:
    """The names that a function, or a function inside it, looks up in its module or in objects."""
    inside = (_names(const) for const in code.co_consts if isinstance(const, types.CodeType))
    return tuple(dict.fromkeys(sum(inside, code.co_names)))
