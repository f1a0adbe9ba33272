"""What a Python function that JAX does not trace depends on: a callback to the host.

    function          its code, defaults, closure, and the globals that its code names
    module            of those, the attributes that the code names
    object            its state, as `pickle` would save it, and the methods of its class
    library           what comes with Python or was installed goes by its name

What a function itself counts (`global calls`) or collects (`found.append`) is no setting and is
left out.
"""

import dataclasses
import dis
import functools
import sys
import sysconfig
import types
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

# Their objects say in their repr what they are, or hold nothing that matters.
_PLAIN = {"builtins", "jax", "jaxlib", "jax_dataclasses", "numpy", "ml_dtypes"}
_LIBRARIES = _PLAIN | {"optax", "equinox", "lineax", "biloop"}
_STORES = {"STORE_GLOBAL", "STORE_DEREF", "DELETE_GLOBAL", "DELETE_DEREF"}
_COLLECTS = {"append", "extend", "add", "update"}
_WRAPPERS = staticmethod | classmethod | types.MethodType


def is_plain(thing: Any) -> bool:
    """Whether its repr says all."""
    return type(thing).__module__.partition(".")[0] in _PLAIN


def parts_of_function(function: Any) -> Any:
    """What a callable depends on."""
    if isinstance(function, functools.partial):
        return function.func, function.args, function.keywords
    if isinstance(function, _WRAPPERS):
        return function.__func__, getattr(function, "__self__", None)
    if isinstance(function, types.FunctionType):
        return _name(function) if of_a_library(function) else _function(function)
    if (wrapped := getattr(function, "__wrapped__", None)) is not None:  # jit, lru_cache
        return wrapped
    if not of_a_library(type(function)):
        return parts_of_object(function)
    if dataclasses.is_dataclass(function):  # JAX keeps a callback in one
        return {field.name: getattr(function, field.name) for field in fields(function)}
    return [_name(function), getattr(function, "__dict__", None)]


def parts_of_object(thing: Any) -> Any:
    """The state of an object and what its class can do; a class is what is written in it."""
    if isinstance(thing, type):
        return _name(thing) if of_a_library(thing) else [_name(thing), *_written(thing)]
    if isinstance(thing, property):
        return thing.fget, thing.fset
    if isinstance(thing, types.ModuleType):
        return thing.__name__  # what is used of it is found where it is used
    try:
        return type(thing), thing.__reduce_ex__(2)[1:]
    except Exception:  # what cannot be saved, such as a lock or a file
        return type(thing), getattr(thing, "__dict__", None)


def of_a_library(thing: Any) -> bool:
    """Whether a function or a class is none of the user's own."""
    return _installed((getattr(thing, "__module__", None) or "").partition(".")[0])


@functools.cache
def _installed(package: str) -> bool:
    """With Python or beside it, but not a user's module, nor one that has no name."""
    if package in _LIBRARIES or package in sys.stdlib_module_names:
        return True
    module = sys.modules.get(package)
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    folders = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
    return any(Path(p).is_relative_to(f) for p in places if p is not None for f in folders)


def _function(function: types.FunctionType) -> Any:
    codes = list(_codes(function.__code__))
    names = {name for code in codes for name in code.co_names}
    kept = {name for code in codes for name in _kept(code)}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    reached = {name: function.__globals__[name] for name in names & set(function.__globals__)}
    reached |= {name: cell.cell_contents for name, cell in cells if _is_set(cell)}
    used = {name: _used(v, names, ()) for name, v in reached.items() if name not in kept}
    return function.__code__, function.__defaults__, function.__kwdefaults__, used


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code and those of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _kept(code: types.CodeType) -> Iterator[str]:
    """The names of what a code changes: it assigns to them, or calls `name.append`."""
    before = ""
    for instruction in dis.Bytecode(code):
        if instruction.opname in _STORES:
            yield instruction.argval
        if before and str(instruction.argval) in _COLLECTS:
            yield before
        loads = instruction.opname in ("LOAD_GLOBAL", "LOAD_DEREF")
        before = instruction.argval if loads else ""


def _used(value: Any, names: set[str], above: tuple[Any, ...]) -> Any:
    """A value; of a user's module what may be used of it, and of modules in it."""
    if not isinstance(value, types.ModuleType):
        return value
    if value in above or _installed(value.__name__.partition(".")[0]):
        return value.__name__
    found = names & set(vars(value))
    return {name: _used(vars(value)[name], names, (*above, value)) for name in found}


def _written(kind: type) -> list[Any]:
    """The methods and the values of a class and of those that it extends."""
    hidden = lambda name, value: name.startswith("__") and not callable(value)  # noqa: E731
    return [
        {n: v for n, v in vars(base).items() if not hidden(n, v)}
        for base in kind.__mro__
        if not of_a_library(base)
    ]


def _name(thing: Any) -> str:
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    return f"{module}.{name}" if name else repr(thing)


def _is_set(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
