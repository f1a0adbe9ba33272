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
    if threading.current_thread() is not threading.main_thread():
        yield caught  # Python delivers signals to the main thread only
        return

    def handler(number: int, frame: Any) -> None:
        caught.append(number)
        signal.signal(signal.SIGINT, previous)

    previous = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, handler)
    try:
        yield caught
    finally:
        signal.signal(signal.SIGINT, previous)
