"""Checkpoints: the whole state of a run in one file, replaced atomically, refused if it differs."""

import dataclasses
import functools
import hashlib
import os
import types
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop.record import Record
from biloop.trace import read_npz, write_npz

FILE = "checkpoint.npz"
_FORMAT = 1


class Checkpoint:
    """Where a run saves its state every so many outer steps; without a folder it does nothing.

    A write that fails loses nothing: the last good file stays, the run goes on, `trouble` says it.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, every: int, **parts: Any) -> None:
        """Make and try out the folder, so that an unwritable one is noticed before the run."""
        self.trouble = ""
        self._every = every
        self._path = None
        if folder is None:
            return
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe.{os.getpid()}"
        probe.touch()
        probe.unlink()
        self._path = folder / FILE
        self._fingerprint = {name: _digest(part) for name, part in parts.items()}

    def restore(self, like: PyTree) -> tuple[PyTree, dict[str, np.ndarray]] | None:
        """The saved state and columns, or None where there are none."""
        return None if self._path is None else read(self._path, like, self._fingerprint)

    def steps_until_due(self, k: int, steps: int) -> int:
        """How far the run may go before it must save."""
        if self._path is None:
            return steps - k
        return min(steps, (k // self._every + 1) * self._every) - k

    def save(self, k: int, state: PyTree, record: Record, at_the_end: bool) -> None:
        """Save if it is due."""
        if self._path is None or not (at_the_end or k % self._every == 0):
            return
        try:
            write(self._path, state, record.columns(), self._fingerprint)
            self.trouble = ""
        except OSError as error:
            self.trouble = f"The checkpoint after {k} steps was not written: {error}."
            warnings.warn(f"{self.trouble} The run goes on.", RuntimeWarning, stacklevel=3)


def write(
    path: Path, state: PyTree, columns: dict[str, np.ndarray], fingerprint: dict[str, str]
) -> None:
    """Replace the checkpoint by this state and the trace so far."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
    # Bytes, not numbers: NumPy's format has no bfloat16, and a resumed run must end in equal bits.
    arrays = {f"leaf {i}": np.frombuffer(leaf.tobytes(), np.uint8) for i, leaf in enumerate(leaves)}
    arrays |= {f"column {name}": column for name, column in columns.items()}
    meta = {
        "format": _FORMAT,
        "leaves": [[str(leaf.dtype), list(leaf.shape)] for leaf in leaves],
        "fingerprint": fingerprint,
    }
    write_npz(path, arrays, meta)


def read(
    path: Path, like: PyTree, fingerprint: dict[str, str]
) -> tuple[PyTree, dict[str, np.ndarray]] | None:
    """The state and the trace of the checkpoint, or None where there is none.

    A damaged checkpoint, or one of another run, is an error and stays where it is.
    """
    try:
        arrays, meta = read_npz(path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ValueError(f"{error}. Delete it to start the run anew.") from error
    if meta.get("format") != _FORMAT:
        raise ValueError(
            f"{path} has checkpoint format {meta.get('format')}, this version of biloop writes "
            f"{_FORMAT}. Finish the run with the version that started it, or delete the file."
        )
    different = [
        part for part, digest in fingerprint.items() if meta["fingerprint"][part] != digest
    ]
    if different:
        raise ValueError(
            f"{path} belongs to another run, with another {' and another '.join(different)} than "
            f"was passed to solve. Use another folder, or delete the file to start anew."
        )
    leaves = [
        jnp.asarray(np.frombuffer(arrays[f"leaf {i}"].tobytes(), jnp.dtype(dtype)).reshape(shape))
        for i, (dtype, shape) in enumerate(meta["leaves"])
    ]
    prefix = "column "
    columns = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
    return jax.tree.unflatten(jax.tree.structure(like), leaves), columns


def _digest(part: Any) -> str:
    """A digest of settings, of the bits of arrays and of the code of functions."""
    hasher = hashlib.blake2b(digest_size=16)
    seen: set[int] = set()

    def feed(thing: Any) -> None:
        hasher.update(type(thing).__qualname__.encode())
        if isinstance(thing, str | bytes | int | float | complex | types.NoneType):
            hasher.update(repr(thing).encode())
            return
        if id(thing) in seen:  # functions may refer to themselves
            return
        seen.add(id(thing))
        if isinstance(thing, jax.Array | np.ndarray | np.generic):
            hasher.update(f"{jnp.shape(thing)}{jnp.result_type(thing)}".encode())
            # Data that lie on other hosts are told apart by shape alone.
            if getattr(thing, "is_fully_addressable", True):
                hasher.update(np.asarray(thing).tobytes())
        for component in _components(thing):
            feed(component)

    feed(part)
    return hasher.hexdigest()


def _components(thing: Any) -> list[Any]:
    """What a thing is made of. Constants hide in closures: optax keeps its step sizes there."""
    if isinstance(thing, tuple | list):
        return list(thing)
    if isinstance(thing, dict):
        return [part for item in thing.items() for part in item]
    if isinstance(thing, functools.partial):
        return [thing.func, thing.args, thing.keywords]
    if isinstance(thing, types.FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        return [thing.__code__, thing.__defaults__, thing.__kwdefaults__, *cells]
    if isinstance(thing, types.CodeType):
        return [thing.co_code, thing.co_names, thing.co_consts]
    if isinstance(thing, types.MethodType):
        return [thing.__func__, thing.__self__]
    if dataclasses.is_dataclass(thing):
        return [getattr(thing, field.name, None) for field in dataclasses.fields(thing)]
    return []
