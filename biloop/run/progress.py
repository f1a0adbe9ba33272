"""How fast a run is, and the line that it shows: k, value, ‖h‖, cost and rate."""

import math
import sys
import time
from typing import NamedTuple, TextIO

from jaxtyping import PyTree

from biloop.oracles import Cost
from biloop.schedules.arguments import as_flag

_PATIENCE = 2.0  # seconds without a word are fine
_REFRESH = 0.2
_CHUNK_SECONDS = 0.25


class Progress(NamedTuple):
    """Where a run is after a chunk of outer steps: what callbacks get."""

    k: int
    steps: int
    x: PyTree
    y: PyTree
    value: float
    hypergradient_norm: float
    cost: Cost
    seconds: float


def is_seen(stream: TextIO) -> bool:
    """Whether somebody sees a line there that is written over: on a terminal, or in a notebook."""
    return stream.isatty() or (stream is sys.stderr and _in_notebook())


def _in_notebook() -> bool:
    """Whether this is an IPython kernel; IPython is asked only where it has been imported."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


class ProgressLine:
    """One line on standard error that is written over; silent for the first two seconds.

    `show=None` shows it on a terminal and in a notebook.
    """

    def __init__(self, show: bool | None, stream: TextIO | None = None) -> None:
        """Decide once whether there is anybody to show it to."""
        show = as_flag("progress", optional=True)(show)
        self._stream = sys.stderr if stream is None else stream
        self._show = is_seen(self._stream) if show is None else show
        self._next = time.monotonic() + _PATIENCE
        self._width = 0

    def update(self, p: Progress, rate: float, others: float = math.inf) -> None:
        """Show where the run is; `rate` in outer steps per second.

        `others` are the seconds until something else than the steps ends the run.
        """
        steps = (p.steps - p.k) / rate if rate > 0 else math.inf
        left = min(steps, others)
        self.show(
            f"k {p.k}{f'/{p.steps}' if steps <= others else ''}  "
            f"value {p.value:.6g}  ‖h‖ {p.hypergradient_norm:.3g}  "
            f"gradients {p.cost.gradients:,}  products {p.cost.products:,}  "
            f"{rate:.3g} steps/s  {duration(left) if left < math.inf else '?'} left"
        )

    def show(self, line: str) -> None:
        """Write a line over the last one, unless that one is too young."""
        now = time.monotonic()
        if not self._show or now < self._next:
            return
        self._next = now + _REFRESH
        self._write(line)

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last line standing, whatever ended the run."""
        if self._width:
            self._stream.write("\n")
            self._stream.flush()

    def _write(self, line: str) -> None:
        self._stream.write("\r" + line.ljust(self._width))
        self._stream.flush()
        self._width = len(line)


def time_left(p: Progress, seconds: float | None, budget: float | Cost | None) -> float:
    """The seconds until a run that goes on as so far has used up its time or its budget."""
    left = math.inf if seconds is None else max(seconds - p.seconds, 0.0)
    if budget is None:
        return left
    total = not isinstance(budget, Cost)
    limits = [(budget, p.cost.total)] if total else zip(budget, p.cost, strict=True)
    missing = [float(most) / float(used) - 1 for most, used in limits if used]
    return min([left, *(p.seconds * max(share, 0.0) for share in missing)])


class Pace:
    """How many outer steps the next chunk should have: about a quarter of a second's worth.

    That is the delay of Ctrl-C, of callbacks and of the progress line.
    """

    def __init__(self) -> None:
        self.rate = 0.0  # outer steps per second; unknown before the first chunk

    def measured(self, done: int, elapsed: float) -> None:
        """Take note of a chunk."""
        self.rate = done / elapsed if elapsed > 0 else self.rate

    def steps(self, most: int, seconds_left: float) -> int:
        """At least 1 and at most `most`; a single one as long as the rate is unknown."""
        return int(max(1, min(most, self.rate * min(_CHUNK_SECONDS, seconds_left))))


def duration(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
