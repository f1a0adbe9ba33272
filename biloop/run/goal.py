"""When a run ends, what it has to remember on its way there, and how it ended."""

from typing import NamedTuple

import numpy as np

from biloop.loops.results import Status
from biloop.oracles import Cost
from biloop.run.step import Row

NEVER = -1.0  # an epsilon: no squared norm is that small


class Goal(NamedTuple):
    """When a run ends: after `steps`, at ‖h‖² ≤ `epsilon`, or when the cost reaches `budget`."""

    steps: int
    epsilon: float | None = None
    budget: float | Cost | None = None


class Marks(NamedTuple):
    """What was found between chunks and says when to look again: a resumed run must know it.

    The first k where epsilon counts, of each run; the epsilon of a run that is given none, NaN
    before it has one; the levels of the `DivergenceWatch` of each run, ∞ where there is none; and
    the rows of a way that a run alone has left, from the first to before the last.
    """

    epsilon_from: np.ndarray
    epsilon: np.ndarray
    levels: np.ndarray
    aside: np.ndarray


class End(NamedTuple):
    """How a run has ended, and the last value that it recorded."""

    status: Status
    value: float
    stayed: bool  # for its h was small: where a measured value ends a run, x has moved

    @property
    def wants_evaluation(self) -> bool:
        """Whether f at the last x is not known: the last step led there, and nothing failed."""
        return not (self.status.failed or (self.stayed and self.status is Status.CONVERGED))

    def judged(self, row: Row) -> tuple[Status, float]:
        """The status and the value in the light of a last look at x."""
        if not self.wants_evaluation:
            return self.status, self.value
        result = Status(int(row.result))
        short = result is Status.UNCONVERGED and self.status is Status.COMPLETED
        return (result if result.failed or short else self.status), float(row.value)
