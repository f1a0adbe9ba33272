"""Files that are complete or not there: arrays and metadata as npz, written beside and renamed."""

import json
import os
import re
import secrets
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np


def write_npz(path: Path, arrays: Mapping[str, np.ndarray], meta: dict[str, Any]) -> Path:
    """Write arrays and metadata so that `path` never holds anything but a complete file."""
    contents: dict[str, Any] = {"meta": np.array(json.dumps(meta)), **arrays}
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with create(temporary) as file:
            np.savez(file, **contents)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def read_npz(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what `write_npz` wrote, or say in one sentence why that cannot be done."""
    try:
        with open(path, "rb") as file:
            _refuse_compressed(file)
            with np.load(file, allow_pickle=False) as content:
                arrays = {name: content[name] for name in content.files}
        meta = json.loads(str(arrays.pop("meta")))
        if not isinstance(meta, dict):
            raise ValueError(f"its metadata are of type {type(meta).__name__}")
    except FileNotFoundError:
        raise
    # A file may hold any bytes: zip, zlib, NumPy and json each have errors of their own for that.
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"{path} is damaged or not a file of biloop: {reason}") from error
    return arrays, meta


def create(path: Path) -> BinaryIO:
    """A new file for writing; what is there already, a link included, is left alone."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o666), "wb")


def try_out(folder: Path) -> None:
    """Make the folder if it is not there, and raise unless a file can be written in it."""
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / f".probe.{secrets.token_hex(8)}.tmp"
    create(probe).close()
    probe.unlink()


def remove_leftovers(path: Path) -> None:
    """Remove what a process left that was killed while it wrote `path`."""
    of_ours = re.compile(rf"\.({re.escape(path.name)}|probe)\.[0-9a-f]{{16}}\.tmp")
    for other in path.parent.iterdir():
        if of_ours.fullmatch(other.name) and (other.is_symlink() or other.is_file()):
            with suppress(OSError):  # it may be gone, or belong to somebody else
                other.unlink()


def _refuse_compressed(file: BinaryIO) -> None:
    """We do not compress, and what is compressed may unpack to more than there is memory."""
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{member.filename} is compressed")
    file.seek(0)
