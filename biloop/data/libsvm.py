"""The text format of LIBSVM: a line per sample, its label and then index:value, indices from 1.

Features that are not written are 0. Files may be packed by bzip2 or gzip, whatever their name says.
"""

import bz2
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

import numpy as np

_OPEN = {b"BZh": bz2.open, b"\x1f\x8b\x08": gzip.open}
_PER_ENTRY = 64  # bytes that an index and its value may take, more than any number needs


def read_libsvm(path: Path, rows: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """X (rows × features, float32) and the labels (float64) of a file of just so many samples.

    It is read line by line and no further than to the first mistake or superfluous line.
    """
    X, labels = np.zeros((rows, features), np.float32), np.zeros(rows)
    found, longest = 0, _PER_ENTRY * (features + 1)
    try:
        with _opened(path) as stream:
            while line := stream.readline(longest):
                if len(line) == longest:
                    raise ValueError(f"is no file of samples: line {found + 1} has no end")
                if not line.strip():
                    continue
                if found == rows:
                    raise ValueError(f"is too long: more than {rows} samples")
                labels[found] = _read_line(line, X[found], found + 1)
                found += 1
    except (EOFError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the disk; what unpacks has no number
        raise ValueError(f"{path} is truncated or damaged: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path} {error}") from error
    if found < rows:
        raise ValueError(f"{path} is truncated: {found} of {rows} samples")
    return X, labels


def _read_line(line: bytes, row: np.ndarray, number: int) -> float:
    """Fill a row of X and return the label."""
    try:
        label, *entries = line.split()
        last = 0
        for entry in entries:
            index, _, value = entry.partition(b":")
            j = int(index)
            if not last < j <= len(row):
                raise ValueError(f"index {j} after {last} of {len(row)}")
            row[j - 1], last = float(value), j
        result = float(label)
    except ValueError as error:
        raise ValueError(f"is no file of samples: line {number}: {error}") from None
    if not (np.isfinite(result) and np.isfinite(row).all()):
        raise ValueError(f"has values that are not finite in line {number}")
    return result


@contextmanager
def _opened(path: Path) -> Iterator[BufferedIOBase]:
    with path.open("rb") as file:
        packing = _OPEN.get(file.read(3))
        file.seek(0)
        if packing is None:
            yield file
        else:
            with packing(file) as unpacked:
                yield unpacked
