"""The parts of a comparison: how numbers are tuned, runs judged, and verdicts worded."""

import math
import re
from dataclasses import replace
from inspect import signature
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import biloop as bl
from biloop.comparison import batches, terms
from biloop.comparison.certificates import certify
from biloop.comparison.driver import BUDGET
from biloop.comparison.measuring import ACCURACY, norms2
from biloop.comparison.race import least_of_schemes, rank, refine
from biloop.comparison.tuning import tops, tune
from biloop.methods.reference import SMALL, measure

from .comparing import (
    AIM,
    FINER,
    FINEST,
    RATIO,
    Gauge,
    Sound,
    Watch,
    finished,
    made_up,
    named,
    outcome,
    recommended,
    runner,
    variant,
    verdict,
)
from .helpers import random_quadratic

ADAPTIVE = "Adaptive"
NAMES = {"no": "No-loop AID", "n": "N-loop AID", "q": "Q-loop AID", "nq": "N-Q-loop AID"}
LENGTHS = {"no": (1, 1), "n": (9, 1), "q": (1, 9), "nq": (9, 9)}
PAGE = Path(__file__).parents[1] / "docs" / "compare.md"


def test_measuring_by_conjugate_gradients():
    """Where y is not small: ∇Φ to 1 %, against the closed form."""
    quadratic = bl.problems.quadratic(30.0, p=3, q=SMALL + 6)
    x = np.stack([np.asarray(quadratic.x0) * s for s in (1.0, 2.0, -1.0, 5.0)])
    y = np.zeros((4, SMALL + 6))
    truth = Gauge(quadratic.problem, quadratic.y0, Watch(False)).truth(x, y, y)
    assert truth.found.all()
    for i in range(4):
        exact = quadratic.hypergradient(x[i])
        assert np.linalg.norm(truth.h[i] - exact) <= 0.01 * np.linalg.norm(exact)
        assert norms2(truth)[i] == pytest.approx(np.sum(exact**2), rel=0.02)
        np.testing.assert_allclose(truth.value[i], quadratic.value(x[i]), rtol=1e-2)


@pytest.mark.slow
def test_runs_side_by_side_are_the_runs_alone(monkeypatch):
    """The same snapshots to rounding, for a number of runs that does not fill the program."""
    small = bl.problems.quadratic(16.0, p=20, q=30)
    (loops,) = named(["N-Q-loop AID"], (1, 3), (1, 3), 0.05)
    making = runner(small.problem, [(small.x0 + i, small.y0) for i in range(3)], budget=200)
    begin = list(zip((0.01, 0.02, 0.05), making.points, strict=True))
    alone = making.runs(loops, begin)
    monkeypatch.setattr(type(making), "_reads_much", lambda *_: True)
    together = making.runs(loops, begin, width=2)
    for one, other in zip(alone, together, strict=True):
        assert np.array_equal(one.cost, other.cost)
        assert one.status is other.status is bl.Status.BUDGET_SPENT
        np.testing.assert_allclose(one.snapshots[-1].x, other.snapshots[-1].x, rtol=1e-9)
        assert np.all(np.diff(other.trace["seconds"]) > 0)


def test_the_outer_step_is_found_inside_or_beyond_the_grid():
    def scores(best):
        return lambda steps: [(math.inf, 0.0, abs(math.log(step / best))) for step in steps]

    for best in (1.0, 0.2, 1e-5, 3e4):
        step, *_ = tops(tune(scores(best), scale=1.0))
        assert best / FINER / 1.01 <= step <= best * FINER * 1.01

    def only_small(steps):
        bad = math.inf, math.inf, math.inf
        return [(math.inf, 0.0, -step) if step < 1e-4 else bad for step in steps]

    assert tops(tune(only_small, scale=1.0))[0] < 1e-4

    def two_hills(steps):
        return [(math.inf, 0.0, abs(math.log(step / 0.1)) * abs(math.log(step / 40) - 1))
                for step in steps]  # fmt: skip

    assert len(tops(tune(two_hills, scale=1.0))) == 2

    # Each further grid has one number in common with what is known, and goes to one side.
    for best in (1e-5, 3e4):
        found = sorted(tune(scores(best), scale=1.0))
        assert len(found) in (9 + 8, 9 + 2 * 8)
        ratios = np.asarray(found[1:]) / np.asarray(found[:-1])
        np.testing.assert_allclose(ratios, RATIO, rtol=0.02)


