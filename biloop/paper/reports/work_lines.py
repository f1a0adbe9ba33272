"""Work in progress on standard error: a line that lives, and one for each unit that is done."""

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

PATIENCE = 2.0  # seconds; what is faster needs no line of its own


class WorkLines:
    """Shows what is being computed. On a pipe, only what is finished."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False)
        columns = SpinnerColumn(), TextColumn("{task.description}", markup=False)
        self._bar = Progress(*columns, TimeElapsedColumn(), console=self._console, transient=True)
        self._task = None

    def __enter__(self) -> "WorkLines":
        return self

    def __exit__(self, *_: object) -> None:
        """Take the living line away, whatever ended the work."""
        self._clear()

    def started(self, unit: str) -> None:
        """Show the unit with a clock that runs."""
        self._clear()
        if self._console.is_terminal:
            self._task = self._bar.add_task(unit, total=None)
            self._bar.start()

    def finished(self, unit: str, seconds: float, kept: bool) -> None:
        """Leave a line behind for what took time or was there already."""
        self._clear()
        if kept:
            self._console.print(f"{unit}: kept from before")
        elif seconds >= PATIENCE:
            self._console.print(f"{unit}: {seconds:.0f} s")

    def _clear(self) -> None:
        if self._task is not None:
            self._bar.stop()
            self._bar.remove_task(self._task)
            self._task = None
