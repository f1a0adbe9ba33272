"""A watched value: measured apart, the best point by it, early stopping, and after a restart."""

import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl

from .helpers import random_quadratic

QUADRATIC = random_quadratic()
X, Y = QUADRATIC.start()
METHOD = bl.AID(bl.GradientDescent(step_size=0.1, steps=3), bl.Richardson(step_size=0.1, steps=2))


def solve(steps=40, method=METHOD, outer=0.3, **options):
    return bl.solve(QUADRATIC.problem, X, Y, method, outer=outer, steps=steps, **options)


def distance(x, y):
    """Smallest on the way of the run, not at its end."""
    return jnp.sum((x - HALFWAY) ** 2) + jnp.sum(y**2)


@pytest.fixture(scope="module", autouse=True)
def _halfway():
    global HALFWAY
    HALFWAY = solve(steps=17).x


def test_a_run_that_is_watched_is_the_same_run():
    plain, watched = solve(), solve(watch=distance, watch_every=7)
    np.testing.assert_array_equal(plain.x, watched.x)
    np.testing.assert_array_equal(plain.y, watched.y)
    np.testing.assert_array_equal(plain.trace["value"], watched.trace["value"])
    assert plain.cost == watched.cost
    assert plain.watched == {}


def test_what_is_measured_is_the_end_of_a_shorter_run():
    run = solve(steps=40, watch=distance, watch_every=7)
    assert run.watched["k"].tolist() == [0, 7, 14, 21, 28, 35, 40]
    for k, value in zip(run.watched["k"][1:], run.watched["value"][1:], strict=True):
        end = solve(steps=int(k))
        np.testing.assert_allclose(value, distance(end.x, end.y), rtol=1e-12)


def test_the_best_point_is_kept():
    run = solve(watch=lambda x, y: jnp.sum((x - HALFWAY) ** 2), watch_every=1)
    assert (run.best.k, run.best.value) == (17, 0.0)
    np.testing.assert_array_equal(run.best.x, HALFWAY)
    np.testing.assert_array_equal(run.best.y, solve(steps=17).y)
    assert np.any(run.x != HALFWAY)


def test_of_several_numbers_the_first_decides():
    def watch(x, y):
        return {"near": jnp.sum((x - HALFWAY) ** 2), "far": -jnp.sum(x**2), "a": 1.0}

    run = solve(watch=watch, watch_every=1)
    assert list(run.watched) == ["k", "near", "far", "a"]
    assert run.best.k == 17


def test_patience_ends_the_run_and_says_so():
    run = solve(watch=lambda x, y: jnp.sum((x - HALFWAY) ** 2), watch_every=2, patience=3)
    assert run.status is bl.Status.STOPPED
    best = run.watched["k"][np.argmin(run.watched["value"])]
    assert run.steps == best + 3 * 2
    assert f"smallest at k = {best}" in run.message


def test_a_value_that_is_not_a_number_is_recorded_and_is_not_the_best():
    run = solve(steps=4, watch=lambda x, y: np.nan, watch_every=1)
    assert np.isnan(run.watched["value"]).all()
    run = solve(steps=4, watch=_nan_at_first(), watch_every=1)
    assert run.best.k == 2


def _nan_at_first():
    values = iter([np.nan, 5.0, 1.0, np.nan, 3.0])
    return lambda x, y: next(values)


def test_values_that_are_never_a_number_are_said_to_be_so():
    run = solve(watch=lambda x, y: jnp.nan, watch_every=5, patience=3)
    assert run.status is bl.Status.STOPPED
    assert "NaN in all of 4 measurements" in run.message


def test_a_run_that_was_cut_in_pieces_measures_the_same(tmp_path):
    options = {"watch": distance, "watch_every": 6, "every": 10}
    whole = solve(**options)
    for steps in (13, 24, 40):
        run = solve(steps=steps, checkpoint=tmp_path, **options)
    np.testing.assert_array_equal(whole.x, run.x)
    for name, column in whole.watched.items():
        np.testing.assert_array_equal(run.watched[name], column)
    assert whole.best.k == run.best.k
    np.testing.assert_array_equal(whole.best.x, run.best.x)
    np.testing.assert_array_equal(whole.best.y, run.best.y)


def test_a_run_out_of_patience_has_nothing_left_to_do(tmp_path):
    options = {"watch": lambda x, y: jnp.sum(HALFWAY**2), "watch_every": 2, "patience": 2}
    first = solve(checkpoint=tmp_path, **options)
    again = solve(checkpoint=tmp_path, **options)
    assert again.status is bl.Status.STOPPED
    assert again.steps == first.steps == 4
    assert again.watched["k"].tolist() == first.watched["k"].tolist()


