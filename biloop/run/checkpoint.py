"""Checkpoints: the whole state of a run in a folder, to go on from after a kill at any moment.

    checkpoint.npz     the state and the last rows of the trace: each save replaces it as a whole
    checkpoint.rows    the rows before, if there are many: appended to now and then

Each save would otherwise write the whole trace once more. Rows are appended before a state is
written that counts on them, so a kill between the two leaves the old state with its own rows.
"""

import os
import secrets
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop.run.files import read_npz, remove_leftovers, try_out, write_npz
from biloop.run.fingerprint import differences
from biloop.run.processes import ALONE, Processes
from biloop.run.rows import RowFile, as_columns, as_rows
from biloop.run.sharding import in_place_of, to_host
from biloop.run.trace import COLUMNS
from biloop.schedules.arguments import as_folder

FILE = "checkpoint.npz"
ROWS = "checkpoint.rows"
MANY = 1024  # rows from which they go to the second file
_FORMAT = 4


class Recorded(Protocol):
    """What a run recorded, or several runs."""

    def columns(self, since: int = 0) -> dict[str, np.ndarray]:
        """The rows from number `since` on, in the order in which they were recorded."""
        ...


class Saved(NamedTuple):
    """What a checkpoint file holds once it has been checked."""

    steps: int
    author: str
    leaves: list[np.ndarray]
    columns: dict[str, np.ndarray]
    notes: list[Any]
    stage: str


