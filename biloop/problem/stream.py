"""Data larger than memory: batches from anywhere, of which a few are at hand at a time."""

import mmap
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int

from biloop.problem.rows import Rows

Batch = tuple[np.ndarray, ...]


@jax.tree_util.register_static
class Stream:
    """Batches instead of arrays, for `inner_data` or `outer_data`, read while the device works.

    A batch is a tuple of arrays with a row for each sample, of the same shapes and dtypes each
    time. The method draws as many rows as a batch has, and each draw is the next batch.

    `Stream.rows(X, y)` reads arrays that lie elsewhere, such as memmaps, by rows: in the order in
    which the method draws them, to the same bits as in memory.

    Parameters
    ----------
    source : function, iterable or iterator
        A function of t returns the batches from number t on (a generator, `dataset.skip(t)`): a run
        can then be resumed to the same bits. An iterable (a list, a DataLoader, tf.data) is gone
        through again and again, an iterator once; neither can be put back to where a run was.

    Examples
    --------
    >>> def batches(t):
    ...     while True:  # from a file, say: rows of batch t, t + 1, …
    ...         rows = slice(8 * (t % 3), 8 * (t % 3 + 1))
    ...         yield X[rows], t_all[rows]
    ...         t += 1
    >>> t_all = t
    >>> streamed = bl.Problem(inner, outer, bl.Stream(batches), (X[24:], t[24:]))
    >>> run = bl.solve(streamed, x0, y0, bl.schemes.soba(batch=8), outer=0.1, steps=10)
    >>> run.status.name
    'COMPLETED'
    """

    def __init__(self, source: Any) -> None:
        self.arrays: tuple[Any, ...] = ()
        self._again: Iterable[Any] = ()
        self._from: Callable[[int], Iterable[Any]] | None = None
        self._once: Iterator[Any] | None = None
        if isinstance(source, Iterator):
            self._once = source
        elif isinstance(source, Iterable) and not isinstance(source, str | bytes | dict):
            self._again = source
        elif callable(source):
            self._from = cast(Callable[[int], Iterable[Any]], source)
        else:
            raise TypeError(
                f"A stream is made from a function of t that returns the batches from number t on, "
                f"from an iterable of batches or from an iterator, got {type(source).__name__}."
            )

    @classmethod
    def rows(cls, *arrays: Any) -> "Stream":
        """The rows of arrays that are not read at once: memmaps, or anything with X[3:7] and len.

        They have a length, so that SAGA can have its tables; the method says which rows it wants.
        """
        lengths = [len(array) for array in arrays]
        if not arrays or len(set(lengths)) > 1 or lengths[0] == 0:
            raise ValueError(
                f"Stream.rows takes arrays with equally many rows, got lengths {lengths}."
            )
        stream = cls(())
        stream.arrays = arrays
        return stream

    @property
    def samples(self) -> int:
        """The number of samples, 0 where nobody knows."""
        return len(self.arrays[0]) if self.arrays else 0

    @property
    def can_be_resumed(self) -> bool:
        """Whether it can be read from any batch on."""
        return bool(self.arrays) or self._from is not None

    def batches(self, t: int) -> Iterator[Any]:
        """The batches from number t on, until there are no more."""
        if self._once is not None:
            yield from self._once
            return
        while True:
            before = t
            for batch in self._from(t) if self._from is not None else self._again:
                t += 1
                yield batch
            if t == before:  # a whole round without a batch
                return

    def read(self, rows: np.ndarray) -> Batch:
        """These rows of the arrays; those in one piece are read in one piece."""
        first, count = int(rows[0]), len(rows)
        together = np.array_equal(rows, np.arange(first, first + count))
        where = slice(first, first + count) if together else rows
        return tuple(np.array(array[where]) for array in self.arrays)

    def forget(self) -> None:
        """Give pages of memmaps back: they would count as memory of this process."""
        for array in self.arrays:
            pages = getattr(array, "_mmap", None)
            # A private copy (mode "c") would lose what was written to it.
            if isinstance(pages, mmap.mmap) and getattr(array, "mode", "c") != "c":
                pages.madvise(mmap.MADV_DONTNEED)

    def __iter__(self) -> Iterator[Any]:
        """Refuse to be taken for arrays."""
        raise TypeError(
            "These data are a stream, of which only a few batches are at hand at a time: solve "
            "takes it with a method that draws rows, such as bl.schemes.soba(batch=64). For all "
            "else give arrays."
        )

    def __repr__(self) -> str:
        """With its length, where it has one."""
        return f"Stream({self.samples or 'unknown'} samples)"


def as_batch(entry: Any) -> Batch:
    """A batch of a stream as arrays in memory, in the precision that JAX works in."""
    if isinstance(entry, dict):
        raise TypeError(
            f"a batch must be a tuple of arrays, in the order of the arguments of the loss, got a "
            f"dict of {', '.join(map(str, entry))}"
        )
    parts = entry if isinstance(entry, tuple | list) else (entry,)
    arrays = [np.asarray(part) for part in parts]
    for array in arrays:
        if array.ndim == 0 or array.dtype == object:
            raise TypeError(
                f"a batch must be a tuple of arrays with a row for each sample, got "
                f"{array.dtype}{list(array.shape)}"
            )
    return tuple(np.array(a, jax.dtypes.canonicalize_dtype(a.dtype)) for a in arrays)


class Placed(Rows):
    """A batch of a stream, where it lies among those at hand; `number` is that of its block."""

    place: Int[Array, ""]
    number: Int[Array, ""] | None
    size: int = eqx.field(static=True)

    def __call__(self, array):
        return lax.dynamic_slice_in_dim(array, self.place * self.size, self.size)

    def numbered(self, samples):
        return self.place * self.size + jnp.arange(self.size, dtype=jnp.int32)

    @property
    def block(self):
        return self.number


class Window(eqx.Module):
    """Which batches of a stream are at hand, one after the other in the arrays of a problem.

    `numbers` are those of their blocks, None where it has none, and `samples` is the length of the
    whole stream, 0 where nobody knows.
    """

    first: Int[Array, ""]
    numbers: Int[Array, " batches"] | None
    size: int = eqx.field(static=True)
    samples: int = eqx.field(static=True)

    def rows(self, t: Int[Array, ""]) -> Placed:
        """Batch number t."""
        place = t - self.first
        return Placed(place, None if self.numbers is None else self.numbers[place], self.size)
