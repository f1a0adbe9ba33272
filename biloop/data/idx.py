"""The idx format of MNIST: a header that tells the shape, then unsigned bytes.

0, 0, 8 (the code of bytes), the number of axes, the length of each axis in 4 bytes, the values.
Numbers are big-endian and the last axis runs fastest. Files may be gzipped.
"""

import gzip
import math
import os
import struct
import zlib
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


def decode(content: bytes) -> np.ndarray:
    """The array in the contents of an idx file, read-only."""
    if content[:3] != _BYTES or len(content) < 4:
        raise ValueError(
            f"is no idx file of bytes: it begins with 0x{content[:4].hex()}, not with 0x000008"
        )
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise ValueError(f"is truncated: its header ends after {len(content)} of {start} bytes")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if (size := len(content) - start) != math.prod(shape):
        raise ValueError(
            f"is {'truncated' if size < math.prod(shape) else 'too long'}: "
            f"its header promises {math.prod(shape)} bytes, {size} follow"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_idx(path: Path) -> np.ndarray:
    """The array in an idx file, gzipped or not, whatever its name says."""
    try:
        content = path.read_bytes()
        return decode(gzip.decompress(content) if content[:2] == _GZIP else content)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is truncated or damaged: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path} {error}") from error


def write_idx(path: Path, array: np.ndarray) -> None:
    """Write an array of bytes so that `path` never holds anything but a complete file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(encode(array))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
