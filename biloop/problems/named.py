"""A problem by name: one that ships, `file.py:name`, or `package.module:name`."""

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from jaxtyping import PyTree

from biloop.problem import Problem, check
from biloop.problem.variables import as_variable
from biloop.problems.shipped import find


@dataclass(frozen=True, eq=False)
class Loaded:
    """A problem with its start, what it is called, and Python that makes it."""

    name: str
    description: str
    problem: Problem
    x0: PyTree
    y0: PyTree
    instance: Any
    """What has the problem: of one that ships, with its closed forms and measures."""
    python: str


def load(
    name: str, *, seed: int | None = None, x0: str | None = None, y0: str | None = None
) -> Loaded:
    """The problem of this name, checked at its start.

    One that ships, see `catalogue`; the seed, 0 unless given, decides what is random about it. Or
    `file.py:name`, `package.module:name`: after the colon stands what to take from there, a
    `Problem`, whose start are the `x0` and `y0` beside it (or what these arguments name);
    something with attributes problem, x0 and y0; a tuple of them; or a function without arguments
    that returns one of the two.

        found = bl.problems.load("ridge")
        run = bl.solve(found.problem, found.x0, found.y0)

    Parameters
    ----------
    name : str
        Of the catalogue, or `file.py:name`, `package.module:name`.
    seed : int, optional
        Of one that ships.
    x0, y0 : str, optional
        The names of the start beside a problem of one's own.

    Returns
    -------
    Loaded
        `problem`, `x0`, `y0`, and what it is called.

    Examples
    --------
    >>> found = bl.problems.load("worst-case")
    >>> found.x0.shape, found.y0.shape
    ((2,), (2,))
    """
    if not isinstance(name, str):
        raise TypeError(
            f"name must be a string such as 'ridge' or 'file.py:problem', got {name!r}."
        )
    where, colon, attribute = name.rpartition(":")
    given = {"seed": seed, "x0": x0, "y0": y0}
    refused = [each for each in (("seed",) if colon else ("x0", "y0")) if given[each] is not None]
    if refused:
        rest = "is not among those that ship" if colon else "has its own start"
        raise ValueError(f"{refused[0]} cannot be given for {name!r}, which {rest}.")
    if not colon:
        return _shipped(name, 0 if seed is None else seed, _python(name, given))
    module = _from_file(Path(where)) if where.endswith(".py") else _from_package(where)
    found = _take(module, attribute, where)
    made = _call(found, name) if callable(found) and not isinstance(found, Problem) else found
    start = _as_start(made, vars(module), name, x0 or "x0", y0 or "y0")
    check(start[0], as_variable(start[1], "x0"), as_variable(start[2], "y0"))
    description = (found.__doc__ or "").strip().partition("\n")[0] if callable(found) else ""
    return Loaded(name, description, *start, instance=made, python=_python(name, given))


def _shipped(name: str, seed: int, python: str) -> Loaded:
    if name.endswith(".py"):
        raise ValueError(f"Say what to take from {name}: {name}:NAME.")
    entry = find(name)
    made = entry.make(seed)
    return Loaded(name, entry.description, made.problem, made.x0, made.y0, made, python)


def _python(name: str, given: Mapping[str, Any]) -> str:
    options = [f"{key}={value!r}" for key, value in given.items() if value is not None]
    return (
        f"found = bl.problems.load({', '.join([repr(name), *options])})\n"
        f"problem, x0, y0 = found.problem, found.x0, found.y0\n"
    )


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert spec is not None  # the name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # As for a script: its neighbours can be imported, and its classes can be found by name.
    sys.path.insert(0, str(path.resolve().parent))
    before = sys.modules.get(path.stem)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
        if before is not None:
            sys.modules[path.stem] = before
    return module


def _from_package(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")  # the folder one is in, as for python -m
    try:
        return importlib.import_module(name)
    except Exception as error:
        kind = type(error).__name__
        raise ValueError(f"The module {name} cannot be imported: {kind}: {error}") from error


def _take(module: ModuleType, attribute: str, where: str) -> Any:
    names = [each for each in vars(module) if not each.startswith("_")]
    if attribute in vars(module):
        return vars(module)[attribute]
    near = difflib.get_close_matches(attribute, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(names) or 'nothing'}."
    raise ValueError(f"{where} has no {attribute!r}{hint}")


def _as_start(
    made: Any, module: Mapping[str, Any], name: str, x0: str, y0: str
) -> tuple[Problem, PyTree, PyTree]:
    """The problem and its start, whichever way they are given."""
    if isinstance(made, Problem):
        for start in (x0, y0):
            if start not in module:
                raise ValueError(
                    f"{name} is a Problem, but there is no {start!r} beside it; define the start, "
                    f"name it with --x0 and --y0, or give a function that returns "
                    f"(problem, x0, y0)."
                )
        return made, module[x0], module[y0]
    named = [getattr(made, part, None) for part in ("problem", "x0", "y0")]
    problem, start_x, start_y = made if isinstance(made, tuple) and len(made) == 3 else named
    if not isinstance(problem, Problem) or start_x is None or start_y is None:
        raise TypeError(
            f"{name} must be a biloop.Problem, or a function that returns (problem, x0, y0) or "
            f"something with these attributes; got {type(made).__name__}."
        )
    return problem, start_x, start_y


def _call(function: Callable[[], Any], name: str) -> Any:
    try:
        return function()
    except Exception as error:
        raise ValueError(f"{name}() failed: {type(error).__name__}: {error}") from error
