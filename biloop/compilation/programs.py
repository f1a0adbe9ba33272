"""Functions of pytrees as compiled programs: arrays are arguments, everything else is compiled in.

A call with new functions, settings or shapes compiles; one with new numbers does not. The programs
of a function are bounded in number, so that what is not used any more is freed.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, overload
from weakref import WeakKeyDictionary

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun

from biloop.compilation.effort import Often, Option, options
from biloop.compilation.products import Target, rearrange, rearranges

P = ParamSpec("P")
T = TypeVar("T")

KEPT = 16
"""How many programs of one function are kept: those that were used last."""


@overload
def compiled(function: Callable[P, T]) -> "Compiled[P, T]": ...
@overload
def compiled(
    *, donate: Iterable[str] = (), often: Often = "long"
) -> "Callable[[Callable[P, T]], Compiled[P, T]]": ...
def compiled(function: Any = None, *, donate: Iterable[str] = (), often: Often = "long") -> Any:
    """A function of pytrees, compiled; arguments named in `donate` may be overwritten by results.

    What was donated must not be used again: its memory is that of the results. What does not run
    `often` is compiled with less effort. Write `@compiled`, or `@compiled(donate=["state"])`.
    """
    if function is None:
        return functools.partial(Compiled, donate=tuple(donate), often=often)
    return Compiled(function, tuple(donate))


class Compiled(Generic[P, T]):
    """A function as compiled programs, one for each set of things that are not arrays."""

    def __init__(
        self, function: Callable[P, T], donate: tuple[str, ...] = (), often: Often = "long"
    ) -> None:
        """Nothing is compiled yet."""
        functools.update_wrapper(self, function)
        self.function = function
        self._often: Often = often
        self._signature = inspect.signature(function)
        self._names = tuple(self._signature.parameters)
        self._donate = donate
        if unknown := set(donate) - set(self._names):
            raise TypeError(f"{function.__name__} has no argument {', '.join(sorted(unknown))}.")
        self._program = functools.lru_cache(KEPT)(functools.partial(_make, function))
        # Of each program: what it was compiled for, and the shapes of its results.
        self._ready: WeakKeyDictionary[Any, set] = WeakKeyDictionary()
        self._shapes: WeakKeyDictionary[Any, dict] = WeakKeyDictionary()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the program for these arguments; if there is none, compile it first."""
        program, donated, kept = self._find(*args, **kwargs)
        return _uncovered(program(donated, kept))

    def compile(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Compile the program for these arguments, unless there is one, and run nothing."""
        program, donated, kept = self._find(*args, **kwargs)
        ready = self._ready.setdefault(program, set())
        kinds = _setting(), tuple(map(_kind, donated + kept))
        if kinds not in ready:  # lowering takes time even where there is a program
            program.lower(donated, kept).compile()
            ready.add(kinds)

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> jax.stages.Lowered:
        """The program for these arguments as XLA gets it; `compile` and calls use it again."""
        program, donated, kept = self._find(*args, **kwargs)
        return program.lower(donated, kept)

    def shape(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The shapes and dtypes of the result: traced, unless it was before, and never compiled."""
        (constants, given), (others, rest) = map(_split, self._bound(*args, **kwargs))
        program = self._program(constants, others, _AS_IT_IS)
        shapes = self._shapes.setdefault(program, {})
        kinds = _setting(), tuple(map(_kind, given)), tuple(map(_kind, rest))
        if kinds not in shapes:  # JAX remembers them too, and takes long to find them
            shapes[kinds] = _uncovered(program.eval_shape(given, rest))
        return shapes[kinds]

    def _find(self, *args: Any, **kwargs: Any) -> tuple[Any, list, list]:
        """The program, the arrays that it may overwrite, and the others."""
        (constants, given), (others, rest) = map(_split, self._bound(*args, **kwargs))
        return self._program(constants, others, self._form(given + rest)), given, rest

    def _form(self, arrays: list) -> "_Form":
        """How a program with these arguments is compiled."""
        # Inside another program it is compiled with that.
        inside = any(issubclass(kind, Tracer) for kind in set(map(type, arrays)))
        target = _target(arrays)
        effort = () if inside else options(target, arrays, self._often)
        return _Form(target if rearranges(target) else None, effort)

    def _bound(self, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arguments by name: those that are donated, and the others."""
        if kwargs or len(args) < len(self._names):
            kept = dict(self._signature.bind(*args, **kwargs).arguments)
        else:  # in a tenth of the time
            kept = dict(zip(self._names, args, strict=True))
        return {name: kept.pop(name) for name in self._donate if name in kept}, kept


def _setting() -> tuple:
    """What the types in a program depend on beside its arguments."""
    config: Any = jax.config
    return (
        config.jax_enable_x64,
        config.jax_numpy_dtype_promotion,
        config.jax_numpy_rank_promotion,
    )


def _kind(array: Any) -> tuple:
    """What JAX compiles for: the type of an array, and where it lies if it is bound to a place."""
    there = isinstance(array, jax.Array) and not isinstance(array, Tracer)
    place = array.sharding if there and array.committed else None
    return array.shape, array.dtype, getattr(array, "weak_type", False), place


class _Form(NamedTuple):
    """Where products are rearranged for, if anywhere, and what XLA is told."""

    target: Target | None
    options: tuple[Option, ...]


_AS_IT_IS = _Form(None, ())


class _Constants(NamedTuple):
    """A pytree without its arrays: what is compiled in."""

    structure: Any
    is_array: tuple[bool, ...]
    leaves: tuple
    types: tuple[type, ...]  # or 1, 1.0 and True would be given the same program


def _split(tree: Any) -> tuple[_Constants, list]:
    """What is compiled in, and the arrays."""
    leaves, structure = jax.tree.flatten(tree)
    is_array = tuple([_is_of_arrays(type(leaf)) or eqx.is_array(leaf) for leaf in leaves])
    if all(is_array):
        return _Constants(structure, is_array, (), ()), leaves
    arrays = list(compress(leaves, is_array))
    others = tuple(leaf for leaf, array in zip(leaves, is_array, strict=True) if not array)
    return _Constants(structure, is_array, others, tuple(map(type, others))), arrays


@functools.lru_cache(64)
def _is_of_arrays(kind: type) -> bool:
    """Whether all of a type are arrays, which a look at each of them takes longer to say."""
    return issubclass(kind, jax.Array | np.ndarray | np.generic)


def _joined(constants: _Constants, arrays: Sequence) -> Any:
    """The pytree that was split."""
    others, given = iter(constants.leaves), iter(arrays)
    leaves = [next(given if array else others) for array in constants.is_array]
    return jax.tree.unflatten(constants.structure, leaves)


def _make(function: Callable, donated: _Constants, kept: _Constants, form: _Form) -> Any:
    """The program for these constants: a function of arrays alone."""
    target, effort = form

    def program(given: list, rest: list) -> Any:
        return _covered(function(**_joined(donated, given), **_joined(kept, rest)))

    def rearranged(given: list, rest: list) -> Any:
        assert target is not None
        traced, shapes = jax.make_jaxpr(program, return_shape=True)(given, rest)
        # The function is traced once: this binds the equations of its outermost level alone.
        results = jaxpr_as_fun(rearrange(traced, target))(*given, *rest)
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    chosen = program if target is None else rearranged
    chosen.__name__ = function.__name__  # by which profiles and logs call the program
    return jax.jit(chosen, donate_argnums=0, compiler_options=dict(effort) or None)


def _target(arrays: list) -> Target:
    """Where the program will run: where its arguments have been put, or else by default."""
    for array in arrays:
        known = isinstance(array, jax.Array) and not isinstance(array, Tracer)
        if known and array.committed:
            devices = array.sharding.device_set
            return Target(next(iter(devices)).platform, len(devices))
    device = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    platform = getattr(device, "platform", device) or jax.default_backend()
    return Target(platform, 1)


@jax.tree_util.register_static
class _Cover:
    """A result that is no array."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _covered(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf if eqx.is_array(leaf) else _Cover(leaf), tree)


def _uncovered(tree: Any) -> Any:
    if not _has_covers(jax.tree.structure(tree)):
        return tree
    leaves, structure = jax.tree.flatten(tree, is_leaf=_is_cover)
    return jax.tree.unflatten(structure, [a.value if _is_cover(a) else a for a in leaves])


@functools.lru_cache(64)
def _has_covers(structure: Any) -> bool:
    tree = jax.tree.unflatten(structure, [0] * structure.num_leaves)
    return any(map(_is_cover, jax.tree.leaves(tree, is_leaf=_is_cover)))


def _is_cover(leaf: Any) -> bool:
    return isinstance(leaf, _Cover)
