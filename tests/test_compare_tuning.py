"""Step sizes of the loops that all schemes share: shortened where no run survives."""

import math

import pytest

import biloop as bl
from biloop.comparison.candidates import Settings, Variant
from biloop.comparison.loop_steps import Steps, rank_with_stable_steps
from biloop.comparison.rounds import Tuned
from biloop.comparison.tuning import RATIO
from biloop.run.diagnosis import Excess

from .comparing import AIM, Sound, made_up

NAMED = [Excess("inner", 1.0, 0.5, 4.0)]


class Steep(Sound):
    """Runs that fail if α is above 0.3, whatever their outer step."""

    def __init__(self, found):
        super().__init__()
        self.found = found

    def runs(self, variant, starts, part=1, width=2):
        if variant.settings.method <= 0.3:
            return super().runs(variant, starts, part, width)
        failed = bl.Status.INNER_NOT_FINITE
        return [made_up(1.0, [1.0, 1.0], status=failed) for _ in starts]

    def excess(self, run):
        return self.found


@pytest.mark.parametrize(
    ("found", "source", "inner", "linear"),
    [
        (NAMED, "1/L", 0.25, 0.8),  # half of the largest stable one
        ([], "1/L", 0.25, 0.2),  # none is named: half of both, and once more
        (NAMED, "given", 1.0, 0.8),
    ],
    ids=["named", "not named", "given"],
)
def test_where_no_run_survives_step_sizes_are_shortened(found, source, inner, linear):
    def make(steps):
        return [Variant("No-loop AID", Settings(steps.inner, None))]

    begin = Steps(1.0, 0.8, source, source)
    (tuned,), steps = rank_with_stable_steps(Steep(found), make, begin, 0.1, 0.1)
    assert (steps.inner, steps.linear) == (inner, linear)
    assert tuned.variant.settings.method == inner
    assert tuned.is_lost == (source == "given")
    if tuned.is_lost:  # told of the run that moves x least
        assert tuned.best(AIM) == min(tuned.runs) < 0.1
    else:
        assert math.isfinite(tuned.score(AIM).cost)
        assert ("where all runs with" in steps.linear_from) == (found == [])


def test_the_next_smaller_step_size_is_one_that_was_tried():
    """Below the smallest it is the next on the grid; where nothing is tuned there is none."""
    tuned = Tuned(Variant("No-loop AID", "", None, None), dict.fromkeys([0.1, 0.2, 0.5]))
    assert tuned.smaller(0.5) == 0.2
    assert tuned.smaller(0.2) == 0.1
    assert tuned.smaller(0.1) == pytest.approx(0.1 / RATIO, rel=0.01)
    assert tuned.smaller(None) is None