def test_a_checkpoint_of_another_watch_is_refused(tmp_path):
    solve(steps=5, checkpoint=tmp_path, watch=distance)
    with pytest.raises(ValueError, match="another watch"):
        solve(steps=9, checkpoint=tmp_path, watch=lambda x, y: jnp.sum(y))
    with pytest.raises(ValueError, match="its state has"):
        solve(steps=9, checkpoint=tmp_path)


def valley(x, y):
    """Rosenbrock's function, in which steps that find their own size are taken back."""
    return (1 - y[0]) ** 2 + 100 * (y[1] - y[0] ** 2) ** 2


def test_the_best_point_is_none_that_would_be_taken_back():
    problem = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), valley)
    start = jnp.array([-1.2, 1.0])
    trace = bl.solve(problem, start, start, steps=30).trace
    (undone,) = np.nonzero(trace["result"] == bl.Status.UNDONE)
    assert undone.size
    steps = int(undone[0])  # the last of so many steps would be taken back by the next
    run = bl.solve(problem, start, start, steps=steps)
    assert run.best.value == run.value
    np.testing.assert_array_equal(run.best.x, run.x)
    assert run.best.k == steps - 1 == run.steps - 1
    np.testing.assert_allclose(run.best.value, trace["value"][:steps].min(), rtol=1e-6)
    np.testing.assert_allclose(valley(run.best.x, run.best.x), run.best.value, rtol=1e-6)


def test_without_a_way_back_the_end_is_the_best_point():
    run = solve(steps=5)
    assert (run.best.k, run.best.value) == (5, run.value)
    np.testing.assert_array_equal(run.best.x, run.x)


@pytest.mark.parametrize("steps", [2, 5])
def test_where_each_step_is_better_the_last_point_is_the_best(steps):
    """Also of those that could be taken back."""
    run = bl.solve(QUADRATIC.problem, X, Y, outer="auto", steps=steps)
    assert np.all(np.diff(run.trace["value"]) < 0)
    assert run.best.value == run.value < run.trace["value"][-1]
    np.testing.assert_array_equal(run.best.x, run.x)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"watch": 3.0}, "watch must be a function of x and y, got 3.0"),
        ({"patience": 3}, "patience=3 needs something to watch"),
        ({"watch": distance, "patience": 0}, "patience must be an integer of at least 1, got 0"),
        ({"watch": distance, "watch_every": 0.5}, "watch_every must be an integer of at least 1"),
        ({"watch": lambda x, y: {}}, "a number or a dict of named numbers"),
        ({"watch": lambda x, y: "good"}, "watch's value must be a number, got 'good'"),
        ({"watch": lambda x, y: jnp.ones(2)}, "watch's value must be a number"),
    ],
)
def test_what_cannot_be_watched_is_refused(options, complaint):
    with pytest.raises((TypeError, ValueError), match=complaint):
        solve(steps=2, **options)


def test_a_watched_value_is_not_what_epsilon_speaks_of():
    run = solve(steps=5, watch=lambda x, y: 0.0, watch_every=1, epsilon=1e-300)
    assert (run.status, run.steps) == (bl.Status.COMPLETED, 5)


def test_epsilon_is_compared_with_what_is_measured():
    """‖∇Φ‖² in closed form; a run whose epsilon it is ends there."""
    exact = {"method": bl.Exact(), "outer": 0.05, "steps": 20, "measure": 5}
    seen = solve(**exact).watched
    here = seen["squared_norm"][seen["k"].tolist().index(10)]
    run = solve(**exact, epsilon=float(here))
    assert (run.status, run.steps) == (bl.Status.CONVERGED, 10)
    x = np.asarray(run.x)
    np.testing.assert_allclose(here, np.sum(QUADRATIC.hypergradient(x) ** 2))
    np.testing.assert_allclose(run.y, QUADRATIC.minimiser(x))  # and not of the x before it
    np.testing.assert_allclose(run.value, QUADRATIC.value(x))


def test_looks_aside_and_the_first_chunk_leave_their_arrays_as_they_are():
    start = jnp.ones(3)  # one buffer for x and y
    problem = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: jnp.sum(x * y))
    method = bl.schemes.n_q_loop(5, 5, inner_step=0.2, linear_step=0.2)
    given = problem, start, start, method
    plain = bl.solve(*given, outer=0.1, steps=4)
    watched = bl.solve(*given, outer=0.1, steps=4, watch=lambda x, y: jnp.sum(x), watch_every=1)
    np.testing.assert_array_equal(start, np.ones(3))
    np.testing.assert_array_equal(plain.x, watched.x)
    np.testing.assert_array_equal(plain.trace["value"], watched.trace["value"])
