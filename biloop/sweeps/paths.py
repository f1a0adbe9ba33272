"""Paths into settings: "inner.step_size", "outer", "problem.inner_data[1]", "x0['bias']"."""

import dataclasses
from collections.abc import Iterator
from typing import Any


def replaced(node: Any, path: str, value: Any) -> Any:
    """A copy of `node` with another value at the path, made by the constructors, which check it."""
    if not path:
        return value
    step, rest = first_step(node, path)
    return _with_child(node, step, replaced(_children(node)[step], rest, value))


def value_at(node: Any, path: str) -> Any:
    """What is there now."""
    if not path:
        return node
    step, rest = first_step(node, path)
    return value_at(_children(node)[step], rest)


def first_step(node: Any, path: str) -> tuple[str, str]:
    """The part of the path that leads to a child of `node`, and the rest; KeyError without one."""
    for step in _children(node):
        rest = path.removeprefix(step)
        if rest != path and rest[:1] in ("", ".", "["):
            return step, rest
    raise KeyError(path)


def all_paths(node: Any, prefix: str = "") -> Iterator[str]:
    """Every path below `node`, as it is written."""
    for step, child in _children(node).items():
        yield prefix + step
        yield from all_paths(child, prefix + step)


def _children(node: Any) -> dict[str, Any]:
    """The parts of a node by the step that leads to them: ".field", "[0]" or "['key']"."""
    if isinstance(node, type):
        return {}
    if dataclasses.is_dataclass(node):
        return {f".{f.name}": getattr(node, f.name) for f in dataclasses.fields(node)}
    if _is_named_tuple(node):
        return {f".{name}": child for name, child in node._asdict().items()}
    if isinstance(node, tuple | list):
        return {f"[{i}]": child for i, child in enumerate(node)}
    if isinstance(node, dict):
        return {f"[{key!r}]": child for key, child in node.items()}
    return {}


def _with_child(node: Any, step: str, child: Any) -> Any:
    if dataclasses.is_dataclass(node):
        return dataclasses.replace(node, **{step[1:]: child})  # pyright: ignore[reportArgumentType]
    if _is_named_tuple(node):
        return node._replace(**{step[1:]: child})
    children = _children(node) | {step: child}
    if isinstance(node, dict):
        return dict(zip(node, children.values(), strict=True))
    return type(node)(children.values())


def _is_named_tuple(node: Any) -> bool:
    return isinstance(node, tuple) and getattr(node, "_fields", None) is not None
