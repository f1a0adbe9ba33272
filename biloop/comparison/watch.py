"""Progress of a comparison, and Ctrl-C."""

from contextlib import ExitStack

from biloop.run.progress import ProgressLine
from biloop.run.solve import interruptible


class Watch:
    """Shows what is being done, after two seconds, and remembers whether to stop."""

    def __init__(self, progress: bool | None) -> None:
        self._line = ProgressLine(progress)
        self._stack = ExitStack()
        self._caught: list[int] = []
        self._stopped = False

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

    def stop(self) -> None:
        """A run has caught the signal in our place."""
        self._stopped = True

    def say(self, what: str) -> None:
        """What is being done now."""
        self._line.show(what)
