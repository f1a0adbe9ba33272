"""A thread that reads the batches of a stream while the device works."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from biloop.problem.stream import Batch, Stream, as_batch

Numbered = tuple[int | None, Batch]  # a batch, and the number of its block where it has one
_BYTES = 2**24  # about as much is at hand, and as much read ahead
_MOST = 4096  # batches
_FIRST = 8  # batches on which a run looks at its losses


class StreamFailed(RuntimeError):
    """What a stream gave instead of a batch."""


class Held(NamedTuple):
    """Batches first, first + 1, … of a stream, one after the other in arrays with room for more."""

    first: int
    batches: list[Numbered]
    arrays: Batch

    @property
    def end(self) -> int:
        """The number of the batch after the last one."""
        return self.first + len(self.batches)


class Reader:
    """The batches of a stream from any number on, read ahead by a thread.

    `reading(t)` gives them from number t on. The first batch says what all must look like.
    """

    def __init__(
        self, stream: Stream, reading: Callable[[int], Iterator[Numbered]], name: str, need: int
    ) -> None:
        self.stream, self.name = stream, name
        self._reading = reading
        self._like: Batch = ()
        self.capacity = need  # until the first batch is known
        self._start(0)
        self._wait(1)
        if not self._ahead:
            self.close()
            raise self._error or ValueError(f"The {name} stream has no batches at all.")
        size = sum(array.nbytes for array in self._like)
        self.capacity = max(need, min(_MOST, _BYTES // max(size, 1)))
        # A number of them that does not depend on how fast they come: a run is known by its start.
        few = max(need, min(self.capacity, _FIRST))
        self.held = self._arranged(0, self._taken(few, few))

    @property
    def rows(self) -> int:
        """The rows of a batch."""
        return len(self._like[0])

    def move(self, first: int, need: int) -> None:
        """Hold the batches from number `first` on: so many if there are, and what else is read."""
        left = self.held.batches[first - self.held.first :]
        if not self.held.first <= first <= self.held.end:  # a run that is resumed
            self.close()
            self._start(first)
            left = []
        self.capacity = max(self.capacity, need)
        more = self._taken(need - len(left), self.capacity - len(left))
        if left + more:  # else those that it has are the last ones
            self.held = self._arranged(first, left + more)

    def failure(self) -> StreamFailed | None:
        """What was given instead of the batch after those that are held."""
        return None if self._ahead else self._error

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(timeout=5)

    def _start(self, first: int) -> None:
        self._ahead: deque[Numbered] = deque()
        self._error: StreamFailed | None = None
        self._over = False
        self._changed, self._closed = threading.Condition(), threading.Event()
        self._thread = threading.Thread(target=self._read, args=(first,), daemon=True)
        self._thread.start()

    def _read(self, t: int) -> None:
        """Append batch t, t + 1, …: the thread."""
        closed, changed = self._closed, self._changed
        try:
            for number, entry in self._reading(t):
                batch = self._checked(as_batch(entry))
                with changed:
                    self._ahead.append((number, batch))
                    changed.notify_all()
                    changed.wait_for(lambda: closed.is_set() or len(self._ahead) < self.capacity)
                t += 1
                if closed.is_set():
                    return
        except Exception as error:  # whatever it is, the run has to know
            self._error = StreamFailed(
                f"Batch {t} of the {self.name} stream could not be read: "
                f"{type(error).__name__}: {error}"
            )
            self._error.__cause__ = error
        with changed:
            self._over = True
            changed.notify_all()

    def _checked(self, batch: Batch) -> Batch:
        """The batch, if it is like the first one."""
        if self._like and [(a.shape, a.dtype) for a in batch] == self._kinds:
            return batch
        if self._like:
            raise ValueError(
                f"it has {_shown(batch)}, and the first one had {_shown(self._like)}. All must be "
                f"alike (a last batch that is not full is left out by drop_last=True of a "
                f"DataLoader, drop_remainder=True of tf.data)"
            )
        if len({len(array) for array in batch}) != 1 or len(batch[0]) == 0:
            raise ValueError(
                f"its arrays must have equally many rows and at least one, got {_shown(batch)}"
            )
        self._like, self._kinds = batch, [(a.shape, a.dtype) for a in batch]
        return batch

    def _wait(self, count: int) -> None:
        """Until so many batches are read, or there are no more."""
        with self._changed:
            self._changed.notify_all()  # there may be more room than before
            self._changed.wait_for(lambda: self._over or len(self._ahead) >= count)

    def _taken(self, need: int, most: int) -> list[Numbered]:
        """Some of the batches that were read: `need` unless there are no more, and `most`."""
        self._wait(need)
        with self._changed:
            taken = [self._ahead.popleft() for _ in range(min(len(self._ahead), most))]
            self._changed.notify_all()
        self.stream.forget()
        return taken

    def _arranged(self, first: int, batches: list[Numbered]) -> Held:
        """The batches in arrays of a fixed size, whose rest is filled with the first of them."""
        fill = [batches[0]] * (self.capacity - len(batches))
        columns = zip(*(batch for _, batch in [*batches, *fill]), strict=True)
        return Held(first, batches, tuple(np.concatenate(column) for column in columns))


def _shown(batch: Batch) -> str:
    return ", ".join(f"{array.dtype}{list(array.shape)}" for array in batch)
