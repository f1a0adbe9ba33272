"""The older rows of a trace on disk: a file of rows of one size, to which others are only appended.

Another file says how many of the rows count and what their checksum is: what a process that was
killed appended after that is overwritten.
"""

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class RowFile:
    """The first `count` rows in a file, and the place where the next ones go."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        self._size, self._checksum = 0, 0

    def append(self, rows: np.ndarray) -> None:
        """Write the rows behind the last one. Unless all of that is done, nothing has changed."""
        content = rows.tobytes()
        # Behind no rows there is a new file: what lies there counts for nothing.
        create = os.O_CREAT if self.count == 0 else 0
        with os.fdopen(os.open(self.path, _FLAGS | create, 0o666), "r+b") as file:
            file.seek(self._size)
            file.write(content)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        self._size += len(content)
        self._checksum = zlib.crc32(content, self._checksum)
        self.count += len(rows)

    def intact(self) -> bool:
        """Whether the rows that count are still there."""
        return self._size <= (self.path.stat().st_size if self.path.exists() else 0)

    def meta(self) -> dict[str, int]:
        """What has to be known to read the rows that count."""
        return {"count": self.count, "checksum": self._checksum}

    def read(self, meta: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
        """The rows for which `meta` was written; the next ones go behind them."""
        count, checksum = int(meta["count"]), int(meta["checksum"])
        size, content = count * dtype.itemsize, b""
        if size:
            with open(self.path, "rb") as file:
                held = os.fstat(file.fileno()).st_size
                if not 0 < size <= held:
                    raise ValueError(f"{self.path.name} has {held} bytes, not {size}")
                content = file.read(size)
        if zlib.crc32(content) != checksum:
            raise ValueError(f"the checksum of {self.path.name} is not the one that was written")
        self.count, self._size, self._checksum = count, size, checksum
        return np.frombuffer(content, dtype)


def as_rows(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Columns as an array of rows."""
    kinds = [(name, column.dtype) for name, column in columns.items()]
    rows = np.empty(len(next(iter(columns.values()))), kinds)
    for name, column in columns.items():
        rows[name] = column
    return rows


def as_columns(*parts: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays of rows, one behind the other, as columns."""
    rows = np.concatenate(parts)
    return {name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names or ()}
