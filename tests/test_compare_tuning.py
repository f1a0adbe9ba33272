"""Step sizes: of the loops, shortened where no run survives, and where the outer one begins."""

import math
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop.comparison import terms
from biloop.comparison.race import finish, rank, rank_with_stable_steps, refine
from biloop.comparison.tuning import Tuned

from .comparing import AIM, RATIO, Gauge, Point, Sound, Steps, Watch, made_up, runner, variant

NAMED = [SimpleNamespace(loop="inner", largest=0.5)]


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
        return [variant("No-loop AID", steps.inner)]

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
    tuned = Tuned(variant("No-loop AID"), dict.fromkeys([0.1, 0.2, 0.5]))
    assert tuned.smaller(0.5) == 0.2
    assert tuned.smaller(0.2) == 0.1
    assert tuned.smaller(0.1) == pytest.approx(0.1 / RATIO, rel=0.01)
    assert tuned.smaller(None) is None


def test_of_two_steps_on_batches_the_one_behind_is_given_one_whole_run():
    """That it fails there blames no loop."""
    pair = [variant("SOBA") for _ in range(2)]
    first, second = rank(Sound(), pair, 30.0, 0.1, frozenset({"inner"}))
    assert second.is_lost
    assert (len(first.runs), len(second.runs)) == (4, 1)
    alone = rank(Sound(), [variant("N-loop AID"), *pair[1:]], 30.0, 0.1,
                 frozenset())  # fmt: skip
    assert len(alone[1].runs) == len(alone[0].runs) > 1


class FromEach(Sound):
    """A largest stable step for each start."""

    def __init__(self, *stable):
        super().__init__()
        self.points = stable

    def runs(self, variant, starts, part=1, width=2):
        self.tried += [number for number, _ in starts]
        return [self.run(number, stable) for number, stable in starts]


@pytest.mark.parametrize(
    ("stable", "number", "tried"),
    [
        ((1.0, 1.0, 1.0), 1.0, [1.0] * 2),
        ((1.0, 0.6, 0.3), 0.25, [1.0] * 2 + [0.5] * 2 + [0.25] * 2),  # it fails from two, from one
        ((1.0, 1.0, 0.3), 0.25, [1.0] * 2 + [0.5] * 2 + [0.25] * 2),  # most arrive, but not all
        ((1.0, 1.0, 0.1), 1.0, [1.0] * 2 + [0.5] * 2 + [0.25] * 2),  # nothing tried is any better
        # The first does better with half of it than most do, twice; they do worse with less.
        ((1.0, 5.0, 5.0), 1.0, [1.0] * 2 + [0.5] * 2 + [0.25] * 2),
        ((1.0, 0.6), 0.5, [1.0, 0.5]),
    ],
)
def test_a_step_that_is_best_from_the_first_start_may_not_be_from_the_others(stable, number, tried):
    making = FromEach(*stable)
    known = {n: making.run(n, 1.0) for n in (1.0, 0.5, 0.25)}
    final = finish(making, Tuned(variant("No-loop AID"), known), AIM)
    assert final.number == number
    assert making.tried == tried
    assert final.runs[0] is known[number]
    assert len(final.runs) == len(stable)


def test_where_nobody_arrives_a_smaller_step_is_not_tried():
    class Slow(FromEach):
        def run(self, number, stable):
            return made_up(1, [1.0, 1.0])

    making = Slow(1.0, 1.0, 1.0)
    known = {n: making.run(n, 1.0) for n in (1.0, 0.5)}
    finish(making, Tuned(variant("No-loop AID"), known), AIM)
    assert len(making.tried) == 2


def test_who_is_far_behind_is_not_refined_where_measuring_takes_long():
    def runs():
        return [Tuned(variant(name), {0.5: made_up(cost, [1.0, 0.01])})
                for name, cost in (("SOBA", 100), ("SABA", 400))]  # fmt: skip

    making = Sound()
    assert [len(each.runs) > 1 for each in refine(making, runs(), AIM)] == [True, True]
    making.cheap = False
    assert [len(each.runs) > 1 for each in refine(making, runs(), AIM)] == [True, False]


def test_on_a_cpu_runs_go_side_by_side_only_where_they_read_much():
    data = (np.ones(10_000),)
    problem = bl.Problem(
        lambda x, y, X: jnp.mean(X * (y - x) ** 2), lambda x, y, X: jnp.mean(X * y), data, data
    )
    full, drawn = bl.schemes.no_loop(0.1, 0.1), bl.schemes.soba(8)
    for method, budget, much in ((full, 10**6, True), (full, 10**4, False), (drawn, 10**6, False)):
        cells = [SimpleNamespace(method=method)] * 9
        assert runner(problem, budget=budget)._reads_much(cells, part=5) is much


def test_a_run_that_is_known_to_be_later_is_not_looked_at_closer():
    class Known(Gauge):
        """Finds what is written; everything else is that of a large problem."""

        def __init__(self):
            self.cheap, self.width, self._watch = False, 3, Watch(False)

        def _at(self, places):
            for run, j in places:
                run.norm2[j], run.value[j], run.measured[j] = run.known[j], 0.0, True

    def pair():
        found = []
        for steps in (10, 70):
            run = made_up(1, [*[1.0] * steps, *[0.01] * (100 - steps)])
            run.known, run.measured[:] = run.norm2.copy(), False
            run.norm2[:] = run.value[:] = np.nan
            found.append(run)
        return found

    early, late = pair()
    Known().find_best([[late, early]], AIM)
    looks = np.sum(late.measured)
    assert early.to_target(AIM) == 10
    assert late.to_target(AIM) > 10
    early, late = pair()
    Known().find_best([[late], [early]], AIM)
    assert (early.to_target(AIM), late.to_target(AIM)) == (10, 70)
    assert looks < np.sum(late.measured)


@pytest.mark.parametrize(("cheap", "looked"), [(True, 9), (False, 8)])
def test_the_first_outer_step_is_the_longest_over_which_the_gradient_keeps_its_size(cheap, looked):
    """∇Φ = x³ at x = 1: of 0.03 · 4ⁱ it is 0.48, over which it changes by 1 − 0.52³ < 1.

    At 1 − 7.68 it would change by less again if ∇Φ vanished there; on much data nobody looks.
    """

    class Plateau:
        width, points = 32 if cheap else 3, 0

        def truth(self, x, y, v):
            Plateau.points += len(x)
            h, found = np.where(x < -2, 0.0, x**3), x[:, 0] < 2
            return SimpleNamespace(h=h, y=y, v=v, found=found)

    gauge = Plateau()
    gauge.cheap = cheap
    here = gauge.truth(np.ones((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)))
    Plateau.points = 0
    found = terms.first_step_size(gauge, Point(np.ones(1), np.zeros(1)), here)
    assert found == pytest.approx(0.48 / (1 - 0.52**3), rel=2e-3)
    assert Plateau.points == looked
