"""What is not said has the value that it had: the defaults of all that users call are written down.

Another default is a change that users notice. Where one is meant to change, write it down anew,

    python -m tests.test_defaults > tests/defaults.txt

and say so in CHANGELOG.md.
"""

import difflib
import enum
import importlib
import inspect
from pathlib import Path

import pytest

import biloop as bl

WRITTEN = Path(__file__).with_name("defaults.txt")


def shown(value):
    """As it would be written, without addresses: functions and types by their names."""
    return getattr(value, "__qualname__", None) or repr(value)


def defaults(module, name):
    """A line for each public callable with defaults, in this module and those it shows."""
    for key in sorted(getattr(module, "__all__", ())):
        thing = getattr(module, key)
        if inspect.ismodule(thing):
            if thing.__name__.startswith(f"{module.__name__}."):
                yield from defaults(thing, f"{name}.{key}")
        elif callable(thing) and not isinstance(thing, enum.EnumMeta):
            parameters = inspect.signature(thing).parameters.values()
            given = [f"{p.name}={shown(p.default)}" for p in parameters if p.default is not p.empty]
            if given:
                yield f"{name}.{key}({', '.join(given)})"


def everything():
    pytest.importorskip("sklearn")
    estimators = importlib.import_module("biloop.sklearn")
    return [*defaults(bl, "bl"), *defaults(estimators, "bl.sklearn")]


def test_defaults_are_those_that_are_written_down():
    differs = difflib.ndiff(WRITTEN.read_text(encoding="utf-8").splitlines(), everything())
    changed = [line for line in differs if line[0] in "+-"]
    assert not changed, "\n".join(changed)


if __name__ == "__main__":
    print("\n".join(everything()))