def test_the_target_follows_its_rule():
    start = 100.0
    # Half of the schemes get further than 1e-4 of the start: that it is.
    assert terms.choose_norm2(start, [1e-9, 1e-3, 5.0, math.inf]) == 0.01
    # Otherwise one and a half times what half of them get to, rounded up.
    assert terms.choose_norm2(start, [1e-9, 0.2, 5.0, math.inf]) == 0.3
    assert terms.choose_norm2(start, [math.inf, math.inf, math.inf]) == 50.0
    assert terms.value_bar(10.0, [0.0, 0.2, 9.0, math.inf]) == pytest.approx(0.69)
    assert terms.value_bar(10.0, [0.0, 4.0, 9.0, math.inf]) == pytest.approx(4.3)
    assert terms.value_bar(10.0, [11.0, 12.0]) == 10.0
    assert terms.value_bar(10.0, []) == 10.0
    assert terms.median([1.0, math.inf]) == math.inf
    assert terms.median([3.0, 1.0, 2.0]) == 2.0


def test_starts_lie_around_the_given_one_or_come_from_a_function():
    x0, y0 = np.arange(3.0), np.zeros(2)
    points = terms.spread_starts(x0, y0, [4, 5], np.array([3.0, 4.0]), length=2.0)
    assert np.array_equal(points[0].x, x0)
    assert np.linalg.norm(points[1].x - x0) == pytest.approx(0.2)
    assert np.linalg.norm(points[1].y - y0) == pytest.approx(0.5)
    again = terms.spread_starts(x0, y0, [4, 5], np.array([3.0, 4.0]), length=2.0)
    assert np.array_equal(points[1].x, again[1].x)
    drawn = terms.spread_starts(lambda seed: x0 + seed, y0, [4, 5], y0, length=2.0)
    assert np.array_equal(drawn[1].x, x0 + 5)


@given(arrival=st.integers(1, 40), guess=st.integers(0, 41), last=st.integers(40, 60))
def test_the_arrival_is_found_whatever_the_run_believes_of_itself(arrival, guess, last):
    """By few measurements where its own ‖h‖² is right, and by halving where it is not."""
    run = made_up(1, np.full(last + 1, np.nan), own=np.where(np.arange(last) < guess, 1.0, 0.0))
    run.measured[:] = False
    while (j := run.unknown(AIM)) is not None:
        assert not run.measured[j]
        run.measured[j], run.norm2[j], run.value[j] = True, float(j < arrival), 0.0
    assert run.arrival(AIM) == arrival
    assert np.sum(run.measured) <= (3 if guess == arrival else 10)


def test_how_a_run_ended():
    def ending(norm2, **given):
        return made_up(10, norm2, **given).ending(AIM)

    assert ending([1.0, 0.5, 0.01, 0.02]) == "converged"
    assert made_up(10, [1.0, 0.5, 0.01, 0.02]).to_target(AIM) == 20
    # Who passes by and leaves again has not arrived.
    assert made_up(10, [1.0, 0.01, 0.5, 0.02]).to_target(AIM) == 30
    assert made_up(10, [1.0, 0.01, 0.5, 0.5]).arrival(AIM) is None
    assert ending([1.0, 0.9, 0.8, 0.4, 0.2]) == "budget spent"
    assert ending([1.0, 0.5, 0.5, 0.49, 0.48]) == "floored"
    assert ending([1.0, 0.5, 20.0]) == "diverged"
    # A first long step that was taken back: the gradient is larger, but Φ has fallen.
    assert ending([1.0, 0.5, 20.0], value=[3.0, 4.0, 2.5]) == "budget spent"
    assert ending([1.0, 0.5, math.nan]) == "not measured"
    # A gradient that vanishes far away, at a value that is worth nothing, is not the target.
    assert made_up(10, [1.0, 0.01, 0.001], value=[5.0, 5.0, 5.0]).arrival(AIM) is None


