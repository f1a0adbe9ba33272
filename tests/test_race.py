"""Newton's method or momentum: who trains y, where g is not convex."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl

from .test_restarts import noisy

AFTER = 3  # steps by Newton, after which the race begins
# Where anything is chosen there is no race.
ALONE = replace(bl.schemes.auto(), derivatives=bl.Autodiff(recompute=False))


def spent(run):
    return run.trace["gradients"] + run.trace["products"]


@pytest.fixture(scope="module")
def won():
    """A run in which momentum wins."""
    return bl.solve(*noisy(15, 8))


@pytest.fixture(scope="module")
def lost():
    """A run in which Newton wins: inputs in units so different that one step size is too few."""
    return bl.solve(*noisy(15, 8, seed=23, scale=10.0))


def is_whole(run, problem):
    """What is handed back belongs together."""
    np.testing.assert_allclose(
        run.value, problem.outer(run.x, run.y, *problem.outer_data), rtol=1e-6
    )
    assert (run.cost.gradients, run.cost.products) == (
        run.trace["gradients"][-1],
        run.trace["products"][-1],
    )
    np.testing.assert_array_equal(run.trace["k"], np.arange(len(run.trace)))


def test_momentum_goes_on_where_it_finds_less_for_as_much(won):
    is_whole(won, noisy(15, 8)[0])
    assert won.status is bl.Status.SETTLED
    assert "trained by momentum" in won.message
    values, results = won.trace["value"], won.trace["result"]
    by_newton = values[:AFTER][results[:AFTER] != bl.Status.UNDONE].min()
    ahead = AFTER + int(np.argmax(values[AFTER:] < by_newton))
    assert spent(won)[ahead] <= 2 * spent(won)[AFTER - 1] + 8
    assert won.value == values.min()
    assert f"those of k = {np.argmin(values)}," in won.message
    assert np.all(results[AFTER:] == bl.Status.NONCONVEX)  # as h is biased
    # 5 steps of y, f, and ∇ₓ∇ᵧg
    np.testing.assert_array_equal(np.diff(won.trace["gradients"])[AFTER - 1 :], 7)
    np.testing.assert_array_equal(np.diff(won.trace["products"])[AFTER - 1 :], 1)


def test_newton_goes_on_as_if_nothing_had_been_where_momentum_finds_no_less(lost):
    problem, x0, y0 = noisy(15, 8, seed=23, scale=10.0)
    is_whole(lost, problem)
    assert "momentum" not in lost.message
    c, values = spent(lost), lost.trace["value"]
    back = int(np.argmax(c >= 2 * c[AFTER - 1])) + 1  # the first row of Newton after the race
    assert values[AFTER:back].min() >= values[:AFTER].min()
    alone = bl.solve(problem, x0, y0, ALONE)
    np.testing.assert_array_equal(np.delete(values, slice(AFTER, back)), alone.trace["value"])
    assert lost.value == alone.value
    assert eqx.tree_equal((lost.x, lost.y), (alone.x, alone.y))
    assert c[-1] - spent(alone)[-1] == c[back - 1] - c[AFTER - 1] > 0


@pytest.mark.parametrize("at", [AFTER, AFTER + 2, 12])
@pytest.mark.parametrize("which", ["won", "lost"])
def test_killed_in_the_race_and_after_it_a_run_ends_in_the_same_bits(which, at, request, tmp_path):
    whole = request.getfixturevalue(which)
    problem, x0, y0 = noisy(15, 8) if which == "won" else noisy(15, 8, seed=23, scale=10.0)
    stop = bl.solve(
        problem, x0, y0, checkpoint=tmp_path, every=1, callback=lambda here: here.k >= at
    )
    assert stop.status is bl.Status.STOPPED
    assert stop.steps == at
    is_whole_at_stop = problem.outer(stop.x, stop.y, *problem.outer_data)
    np.testing.assert_allclose(stop.value, is_whole_at_stop, rtol=1e-6)
    resumed = bl.solve(problem, x0, y0, checkpoint=tmp_path, every=1)
    assert resumed.message == whole.message
    assert resumed.value == whole.value
    assert eqx.tree_equal((resumed.x, resumed.y), (whole.x, whole.y))
    np.testing.assert_array_equal(resumed.trace["value"], whole.trace["value"])


def at_scale(problem, unit):
    """The problem in other units of g, f, x and y, which are data: no program is made anew."""

    def part(function, which):
        def scaled(x, y, X, T, unit):
            arrays, rest = eqx.partition(y, eqx.is_inexact_array)
            y = eqx.combine(jax.tree.map(lambda a: a / unit["y"], arrays), rest)
            return unit[which] * function(x / unit["x"], y, X, T)

        return scaled

    return bl.Problem(
        part(problem.inner, "g"),
        part(problem.outer, "f"),
        (*problem.inner_data, unit),
        (*problem.outer_data, unit),
    )


@pytest.mark.slow
def test_the_race_has_no_scale():
    """In powers of two, which change no bit but the exponents'."""
    problem, _, y0 = noisy(15, 8)
    ones = {name: jnp.ones(()) for name in "gfxy"}
    scaled = at_scale(problem, ones)
    arrays, rest = eqx.partition(y0, eqx.is_inexact_array)

    def run(unit):
        given = eqx.tree_at(
            lambda p: (p.inner_data, p.outer_data),
            scaled,
            ((*problem.inner_data, unit), (*problem.outer_data, unit)),
        )
        y = eqx.combine(jax.tree.map(lambda a: unit["y"] * a, arrays), rest)
        return bl.solve(given, unit["x"] * np.linspace(0.5, 1.5, 15), y, steps=40)

    plain = run(ones)
    assert "by momentum" in plain.message
    for name in ones:
        unit = ones | {name: jnp.full((), 2.0**20)}
        other = run(unit)
        assert "by momentum" in other.message
        np.testing.assert_array_equal(other.trace["result"], plain.trace["result"])
        value = float(unit["f"]) * plain.trace["value"]
        np.testing.assert_allclose(other.trace["value"], value, rtol=1e-6)


def barrier(target):
    """The domain of g ends shortly before the minimum that its slope leads to."""

    def inner(x, y, X):
        return jnp.mean(X) * (50.0 * jnp.cos(3.0 * y[1]) - jnp.sum(jnp.log(1.0 - y**2)) + x @ y)

    problem = bl.Problem(inner, lambda x, y: jnp.sum((y - target) ** 2), (np.ones(1),))
    return problem, np.zeros(2), np.array([0.5, 1e-3])


def test_a_momentum_that_leaves_where_g_is_defined_has_lost():
    first = bl.solve(*barrier(np.zeros(2)), ALONE, steps=3)
    run = bl.solve(*barrier(np.asarray(first.y)), steps=20)
    left = run.trace["result"] == bl.Status.INNER_NOT_FINITE
    assert left.sum() == 1
    assert not run.status.failed
    assert "momentum" not in run.message
    assert np.all(np.abs(run.y) < 1)


def test_after_the_race_it_begins_again_with_shorter_steps():
    run = bl.solve(*barrier(np.full(2, 0.3)), steps=40)
    left = np.flatnonzero(run.trace["result"] == bl.Status.INNER_NOT_FINITE)
    assert len(left) > 0
    assert not run.status.failed
    assert "by momentum" in run.message
    assert np.all(np.abs(run.y) < 1)
    assert run.value == np.nanmin(run.trace["value"][3:])
    np.testing.assert_array_equal(run.trace["k"], np.arange(len(run.trace)))
