"""The files of a tree, parsed; a text that was seen before, in another copy of it, only once."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path


@functools.cache
def _parse(text: str) -> ast.Module:
    return ast.parse(text)


def parse(path: Path) -> ast.Module:
    return _parse(path.read_text(encoding="utf-8"))


def sources(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        yield path, parse(path)
