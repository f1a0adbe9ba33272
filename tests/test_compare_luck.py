"""What decides nothing in a comparison: a single tuned step, noise, and who had no time."""

import re
from dataclasses import replace
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from benchmarks.verdicts import ridge
from biloop.comparison.race import best_shares
from biloop.comparison.tuning import Tuned
from biloop.comparison.verdict import ratio

from .comparing import (
    AIM,
    Gauge,
    MeasuredRun,
    Snapshot,
    Target,
    Watch,
    finished,
    made_up,
    runner,
    variant,
    verdict,
)


def going_on(name, cost_per_step, norm2, sampled=False, number=0.1, value=None):
    """A scheme whose two runs have this ‖∇Φ‖² after 0, 1, 2, … steps; on batches, or on all."""
    runs = [made_up(cost_per_step, norm2, value) for _ in range(2)]
    method = bl.schemes.soba(4) if sampled else bl.schemes.auto()
    for run in runs:
        run.method = method
    return finished(variant(name, method, N=1, Q=1), number, runs)


def about(what, outcomes):
    """The first sentence on it: the crossover follows."""
    return next(word for word in verdict(outcomes) if re.match(f"{what}( |:)", word))


def test_a_single_tuned_step_does_not_decide_whether_sampling_or_a_loop_pays():
    """After it the lucky one stands: at 0.1 it is ahead with 5, at 0.05 it never is."""
    lucky = going_on("N-Q-loop AID", 5, [1.0, 0.09, 0.09, 0.09, 0.09, 0.09])
    sampled = going_on("SOBA", 10, [1.0, 0.5, 0.09, 0.04, 0.04, 0.04], sampled=True)
    slow = going_on("No-loop AID", 40, [1.0, 0.5, 0.5, 0.5, 0.09, 0.04])
    others = [sampled, slow]
    told = about("Sampling", [lucky, *others])
    assert told.startswith(
        "Sampling pays: the best without one, No-loop AID (N = 1, Q = 1), takes "
    )
    assert "takes 6.7 times" in told  # 200 instead of 30
    assert "The target is ‖∇Φ‖² ≤ 0.05 here: at 0.1 N-Q-loop AID (N = 1, Q = 1) is ahead by" in told
    words = verdict([lucky, *others])
    cheaper = "Sampling is cheaper at every accuracy that was reached, down to ‖∇Φ‖² = 0.04."
    assert f"{cheaper} Who is at the target after a single tuned step is left out of this." in words
    assert cheaper in verdict(others)
    assert words[-1].startswith("Use SOBA (N = 1, Q = 1): 20 gradients")
    assert "the next best, No-loop AID (N = 1, Q = 1), takes 8.0 times" in words[-1]
    # Luck is no advice either where nobody else arrives.
    missing = going_on("SOBA", 10, [1.0, 0.5, 0.4, 0.3, 0.3, 0.2], sampled=True)
    nobody = "Use SOBA (N = 1, Q = 1): nobody reaches the target from most starts but by luck, "
    assert verdict([lucky, missing])[-1].startswith(nobody)
    told = about("An N-loop", [lucky, *others])
    assert told.startswith("An N-loop: not decided, as N-Q-loop AID")  # nobody else has one
    # It was not tuned for anything else, so that nobody without samples is left.
    assert about("Sampling", [lucky, sampled]).startswith("Sampling: not decided, as N-Q-loop AID")
    # Luck that is no help leaves the decision to the others; so does one step that is not tuned.
    dear = going_on("N-Q-loop AID", 500, [1.0, 0.09, 0.09, 0.09, 0.09, 0.09])
    assert "The target" not in about("Sampling", [dear, *others])
    assert about("Sampling", [dear, *others]).startswith("Sampling pays")
    untuned = replace(lucky, number=None)
    assert about("Sampling", [untuned, *others]).startswith("Sampling does not pay")
    # Who goes on after a lucky step is ahead by more than luck.
    good = going_on("N-Q-loop AID", 5, [1.0, 0.09, 0.04, 0.04, 0.04, 0.04])
    assert about("Sampling", [good, *others]).startswith("Sampling does not pay")
    assert "takes 3.0 times" in about("Sampling", [good, *others])  # 30 instead of 10


def test_a_level_on_the_way_to_the_target():
    start = Target(10.0, 3.0)  # AIM is two digits and 2 of Φ away
    assert AIM.level(1.0, start) == pytest.approx((1.0, 2.0))
    assert AIM.level(20.0, start) == (20.0, 3.0)
    assert AIM.level(0.1, start) == (0.1, 1.0)
    assert AIM.level(0.01, start) == (0.01, 1.0)
    assert AIM.level(0.05, Target(0.05, 3.0)) == (0.05, 1.0)


def test_a_gradient_that_vanishes_far_away_is_no_crossover():
    """No-loop ITD is thrown to where ∇Φ is a thousandth, and Φ what the target does not allow."""
    sampled = going_on("SOBA", 10, [1.0, 0.5, 0.09, 0.04, 0.04, 0.04], sampled=True)
    full = going_on("No-loop AID", 40, [1.0, 0.5, 0.5, 0.09, 0.08, 0.04])

    def other(value):
        return going_on("No-loop ITD", 20, [1.0, 0.9, 1e-3, 1e-3], value=[2.0, 2.0, *value])

    told = "Sampling is cheaper at every accuracy that was reached, down to ‖∇Φ‖² = 0.04."
    assert told in verdict([sampled, full, other([1.95, 1.95])])
    arrived = verdict([sampled, full, other([0.5, 0.5])])
    assert any(each.startswith("The crossover is at ‖∇Φ‖² = 0.04") for each in arrived), arrived


