"""The idx format of MNIST: a header that tells the shape, then unsigned bytes.

0, 0, 8 (the code of bytes), the number of axes, the length of each axis in 4 bytes, the values.
Numbers are big-endian and the last axis runs fastest. Files may be gzipped.
"""

import gzip
import math
import os
import struct
import tempfile
import zlib
from io import BufferedIOBase
from pathlib import Path

import numpy as np

_BYTES = b"\x00\x00\x08"
_GZIP = b"\x1f\x8b"


def encode(array: np.ndarray) -> bytes:
    """The contents of an idx file."""
    if array.dtype != np.uint8 or not 1 <= array.ndim <= 255:
        raise ValueError(
            "an idx file is written from an array of uint8 with at least one axis, "
            f"got {array.dtype} of shape {array.shape}."
        )
    header = struct.pack(f">{array.ndim}I", *array.shape)
    return _BYTES + bytes([array.ndim]) + header + array.tobytes()


def decode(stream: BufferedIOBase, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """The array in the contents of an idx file, which has this shape if one is given; read-only.

    The header is judged before anything else is read, and no more is read than it promises: what is
    packed may unpack to a thousand times its size.
    """
    begin = stream.read(4)
    if begin[:3] != _BYTES or len(begin) < 4:
        raise ValueError(
            f"is no idx file of bytes: it begins with 0x{begin.hex()}, not with 0x000008"
        )
    lengths = stream.read(4 * begin[3])
    if len(lengths) < 4 * begin[3]:
        raise ValueError(
            f"is truncated: its header ends after {4 + len(lengths)} of {4 + 4 * begin[3]} bytes"
        )
    found = struct.unpack(f">{begin[3]}I", lengths)
    if shape is not None and found != shape:
        raise ValueError(f"holds an array of shape {found} instead of {shape}")
    promised = math.prod(found)
    content = stream.read(promised)
    if len(content) < promised:
        raise ValueError(
            f"is truncated: its header promises {promised} bytes, {len(content)} follow"
        )
    if stream.read(1):
        raise ValueError(f"is too long: its header promises {promised} bytes, more follow")
    return np.frombuffer(content, np.uint8).reshape(found)


def read_idx(path: Path, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """The array in an idx file, gzipped or not, whatever its name says; see `decode`."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            if not packed:
                return decode(file, shape)
            with gzip.open(file) as unpacked:
                return decode(unpacked, shape)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is truncated or damaged: {error}") from error
    except (ValueError, MemoryError) as error:
        raise ValueError(f"{path} {error}") from error


def write_idx(path: Path, array: np.ndarray) -> None:
    """Write an array of bytes so that `path` never holds anything but a complete file."""
    content = encode(array)
    # A new file under a name that nobody can foresee: nothing that lies there is written to.
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