def test_on_batches_a_single_small_gradient_is_luck():
    def drawn(norm2):
        run = made_up(10, norm2)
        run.method = bl.schemes.soba(4)
        return run

    assert made_up(10, [1.0, 0.5, 0.5, 0.5, 0.02]).to_target(AIM) == 40
    assert drawn([1.0, 0.5, 0.5, 0.5, 0.02]).arrival(AIM) is None
    assert drawn([1.0, 0.5, 0.5, 0.02, 0.02]).arrival(AIM) is None
    assert drawn([1.0, 0.5, 0.02, 0.02, 0.02]).to_target(AIM) == 20
    assert batches._to_level(drawn([1.0, 0.1, 0.6, 0.1, 0.1, 0.1]), 0.2, AIM) == 30
    assert batches._to_level(drawn([1.0, 0.6, 0.6, 0.1, 0.1]), 0.2, AIM) == math.inf
    assert batches._to_level(made_up(10, [1.0, 0.1, 0.6]), 0.2, AIM) == 10


@pytest.mark.parametrize("status", [s for s in bl.Status if s.failed])
def test_a_run_that_fails_never_arrives(status):
    run = made_up(10, [1.0, 0.01, 0.01], status=status)
    assert run.ending(AIM) == "diverged"
    assert run.to_target(AIM) == math.inf
    assert run.score(AIM) == (math.inf, math.inf, math.inf)


@pytest.mark.parametrize("scale", [1e-4, 0.02, 0.75, 30.0])
def test_each_round_of_tuning_gets_closer_to_the_best_stable_number(scale):
    making = Sound()
    (tuned,) = rank(making, [variant("No-loop AID")], scale, 0.1, frozenset())
    assert 1 / RATIO <= tuned.best(AIM) <= 1
    (refined,) = refine(making, [tuned], AIM)
    assert 1 / FINEST <= refined.best(AIM) <= 1
    # What runs that failed came by does not count when the target is chosen.
    wrong = refined.runs[max(refined.runs)]
    assert wrong.status.failed
    wrong.value[-1] = -1e3
    assert least_of_schemes([refined], lambda run: run.value[-1:]) == [0.0]


def said(**costs):
    outcomes = [outcome(NAMES[key], costs[key], *LENGTHS[key]) for key in NAMES if key in costs]
    if "auto" in costs:
        outcomes.append(outcome(ADAPTIVE, costs["auto"], number=None))
    return verdict(outcomes), recommended(outcomes).name


def test_the_verdict_in_words():
    both = {"q": [500, 500], "nq": [400, 400]}
    words, _ = said(no=[300, 330], n=[100, 100], **both)
    assert words[0].startswith("An N-loop pays: the best without one, No-loop AID (N = 1, Q = 1)")
    assert "takes 3.3 times (3.0 to 3.3 over the seeds)" in words[0]
    assert "100 gradients instead of 330" in words[0]
    assert "0.1 s instead of 0.33 s" in words[0]
    assert words[1].startswith("A Q-loop does not pay: the best with one, N-Q-loop AID")

    words, _ = said(no=[100, 100], n=[105, 90], **both)
    assert words[0].startswith("An N-loop makes no difference beyond the noise")
    assert "which is within the noise" in words[-1]

    words, _ = said(no=[100, 400], n=[150, 150], **both)  # the starts do not agree
    assert words[0].startswith("An N-loop makes no difference beyond the noise")

    words, _ = said(no=[None, None], n=[100, 100], q=[None, 300], nq=[100, 100])
    assert words[0].startswith("An N-loop pays: N-loop AID (N = 9, Q = 1) takes 100 gradients")
    assert "which no AID scheme without one reaches from most starts" in words[0]

    words, _ = said(no=[90, 90], n=[None, None], q=[100, 100], nq=[None, None])
    assert words[0].startswith("An N-loop does not pay: No-loop AID (N = 1, Q = 1) takes 90")

    nobody = {key: [None, None] for key in ("no", "n", "q", "nq")}
    words, _ = said(**nobody)
    assert words[0].startswith("An N-loop: not decided, as no AID scheme reaches the target")
    assert "No-loop AID (N = 1, Q = 1) stagnates before the target, at ‖∇Φ‖² = 1." in words
    assert "nobody reaches the target from most starts" in words[-1]


