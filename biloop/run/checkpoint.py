"""Checkpoints: the whole state of a run in one file, replaced atomically, refused if it differs."""

import dataclasses
import functools
import hashlib
import os
import types
import warnings
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import PyTree

from biloop.run.checksum import checksum
from biloop.run.processes import ALONE, Processes
from biloop.run.sharding import put, to_host
from biloop.run.trace import read_npz, write_npz

FILE = "checkpoint.npz"
_FORMAT = 1
_LIBRARIES = {"builtins", "jax", "jaxlib", "numpy", "optax", "equinox", "lineax", "biloop"}


class Recorded(Protocol):
    """What a run recorded, or several runs."""

    def columns(self) -> dict[str, np.ndarray]:
        """All rows, as columns."""
        ...


class Checkpoint:
    """Where a run saves its state every so many outer steps; without a folder it does nothing.

    A write that fails loses nothing: the last good file stays, the run goes on, `trouble` says it.
    Of several processes the first one writes and all of them read.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        every: int,
        processes: Processes = ALONE,
        **parts: Any,
    ) -> None:
        """Make and try out the folder, so that an unwritable one is noticed before the run."""
        self.trouble = ""
        self._every = every
        self._processes = processes
        self._path = None
        if folder is None:
            return
        folder = Path(folder)
        processes.together(lambda: processes.first and _try_out(folder))
        self._path = folder / FILE
        self._fingerprint = {name: _digest(part) for name, part in parts.items()}

    def restore(self, like: PyTree) -> tuple[PyTree, dict[str, np.ndarray]] | None:
        """The saved state and columns, or None where there are none."""
        if self._path is None:
            return None
        found = read(self._path, like, self._fingerprint)
        self._processes.require_equal(
            [b"" if found is None else found[1]["k"].tobytes()],
            f"The processes do not find the same checkpoint in {self._path.parent}: it must be on "
            f"a file system that all of them share.",
        )
        return found

    def steps_until_due(self, k: int, steps: int) -> int:
        """How far the run may go before it must save."""
        if self._path is None:
            return steps - k
        return min(steps, (k // self._every + 1) * self._every) - k

    def save(self, k: int, state: PyTree, record: Recorded, at_the_end: bool) -> None:
        """Save if it is due."""
        if self._path is None or not (at_the_end or k % self._every == 0):
            return
        leaves = [to_host(_raw(leaf)) for leaf in jax.tree.leaves(state)]
        if not self._processes.first:
            return
        try:
            write(self._path, leaves, record.columns(), self._fingerprint)
            self.trouble = ""
        except OSError as error:
            self.trouble = f"The checkpoint after {k} steps was not written: {error}."
            warnings.warn(f"{self.trouble} The run goes on.", RuntimeWarning, stacklevel=3)


def _try_out(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / f".probe.{os.getpid()}"
    probe.touch()
    probe.unlink()


def write(
    path: Path,
    leaves: list[np.ndarray],
    columns: dict[str, np.ndarray],
    fingerprint: dict[str, str],
) -> None:
    """Replace the checkpoint by the leaves of this state and the trace so far."""
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
            f"was passed now. Use another folder, or delete the file to start anew."
        )
    leaves = [
        np.frombuffer(arrays[f"leaf {i}"].tobytes(), jnp.dtype(dtype)).reshape(shape)
        for i, (dtype, shape) in enumerate(meta["leaves"])
    ]
    prefix = "column "
    columns = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
    old, structure = jax.tree.flatten(like)
    restored = [_in_place_of(*pair) for pair in zip(old, leaves, strict=True)]
    return jax.tree.unflatten(structure, restored), columns


def _in_place_of(old: Any, data: np.ndarray) -> jax.Array:
    """The saved data, on the devices where the old array lies."""
    sharding = old.sharding if isinstance(old, jax.Array) else None
    array = put(data, sharding) if isinstance(sharding, NamedSharding) else jnp.asarray(data)
    return jax.random.wrap_key_data(array, impl=jax.random.key_impl(old)) if _is_key(old) else array


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _raw(leaf: Any) -> Any:
    """Random keys have no NumPy form but their data."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _digest(part: Any) -> str:
    """A digest of settings, of the bits of arrays and of the code of functions."""
    hasher = hashlib.blake2b(digest_size=16)
    seen: dict[int, Any] = {}  # holds what it has seen, or an address might be used again

    def feed(thing: Any) -> None:
        hasher.update(type(thing).__qualname__.encode())
        if isinstance(thing, str | bytes | int | float | complex | types.NoneType):
            hasher.update(repr(thing).encode())
            return
        if id(thing) in seen:  # functions may refer to themselves
            return
        seen[id(thing)] = thing
        if isinstance(thing, jax.Array | np.ndarray | np.generic):
            hasher.update(f"{thing.shape}{thing.dtype}".encode())
            # Data may lie on many devices and hosts, and stay there.
            bits = np.asarray(checksum(_raw(thing))) if isinstance(thing, jax.Array) else thing
            hasher.update(bits.tobytes())
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
        cells = [cell.cell_contents for cell in thing.__closure__ or () if _is_set(cell)]
        return [thing.__code__, thing.__defaults__, thing.__kwdefaults__, cells, _globals(thing)]
    if isinstance(thing, types.CodeType):
        return [thing.co_code, thing.co_names, thing.co_consts]
    if isinstance(thing, types.MethodType):
        return [thing.__func__, thing.__self__]
    if dataclasses.is_dataclass(thing):
        return [getattr(thing, field.name, None) for field in dataclasses.fields(thing)]
    wrapped = getattr(thing, "__wrapped__", None)  # by jax.jit and the like
    if isinstance(wrapped, types.FunctionType):
        return [] if _of_a_library(wrapped) else [wrapped]
    if isinstance(thing, type | types.ModuleType) or _of_a_library(type(thing)):
        return []  # what libraries keep in their objects changes from process to process
    return [getattr(thing, "__dict__", {})]


def _of_a_library(thing: Any) -> bool:
    return thing.__module__.partition(".")[0] in _LIBRARIES


def _is_set(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _globals(function: types.FunctionType) -> dict[str, Any]:
    """The module's constants and functions that a user's function mentions."""
    if _of_a_library(function):
        return {}
    mentioned = {n: function.__globals__.get(n) for n in function.__code__.co_names}
    return {n: v for n, v in mentioned.items() if not isinstance(v, type | types.ModuleType)}