FAR = 20.0  # an x to which noise may carry a run: exp(x) is 5e8
SOBA = bl.schemes.soba(4, inner_step=0.1, linear_step=0.1)


def ended_at(method, places):
    """A run with its snapshots at x = places, in a problem of three features."""
    snapshots = (
        Snapshot(k, jnp.full(3, x), jnp.zeros(3), jnp.zeros(3)) for k, x in enumerate(places)
    )
    run = made_up(1, np.zeros(len(places)))
    return MeasuredRun(tuple(snapshots), run.status, method, run.record)


def test_loops_on_batches_are_not_blamed_for_where_noise_carried_x():
    """At x = −3 the curvature is about 1, and a step of 0.1 is right; at 20 it is not."""
    problem, x0, _ = ridge(60, features=3)
    making, places = runner(problem), [float(x0[0]), FAR]
    assert not making.excess(ended_at(SOBA, places))
    blamed = making.excess(ended_at(bl.schemes.no_loop(inner_step=0.1, linear_step=0.1), places))
    assert {each.loop for each in blamed} == {"inner", "linear"}
    # Where it began, a loop on batches is at fault.
    assert making.excess(ended_at(SOBA, [FAR, float(x0[0])]))


@pytest.mark.parametrize(("norm2", "looks"), [(0.0, 1), (np.inf, 5)])
def test_a_run_on_batches_that_misses_is_measured_at_its_end_only(norm2, looks, monkeypatch):
    """One that is at the target there is looked at several times: 5 of 6 snapshots."""
    monkeypatch.setattr("biloop.comparison.measuring._LARGE", 0)  # a measurement is not cheap
    problem, x0, y0 = ridge(60, features=3)
    run = ended_at(SOBA, [float(x0[0])] * 6)
    Gauge(problem, y0, Watch(False)).find_arrivals([run], Target(norm2, np.inf))
    assert run.measured[-1]
    assert np.sum(run.measured) == looks


def test_of_the_steps_of_a_loop_on_batches_the_best_is_refined():
    def tuned(name, cost):
        return Tuned(variant(name), {0.1: made_up(cost, [1.0, 0.01])})

    worse, better = tuned("SOBA", 20), tuned("SOBA", 10)
    full = [tuned("N-loop AID", 20), tuned("N-loop AID", 10)]
    assert best_shares([*full, worse, better], AIM) == [*full, better]


def test_parts_of_a_pass_are_compared_as_they_are():
    few, many, there = (SimpleNamespace(costs=[c, c]) for c in (0.02, 0.08, 0.0))
    assert ratio(many, few).middle == pytest.approx(4)
    assert ratio(few, there).middle == 1.0
    assert ratio(SimpleNamespace(costs=[50, 50]), there).middle == 50


def cut_after(steps):
    """N-loop AID, for which there was time for so many steps that cost 3 each."""
    run = made_up(3, [1.0] * (steps + 1), status=bl.Status.INTERRUPTED)
    return replace(going_on("N-loop AID", 3, [1.0]), runs=(run,))


def test_who_had_no_time_decides_nothing():
    """Nor is anybody said to miss the target within a budget that was not spent."""
    rival = going_on("No-loop AID", 10, [1.0, 0.5, 0.01, 0.01])  # 20 to the target
    for steps in (0, 6, 7):
        words = verdict([rival, cut_after(steps)])
        undecided = "An N-loop: not decided, as there was no time for a scheme with one."
        assert (words[0] == undecided) == (steps < 7)
        named = "There was no time for N-loop AID (N = 1, Q = 1)." in words
        assert named == (steps == 0)
        spent = f"N-loop AID (N = 1, Q = 1) was cut short after {3 * steps} of the budget."
        assert (spent in words) == (steps > 0)
    assert "reaches from most starts in the time that they had." in words[0]


def test_where_nobody_arrives_it_says_by_what_a_scheme_is_the_nearest():
    """By Φ first: beside ‖∇Φ‖² alone another of the table would look better."""

    def ended(name, N, Q, value, norm2):
        return finished(variant(name, N=N, Q=Q), 0.1, [made_up(1, [1.0, norm2], [4.0, value])])

    words = verdict(
        [
            ended("No-loop AID", 1, 1, 3.0, 0.5),
            ended("N-loop AID", 9, 1, 2.5, 0.8),
            ended("Q-loop AID", 1, 9, 2.0, 0.9),
        ]
    )
    assert "the nearest ends at Φ = 2.5, ‖∇Φ‖² = 0.8 with one" in words[0]
    assert "at Φ = 2, ‖∇Φ‖² = 0.9 without (Q-loop AID" in words[0]
    assert words[-1].endswith("it ends nearest, at Φ = 2, ‖∇Φ‖² = 0.9.")
