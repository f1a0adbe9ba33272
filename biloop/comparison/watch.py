"""What shows how far a comparison is, and says when it is over."""

import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from biloop.run.interrupt import interruptible
from biloop.run.progress import ProgressLine, is_seen

_QUIET, _BETWEEN = 5.0, 10.0  # seconds to the first line where no terminal is, and to the next

Item = TypeVar("Item")


class Watch:
    """Shows what is being done, and remembers whether to stop, or to hurry.

    On a terminal and in a notebook it is a line that is written over; elsewhere one now and then.
    With a limit in `seconds` each part of a comparison has a share of what is left, and each item
    of a part a share of that, which compiling for it does not shorten.
    """

    def __init__(self, progress: bool | None, seconds: float | None = None) -> None:
        self._line = ProgressLine(progress)
        self._plain = progress is None and not is_seen(sys.stderr)
        self._next = time.monotonic() + _QUIET
        self._stack = ExitStack()
        self._caught: list[int] = []
        self._stopped, self._doing = False, ""
        self._until = [math.inf if seconds is None else time.monotonic() + seconds]
        self._item: int | None = None  # from which one on they belong to an item
        self.hurried = False  # whether the limit made anything shorter

    def __enter__(self) -> "Watch":
        self._stack.enter_context(self._line)
        self._caught = self._stack.enter_context(interruptible())
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the line and the handling of signals as they were."""
        self._stack.close()

    def interrupted(self) -> bool:
        """Whether somebody wants an end."""
        return self._stopped or bool(self._caught)

    @property
    def limited(self) -> bool:
        """Whether there is a limit at all."""
        return self._until[0] < math.inf

    @property
    def left(self) -> float:
        """The seconds that are left for what is being done."""
        return max(self._until[-1] - time.monotonic(), 0.0)

    def over(self) -> bool:
        """Whether what is being done must end with what is known: as wanted, or as it is late."""
        if self.interrupted():
            return True
        late = time.monotonic() >= self._until[-1]
        self.hurried |= late
        return late

    @contextmanager
    def within(self, share: float) -> Iterator[None]:
        """Within it, it is late as soon as this share of the seconds that are left has passed."""
        self._until.append(min(self._until[-1], time.monotonic() + share * self.left))
        try:
            yield
        finally:
            self._until.pop()

    def each(self, items: Sequence[Item]) -> Iterator[Item]:
        """The items, each within its share of the seconds that are left."""
        outermost, first = self._item, len(self._until)
        for i, item in enumerate(items):
            with self.within(1 / (len(items) - i)):
                self._item = first if outermost is None else outermost
                try:
                    yield item
                finally:
                    self._item = outermost

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What happens within it shortens no share of the item: others have less for it."""
        began = time.monotonic()
        yield
        passed = time.monotonic() - began
        for i in range(len(self._until) if self._item is None else self._item, len(self._until)):
            self._until[i] += passed

    def stop(self) -> None:
        """A run has caught the signal in our place."""
        self._stopped = True

    def say(self, what: str) -> None:
        """What is being done now."""
        self._doing = what
        self._show(what)

    def detail(self, what: str) -> None:
        """How far that is."""
        self._show(f"{self._doing}: {what}")

    def _show(self, line: str) -> None:
        self._line.show(line)
        if self._plain and time.monotonic() >= self._next:
            self._next = time.monotonic() + _BETWEEN
            print(line, file=sys.stderr, flush=True)
