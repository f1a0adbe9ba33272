"""Processes that run one program together: how they agree, and which of them writes.

All processes of a mesh run the same Python and must start the same compiled programs in the same
order, or they wait for each other forever. Where one could decide by itself (a clock, Ctrl-C, a
callback, a file), it asks the others first: one all-gather of a few bytes.
"""

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


@dataclass(frozen=True)
class Processes:
    """The processes whose devices are in `mesh`; without a mesh, this one alone."""

    mesh: Mesh | None = None

    @property
    def several(self) -> bool:
        """Whether the devices of the mesh belong to more than one process."""
        devices = () if self.mesh is None else self.mesh.devices.flat
        return len({device.process_index for device in devices}) > 1

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes and shows progress."""
        if self.mesh is None:
            return True
        return self.mesh.devices.flat[0].process_index == jax.process_index()

    def largest(self, *numbers: float) -> tuple[float, ...]:
        """For each of the numbers, the largest that any process gives."""
        if not self.several:
            return tuple(map(float, numbers))
        return tuple(map(float, self._gather(np.array(numbers, np.float64)).max(axis=0)))

    def together(self, action: Callable[[], object]) -> bool:
        """Do something in each process, and say whether it gave True in any of them.

        Where it fails in one process it fails in all, instead of leaving the others to wait.
        """
        try:
            answer = float(bool(action()))
        except BaseException:
            self.largest(np.inf)
            raise
        (answer,) = self.largest(answer)
        if answer == np.inf:
            raise RuntimeError("Another process failed at this point; its own message says why.")
        return bool(answer)

    @contextmanager
    def alike(self) -> Iterator[None]:
        """What fails in one process within fails in all of them, as in `together`."""
        try:
            yield
        except BaseException:
            self.largest(np.inf)
            raise
        self.together(lambda: False)

    def require_equal(self, content: Iterable[bytes | memoryview], complaint: str) -> None:
        """Raise in all processes unless all of them give the same bytes."""
        if self.several and self.differing({"content": content}):
            raise ValueError(complaint)

    def differing(self, contents: Mapping[str, Iterable[bytes | memoryview]]) -> list[str]:
        """The names under which the processes do not all give the same bytes.

        All of them must give the same names.
        """
        digests = b"".join(map(_digest, contents.values()))
        gathered = self._gather(np.frombuffer(digests, np.uint8)).reshape(-1, len(contents), 16)
        different = np.any(gathered != gathered[0], axis=(0, 2))
        return [name for name, differs in zip(contents, different, strict=True) if differs]

    def _gather(self, mine: np.ndarray) -> np.ndarray:
        """What the processes give, a row for each device: the same array in all of them."""
        if self.mesh is None or not self.several:
            return mine[None]
        # As bytes, because JAX would round float64 unless double precision is on.
        row = np.frombuffer(mine.tobytes(), np.uint8)[None]
        split = NamedSharding(self.mesh, PartitionSpec(self.mesh.axis_names))
        shape = (self.mesh.size, row.size)
        rows = jax.make_array_from_callback(shape, split, lambda _: row)
        rows = np.asarray(copy_to(NamedSharding(self.mesh, PartitionSpec()))(rows))
        return np.frombuffer(rows.tobytes(), mine.dtype).reshape(-1, mine.size)


ALONE = Processes()


def _digest(content: Iterable[bytes | memoryview]) -> bytes:
    hasher = hashlib.blake2b(digest_size=16)
    for part in content:
        hasher.update(part)
    return hasher.digest()


@functools.cache
def copy_to(sharding: NamedSharding) -> Callable[[Any], Any]:
    """A compiled copy of arrays to another sharding over the same devices."""
    return jax.jit(lambda tree: tree, out_shardings=sharding)
