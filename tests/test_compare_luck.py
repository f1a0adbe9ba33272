"""What decides nothing in a comparison: a single tuned step, and where noise has carried x."""

import re
from dataclasses import replace

import biloop as bl
from biloop.comparison.candidates import Settings, Variant
from biloop.comparison.result import Outcome
from biloop.comparison.verdict import verdict

from .comparing import AIM, made_up


def going_on(name, cost_per_step, norm2, sampled=False, number=0.1):
    """A scheme whose two runs have this ‖∇Φ‖² after 0, 1, 2, … steps; on batches, or on all."""
    runs = [made_up(cost_per_step, norm2) for _ in range(2)]
    method = bl.schemes.soba(4) if sampled else bl.schemes.auto()
    for run in runs:
        run.method = method
    variant = Variant(name, Settings(method, None), 1, 1, "", search="outer")
    return Outcome(variant, number, tuple(runs), AIM, rate=1e-3)


def about(what, outcomes):
    """The first sentence on it: the crossover follows."""
    return next(word for word in verdict(outcomes, 1000) if re.match(f"{what}( |:)", word))


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