def test_the_reference_says_how_far_off_it_may_be():
    """With κ = 10⁴ in float32 by a thousandth; a second look from its own end would say 0."""
    quadratic = random_quadratic(q=6, kappa=1e4, dtype=np.float32)
    x, y = (jnp.asarray(a, jnp.float32) for a in quadratic.start())
    look = jax.jit(lambda x: measure(quadratic.problem, x, y, jnp.zeros_like(y), accuracy=0.1))
    for i in range(8):
        at = x * (1 + 0.1 * i) + 1.0
        seen, exact = look(at), quadratic.hypergradient(np.asarray(at, float))
        true = np.linalg.norm(np.asarray(seen.h) - exact)
        assert true < float(seen.error) < 5e-3 * np.linalg.norm(exact)


def test_who_ends_at_another_place_where_the_gradient_vanishes_is_named():
    stuck = outcome("N-loop AID", [100, 100], 9, 1)
    for run in stuck.runs:
        run.value[:] = AIM.value + 0.5
    words = verdict([stuck, outcome("No-loop AID", [300, 300])])
    assert any("N-loop AID (N = 9, Q = 1) ends where ‖∇Φ‖² is 0.01 but Φ above" in w for w in words)


def test_who_is_recommended():
    few = {"no": [300, 300], "n": [100, 100], "q": [500, 500], "nq": [400, 400]}
    assert said(**few, auto=[300, 300])[1] == "N-loop AID"
    # Within the noise of the cheapest, what needs no tuning wins.
    assert said(**few, auto=[104, 108])[1] == ADAPTIVE
    assert said(**few, auto=[80, 80])[1] == ADAPTIVE
    assert said(no=[None], n=[None], auto=[50])[1] == ADAPTIVE
    # Not where it is ahead from one of the starts only.
    assert said(**few, auto=[90, 130])[1] == "N-loop AID"


@pytest.mark.parametrize(("rate", "told"), [(0.75e-3, False), (0.6e-3, True)])
def test_who_is_ahead_in_time_is_told_beyond_its_noise(rate, told):
    """100 gradients and products in 0.1 s, against 0.09 or 0.072 s for 120."""
    first, second = outcome("N-loop AID", [100], 9, 1), outcome("No-loop AID", [120])
    advice = verdict([first, replace(second, rate=rate)])[-1]
    assert advice.startswith("Use N-loop AID (N = 9, Q = 1): ")
    assert "the next best, No-loop AID (N = 1, Q = 1), takes 1.2 times" in advice
    assert ("In time No-loop AID (N = 1, Q = 1) is ahead: " in advice) == told


def test_where_nobody_arrives_phi_counts_before_its_gradient():
    """A gradient that is small far from the target says less than a Φ that is near it."""
    near, far = outcome("N-loop AID", [None], 9, 1), outcome("No-loop AID", [None])
    for each, value, norm2 in ((near, 1.5, 0.9), (far, 9.0, 0.2)):
        each.runs[0].value[-1], each.runs[0].norm2[-1] = value, norm2
    assert recommended([far, near]) is near
    for each in (near, far):
        each.runs[0].value[-1] = 0.0
    assert recommended([near, far]) is far


def test_loops_that_are_not_asked_for_are_left_out():
    names = {each.scheme for each in named(None, (1,), (1, 5), 0.1)}
    assert names == {"No-loop AID", "Q-loop AID", "No-loop ITD", "BA", ADAPTIVE}


def test_the_loop_that_is_named_is_the_one_that_pays():
    """Only the Q-loop pays, then only the N-loop."""
    words, _ = said(no=[400, 400], n=[390, 390], q=[100, 100], nq=[105, 105])
    assert words[0].startswith("An N-loop makes no difference")
    assert words[1].startswith("A Q-loop pays: the best without one, N-loop AID (N = 9, Q = 1)")
    words, _ = said(no=[400, 400], n=[100, 100], q=[390, 390], nq=[105, 105])
    assert words[0].startswith("An N-loop pays: the best without one, Q-loop AID (N = 1, Q = 9)")
    assert words[1].startswith("A Q-loop makes no difference")


@pytest.mark.parametrize(("times", "word"), [(1.09, "makes no difference"), (1.11, "pays")])
def test_what_counts_as_noise_is_the_spacing_of_the_snapshots(times, word):
    cost = 1000 * times
    words, _ = said(no=[cost, cost], n=[1000, 1000], q=[5000, 5000], nq=[5000, 5000])
    assert words[0].startswith(f"An N-loop {word}")


