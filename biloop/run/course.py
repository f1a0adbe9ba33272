"""The course of one run: chunk after chunk, with those who look at it in between.

After each chunk, in this order: is there data to go on (`Feed`), is the run at its end (`Ends`, or
`Growth` while it is on a part of the samples), is its time spent or did somebody interrupt it; then
it is measured (`Watcher`), saved (`Checkpoint`), and the caller is asked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from biloop.loops.results import Status
from biloop.problem.variables import thawed
from biloop.run.buffers import copied
from biloop.run.checkpoint import Checkpoint
from biloop.run.ends import Ends, already_over
from biloop.run.engine import Engine, drive
from biloop.run.feed import Feed
from biloop.run.growth import Growth
from biloop.run.interrupt import interruptible
from biloop.run.processes import Processes
from biloop.run.progress import Pace, Progress, ProgressLine, time_left
from biloop.run.watch import Watcher


@dataclass
class Course:
    """A run on its way: its engine, who looks at it, and what of it the caller limits.

    It ends at a measured value of at most `level`, after so many `seconds`, or when `callback`
    gives True.
    """

    engine: Engine
    feed: Feed
    growth: Growth
    ends: Ends
    watcher: Watcher
    saved: Checkpoint
    processes: Processes
    level: float | None
    seconds: float | None
    callback: Callable[[Progress], bool | None] | None

    def run(self, line: ProgressLine) -> Status:
        """Drive it to its end, and say why it ended."""
        engine, watcher = self.engine, self.watcher
        status = Status.STOPPED if watcher.exhausted else already_over(engine, self.seconds)
        if status is not None:
            return status
        with line, interruptible() as caught:
            engine.compile()
            watcher.measure(engine)
            self.saved.notes = watcher.notes
            if watcher.is_small(engine, self.level):
                return Status.CONVERGED
            resumed = engine.records[0].rows and self.growth.is_whole
            if resumed and (status := self.ends.check()) is not None:
                return status  # from a checkpoint of a run that had ended so

            def after_chunk(pace: Pace) -> bool:
                nonlocal status
                here = engine.records[0].progress(engine.k, engine.goal.steps, engine.state)
                line.update(here, pace.rate, time_left(here, self.seconds, engine.goal.budget))
                status = self._verdict(here, caught)
                return status is not None

            limit = np.inf if self.seconds is None else self.seconds
            drive(
                engine,
                due=self._due,
                after_chunk=after_chunk,
                seconds=limit,
                processes=self.processes,
            )
        assert status is not None
        if caught and not self.processes.several:  # while it was ending: not for this run alone
            if status.failed:
                raise KeyboardInterrupt(f"Ctrl-C, as the run ended: {status.name}.")
            return Status.INTERRUPTED
        return status

    def _due(self, k: int) -> int:
        """How many steps may be made before somebody wants to look."""
        who = self.saved, self.watcher, self.feed, self.growth
        steps = self.engine.goal.steps
        return min(*(each.steps_until_due(k, steps) for each in who), self.ends.due(k))

    def _verdict(self, here: Progress, caught: list[int]) -> Status | None:
        """Why to end after the chunk that led here, if so; the run is measured and saved."""
        (interrupted,) = self.processes.largest(len(caught))
        status = self._ended(here.k)
        if interrupted and (status is None or not status.failed):
            status = Status.INTERRUPTED
        # After a failure the last checkpoint stays: from there the failure can be seen again.
        if status is None or not status.failed:
            self.watcher.measure(self.engine)
            if status is None:
                status = self.watcher.verdict(self.engine, self.level)
            self._save(here.k, at_the_end=status is not None)
        if self._has_enough(here) and status is None:
            status = Status.STOPPED
            self._save(here.k, at_the_end=True)
        return status

    def _ended(self, k: int) -> Status | None:
        """Whether the run is at its end by itself, or has used up what it was given."""
        engine, whole = self.engine, self.growth.is_whole
        status = self.feed.status or (self.ends.check() if whole else self.growth.check())
        if status is None and k >= engine.goal.steps:
            status = engine.end().status
        late = self.seconds is not None and engine.records[0].seconds >= self.seconds
        return Status.TIME_SPENT if status is None and late else status

    def _has_enough(self, here: Progress) -> bool:
        """Whether the caller has, in any process."""
        if self.callback is None:
            return False
        own = here._replace(x=thawed(copied(here.x)), y=thawed(copied(here.y)))
        return self.processes.together(partial(self.callback, own))

    def _save(self, k: int, at_the_end: bool) -> None:
        state = self.engine.saved, self.watcher.point
        self.saved.stage = self.ends.race.stage
        self.saved.save(k, state, self.engine.records, at_the_end)
