"""How runs of a comparison end, where hills of a search are, and with which steps it begins."""

import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop.comparison.payload import accuracy
from biloop.comparison.race import in_turn, rank
from biloop.comparison.terms import first_steps
from biloop.comparison.tuning import tops
from biloop.methods.reference import measure

from .comparing import AIM, Gauge, Point, Sound, Watch, made_up, named
from .helpers import random_quadratic


@pytest.mark.parametrize(
    ("halfway", "ending"),
    [(0.3, "floored"), (0.36, "budget spent")],  # 0.28 is more than four fifths of 0.3
)
def test_a_floor_is_where_the_second_half_of_the_budget_brings_less_than_a_fifth(halfway, ending):
    run = made_up(10, [1.0, 0.95, 0.9, 0.9, halfway, 0.29, 0.29, 0.29, 0.28])
    assert run.ending(AIM) == ending


def test_neighbours_that_are_as_good_are_both_on_a_hill():
    better, worse, failed = (10.0, 0.0, 0.1), (20.0, 0.0, 0.1), (np.inf, np.inf, np.inf)
    assert sorted(tops({1.0: worse, 2.0: better, 3.0: better, 4.0: worse})) == [2.0, 3.0]
    assert tops({1.0: better, 2.0: worse, 3.0: failed}) == [1.0]
    assert tops({1.0: failed, 2.0: failed}) == []


def test_step_sizes_are_stable_at_the_start_and_where_y_is_going():
    """½y² + y⁴: the curvature 1 + 12y² is 109 at 3, and 1 at y*(0) = 0."""
    problem = bl.Problem(
        lambda x, y: jnp.sum(0.5 * y**2 + y**4) + x * jnp.sum(y), lambda x, y: jnp.sum(y)
    )
    first = Point(jnp.asarray(0.0), jnp.asarray([3.0]))
    steps = first_steps(problem, first, jnp.zeros(1), None, 0.5)
    assert steps[:2] == (pytest.approx(1 / 109, rel=0.01), 0.5)


@pytest.mark.parametrize(("size", "words"), [(3, "about 5 %"), (300, "largest change was 5 %")])
def test_how_well_gradients_are_measured_is_told_in_percent(size, words):
    y = jnp.zeros(size)
    gauge = Gauge(bl.Problem(lambda x, y: jnp.sum(y**2), lambda x, y: jnp.sum(y)), y, Watch(False))
    gauge.error = 0.05
    assert words in accuracy(gauge, y)


@pytest.mark.parametrize(("lost", "rounds"), [(1e-9, 1), (1e9, 2)])
def test_what_is_far_from_all_that_matters_is_measured_once(lost, rounds):
    """That it is far is found as well, though nothing says yet how exact it is."""
    quadratic = random_quadratic(q=80)
    x, y = quadratic.start()
    truth = measure(quadratic.problem, x, y, 0 * y, accuracy=0.1, lost=lost)
    assert truth.found
    assert (float(truth.error) == pytest.approx(float(truth.size))) == (rounds == 1)


def test_a_limit_in_seconds_is_shared_by_all(monkeypatch):
    """Each has what the others before it have left of the time, and no more of a share of it."""
    clock = [0.0]
    monkeypatch.setattr("biloop.comparison.runs.time.monotonic", lambda: clock[0])
    watch, spent, late = Watch(False, 100.0), [1.0, 70.0, 9.0], []
    with watch.within(0.9):
        for seconds in watch.each(spent):
            with watch.within(0.5):
                clock[0] += seconds / 2
                late.append(watch.over())
            clock[0] += seconds / 2
            late.append(watch.over())
    # 30 for the first; 44.5 of 89 for the second, 22.25 of them in the half; 19 for the last.
    assert late == [False, False, True, True, False, False]
    assert watch.hurried
    assert not watch.over()
    clock[0] = 100.0
    assert watch.over()
    assert not Watch(False).over()


def test_compiling_does_not_shorten_the_share_of_whom_it_is_for(monkeypatch):
    """A run that is cut as soon as it is compiled says nothing; what is over is over for others."""
    clock = [0.0]
    monkeypatch.setattr("biloop.comparison.runs.time.monotonic", lambda: clock[0])
    watch, left = Watch(False, 200.0), []
    with watch.within(0.5):
        for _ in watch.each("ab"):
            with watch.within(0.5):
                for _ in watch.each("c"):
                    with watch.aside():
                        clock[0] += 60.0
                    left.append(watch.left)
        assert watch.over()
    # Of 50 for a the half; of 40 for b, which are left of the 100.
    assert left == [25.0, 20.0]
    assert watch.left == 80.0


def test_with_a_limit_no_scheme_waits_for_all_loops_of_another():
    names = ["AID-BiO", "No-loop AID", "N-loop AID", "Adaptive", "SOBA", "SABA", "SRBA"]
    variants = named(names, (1, 5, 20), (5,), 0.1, random_quadratic().problem, batch=4)
    schemes = [variant.scheme for variant in in_turn(variants)]
    first = ["Adaptive", "No-loop AID", "SOBA", "N-loop AID", "SABA", "SRBA", "AID-BiO"]
    assert schemes[:7] == first
    assert sorted(schemes) == sorted(variant.scheme for variant in variants)


def test_a_comparison_that_is_out_of_time_has_every_scheme():
    small = bl.problems.quadratic(16.0, p=4, q=6)
    names = ["No-loop AID", "Adaptive"]
    found = bl.compare(
        small.problem, small.x0, small.y0, schemes=names, N=5, Q=5, seeds=[0], seconds=1e-3,
        budget=10**7, progress=False,
    )  # fmt: skip
    assert [each.name for each in found.schemes] == names
    assert found.verdict[0].startswith("In 0.001 s not everything could be tried")
    assert not found.interrupted
    assert found["No-loop AID"].status == "cut short"
    (waiting,) = [each for each in found.verdict if each.startswith("There was no time for")]
    assert all(name in waiting for name in names)
    (run,) = found["No-loop AID"].runs  # it did not begin, and is where all do
    assert (run.last, run.cost[-1]) == (0, 0)
    np.testing.assert_array_equal(run.norm2, found["Adaptive"].runs[0].norm2[:1])
    with pytest.raises(ValueError, match="seconds must be a finite number greater than 0"):
        bl.compare(small.problem, small.x0, small.y0, seconds=0)


def test_where_it_is_late_each_scheme_has_a_row_and_no_more(monkeypatch):
    """Of two lengths of a loop one is run, with one step size, and nothing begins anew."""
    monkeypatch.setattr(Sound, "over", lambda self: True)
    names = ["No-loop AID", "N-loop AID"]
    variants = named(names, (1, 5, 20), (1,), 0.1)
    runner = Sound()
    ranked = rank(runner, variants, 0.5, 1e-3, frozenset({"inner"}))
    assert [each.variant.title for each in ranked] == [
        "No-loop AID, N = 1, Q = 1",
        "N-loop AID, N = 5, Q = 1",
    ]
    assert runner.tried == [0.5, 0.5]