def test_costs_are_compared_from_the_same_start():
    """Sorted, each cost of one side is 1.5 times one of the other; by start they disagree."""
    words, _ = said(no=[300, 150], n=[100, 200], q=[5000, 5000], nq=[5000, 5000])
    assert words[0].startswith("An N-loop makes no difference beyond the noise")
    assert "(0.33 to 1.3 over the seeds)" in words[0]


def test_one_start_has_no_range():
    words, _ = said(no=[330], n=[100], q=[500], nq=[400])
    assert "takes 3.3 times the gradients and products of N-loop AID" in words[0]
    assert "over the seeds" not in " ".join(words)


def test_a_single_tuned_step_is_called_luck():
    lucky = outcome("No-loop AID", [20, 20], steps=1)
    others = [outcome(NAMES[key], [100, 100], *LENGTHS[key]) for key in ("n", "q", "nq")]
    words = verdict([lucky, *others])
    told = "No-loop AID (N = 1, Q = 1) is at the target after a single outer step: that is the luck"
    assert any(word.startswith(told) for word in words)
    untuned = outcome(ADAPTIVE, [20, 20], number=None, steps=1)
    assert not any("luck" in word for word in verdict([untuned, *others]))


def test_failures_are_told_with_their_cause():
    one = outcome("No-loop AID", [20, 20, 20])
    bad = made_up(10, [1.0, 0.01], status=bl.Status.INNER_NOT_FINITE)
    some = replace(one, runs=(*one.runs[:2], bad), cause="The step is too long.")
    assert some.status == "converged"
    assert some.failures == 1
    told = "No-loop AID (N = 1, Q = 1) fails from 1 of 3 starts: The step is too long."
    assert told in verdict([some])
    every = replace(one, runs=(bad, bad, bad), cause="The step is too long.")
    assert every.cost == math.inf
    assert "No-loop AID (N = 1, Q = 1) diverges: The step is too long." in verdict([every])


def test_starts_from_which_a_scheme_fails_count_twice():
    arrives, stands = outcome("No-loop AID", [20, None]).runs
    fails = made_up(10, [1.0, 0.01], status=bl.Status.INNER_NOT_FINITE)
    runs = [arrives, stands, fails]
    assert [finished(None, 0.1, [run]).misses for run in runs] == [0, 1, 2]
    assert finished(None, 0.1, runs).misses == 3


def test_certificates_stand_beside_the_mean_that_was_measured():
    """‖∇Φ‖² is halved in each step. Of BA, or an infinite bound, there is nothing to show."""
    run = made_up(10, [16.0, 8.0, 4.0, 2.0, 1.0])
    runs = {"N-Q-loop AID": run, "BA": run}
    constants, start = bl.theory.Constants(2.0, 1.0, 0.0, 1.0), bl.theory.Start(1.0, 1.0, 1.0)
    (found,) = certify(runs, constants, start, 0.1)
    assert found["scheme"] == "N-Q-loop AID"
    assert found["statement"].startswith("Corollary 3 with N = ")
    assert found["K"] == [1, 2, 3, 4]
    np.testing.assert_allclose(found["measured"], [16, 24 / 2, 28 / 3, 30 / 4])
    bound = bl.theory.SCHEMES[found["scheme"]](constants, start, 0.1).certificate.bound
    np.testing.assert_allclose(found["bound"], [bound(K) for K in found["K"]])
    assert not list(certify(runs, constants, bl.theory.Start(1e308, 1.0, 1.0), 0.1))


def test_numbers_on_the_page_are_those_of_the_code():
    page, default = PAGE.read_text(encoding="utf-8"), signature(bl.compare).parameters["N"].default
    assert f"by default from {', '.join(map(str, default))}" in page
    assert f"(default {BUDGET:,})" in page
    assert f"at most {SMALL} entries" in page
    assert f"changes by less than {100 * ACCURACY:.0f} %" in page


@pytest.mark.slow
def test_the_code_of_the_page_runs(tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(block, {})
    assert (tmp_path / "runs.csv").exists()


def test_a_gradient_whose_square_overflows_is_infinitely_far():
    h = np.array([[1e200, 0.0], [3.0, 4.0], [0.0, 0.0]])
    found = SimpleNamespace(h=h, found=np.array([True, True, False]))
    np.testing.assert_array_equal(norms2(found), [np.inf, 25.0, np.nan])
