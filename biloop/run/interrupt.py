"""Ctrl-C between compiled chunks."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Collect Ctrl-C in a list that is looked at between chunks; the second one interrupts."""
    caught: list[int] = []
    previous = signal.getsignal(signal.SIGINT)
    elsewhere = threading.current_thread() is not threading.main_thread()
    if elsewhere or previous is None:
        yield caught  # Python tells the main thread only, and cannot put back what is not its own
        return

    def handler(number: int, frame: Any) -> None:
        caught.append(number)
        # Shells have it ignored in what they run in the background: one that comes is meant.
        ignored = previous is signal.SIG_IGN
        signal.signal(signal.SIGINT, signal.default_int_handler if ignored else previous)

    signal.signal(signal.SIGINT, handler)
    try:
        yield caught
    finally:
        signal.signal(signal.SIGINT, previous)