class Checkpoint:
    """Where a run saves its state every so many outer steps; without a folder it does nothing.

    `identity` is the fingerprint of the run: a checkpoint of another one is refused.
    A write that fails loses nothing: the last good file stays, the run goes on, `trouble` says it.
    Of several processes the first one writes and all of them read.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        every: int,
        identity: Mapping[str, str],
        processes: Processes = ALONE,
    ) -> None:
        """Make and try out the folder, so that an unwritable one is noticed before the run."""
        self.trouble = ""
        self.notes: list[Any] = []  # what else a run wants to find again, as JSON has it
        self.stage = ""  # of the run, where what its state is made of changes on the way
        self._every = every
        self._identity = dict(identity)
        self._processes = processes
        found = as_folder("checkpoint")(folder)
        self._path = None if found is None else found / FILE
        self._author = secrets.token_hex(8)  # of this life of the run
        self._inode: int | None = None  # of the file that this run read or wrote last
        if self._path is None:
            return
        path = self._path
        self._rows = RowFile(path.with_name(ROWS))
        processes.together(lambda: processes.first and _prepare(path))

    def restore(
        self, like: Callable[[str], PyTree], steps: int
    ) -> tuple[PyTree, dict[str, np.ndarray]] | None:
        """The saved state and columns, or None where there are none.

        `like` gives a state of the stage in which the run was saved.
        A checkpoint that is damaged, of another run, or of more than the `steps` that the run is
        to make, is an error and stays where it is.
        """
        if self._path is None:
            return None
        path, found = self._path, list[Saved]()
        inode = _inode(path)
        # What one process cannot read, all refuse: the others would wait for it.
        self._processes.together(lambda: found.extend(self._read(path, like)))
        self._processes.require_equal(
            [f"{saved.author} {saved.steps}".encode() for saved in found],
            f"The processes do not find the same checkpoint in {path.parent}: it must be on "
            f"a file system that all of them share.",
        )
        if not found:
            return None
        (saved,) = found
        if saved.steps > steps:
            raise ValueError(
                f"{path} holds {saved.steps} steps of this run, more than the {steps} asked for. "
                f"Ask for at least {saved.steps}, or use another folder."
            )
        self._inode, self.notes, self.stage = inode, saved.notes, saved.stage
        old, structure = jax.tree.flatten(like(saved.stage))
        restored = [_in_place_of(*pair) for pair in zip(old, saved.leaves, strict=True)]
        return jax.tree.unflatten(structure, restored), saved.columns

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
            self._write(self._path, k, leaves, record)
            self.trouble = ""
        except OSError as error:
            self.trouble = f"The checkpoint after {k} steps was not written: {error}."
            warnings.warn(f"{self.trouble} The run goes on.", RuntimeWarning, stacklevel=3)

    def _write(self, path: Path, k: int, leaves: list[np.ndarray], record: Recorded) -> None:
        """The rows if they are many, then the state that counts on them."""
        self._refuse_company(path)
        if not (path.exists() and self._rows.intact()):  # not yet there, or removed by somebody
            self._rows = RowFile(path.with_name(ROWS))
        rows = as_rows(record.columns(since=self._rows.count))
        if len(rows) >= MANY:
            self._rows.append(rows)
            rows = rows[:0]
        # Bytes, not numbers: NumPy's format has no bfloat16, and a resumed run must end in equal
        # bits. One array, because each member of the file takes a tenth of a millisecond.
        content = b"".join(leaf.tobytes() for leaf in leaves)
        meta = {
            "format": _FORMAT,
            "jax": jax.__version__,
            "author": self._author,
            "fingerprint": self._identity,
            "steps": k,
            "leaves": [_kind(leaf) for leaf in leaves],
            "rows": self._rows.meta(),
            "notes": self.notes,
            "stage": self.stage,
        }
        write_npz(path, {"leaves": np.frombuffer(content, np.uint8), "rows": rows}, meta)
        self._inode = _inode(path)

    def _refuse_company(self, path: Path) -> None:
        """Two runs that append to one file would spoil it for both: the second stops saving."""
        if _inode(path) == self._inode:
            return
        try:
            _, meta = read_npz(path)
        except FileNotFoundError:
            return
        except ValueError as error:
            raise OSError(str(error)) from error
        if meta.get("author") != self._author:
            raise OSError(f"another process saves to {path}")

    def _read(self, path: Path, like: Callable[[str], PyTree]) -> list[Saved]:
        """What the folder holds, nothing or one state, if it fits this run."""
        try:
            arrays, meta = read_npz(path)
        except FileNotFoundError:
            return []
        except ValueError as error:
            raise ValueError(f"{error}. Delete it to start the run anew.") from error
        if meta.get("format") != _FORMAT:
            raise ValueError(
                f"{path} has checkpoint format {meta.get('format')}, this version of biloop writes "
                f"{_FORMAT}. Finish the run with the version that started it, or delete the file."
            )
        try:
            other = differences(self._identity, dict(meta["fingerprint"]))
            if other:
                jax_too = _of_another_jax(meta["jax"])
            else:
                stage = str(meta["stage"])
                wanted = [_raw(leaf) for leaf in jax.tree.leaves(like(stage))]
                leaves = _leaves(arrays["leaves"], meta["leaves"], wanted)
                rows = _numbers(arrays["rows"])
                columns = as_columns(self._rows.read(meta["rows"], rows.dtype), rows)
                notes = list(meta.get("notes", []))
                steps, author = int(meta["steps"]), str(meta["author"])
                return [Saved(steps, author, leaves, columns, notes, stage)]
        # A complete file whose content is not ours: anything may be missing or of another type.
        except Exception as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(
                f"{path} is damaged or not a checkpoint of this run: {reason}. Delete it to start "
                f"the run anew."
            ) from error
        raise ValueError(
            f"{path} belongs to another run, with another {' and another '.join(other)} than "
            f"was passed now{jax_too}. Use another folder, or delete the file to start anew."
        )


def _prepare(path: Path) -> None:
    try_out(path.parent)
    remove_leftovers(path)
    if not path.exists():
        path.with_name(ROWS).unlink(missing_ok=True)  # rows without the state that counts on them


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _of_another_jax(version: str) -> str:
    if version == jax.__version__:
        return ""
    return f" (or the same, as JAX {version} wrote it and JAX {jax.__version__} does not)"


def _leaves(content: np.ndarray, kinds: list[Any], like: list[Any]) -> list[np.ndarray]:
    """The saved arrays, which must be of the number, shapes and dtypes of those in `like`."""
    expected = [_kind(leaf) for leaf in like]
    if kinds != expected:
        differing = [pair for pair in zip(kinds, expected, strict=False) if pair[0] != pair[1]]
        held, wanted = differing[0] if differing else (len(kinds), len(expected))
        raise ValueError(f"its state has {held} where the run has {wanted}")
    sizes = [int(np.prod(shape)) * jnp.dtype(dtype).itemsize for dtype, shape in expected]
    if content.dtype != np.uint8 or content.shape != (sum(sizes),):
        raise ValueError(f"its state has {content.size} bytes where the run has {sum(sizes)}")
    parts = np.split(content, np.cumsum(sizes)[:-1])
    return [
        np.frombuffer(part.tobytes(), jnp.dtype(dtype)).reshape(shape)
        for part, (dtype, shape) in zip(parts, expected, strict=True)
    ]


def _numbers(rows: np.ndarray) -> np.ndarray:
    """The rows, if each of them has a number for each column of a trace."""
    kinds = {name: rows.dtype[name].kind for name in rows.dtype.names or ()}
    if rows.ndim != 1 or not set(COLUMNS) <= set(kinds) or not set(kinds.values()) <= set("iuf"):
        raise ValueError("its rows are not those of a trace")
    return rows


def _kind(leaf: Any) -> list[Any]:
    """The dtype and the shape, as JSON has them."""
    return [str(leaf.dtype), list(leaf.shape)]


def _in_place_of(old: Any, data: np.ndarray) -> jax.Array:
    """The saved data, where the old array lies."""
    array = in_place_of(old, data)
    return jax.random.wrap_key_data(array, impl=jax.random.key_impl(old)) if _is_key(old) else array


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _raw(leaf: Any) -> Any:
    """Random keys have no NumPy form but their data."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf
