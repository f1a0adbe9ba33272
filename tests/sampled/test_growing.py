"""schemes.auto(batch=…): batches with steps that nobody tunes, then all samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop.run.growth import Growth

from ..helpers import relative_error
from .common import Hand, regression

METHOD = bl.schemes.auto(batch=4)  # 256 batches of `many`


def many(n=1024):
    """Least squares with a penalty for each of four features."""
    return regression(n=n, m=n, features=4)


@pytest.fixture(scope="module")
def runs():
    problem, x, y = many()
    return problem, bl.solve(problem, x, y, METHOD), bl.solve(problem, x, y)


def phi(problem, x):
    return float(bl.Measurement(problem)(x, jnp.zeros(4))["value"])


def test_it_ends_on_all_rows_where_full_batches_end(runs):
    problem, run, full = runs
    assert run.status is full.status is bl.Status.CONVERGED
    assert relative_error(run.x, full.x) < 1e-3
    first, last = (np.linalg.norm(Hand(problem).hypergradient(np.asarray(x)))
                   for x in (np.full(4, -1.0), run.x))  # fmt: skip
    assert last < 1e-3 * first
    assert run.value == pytest.approx(float(problem.outer(run.x, run.y, *problem.outer_data)))
    words = "Of the 1024 inner and 1024 outer samples it used batches of 4 and 4 from step 0 on, "
    assert words + "all from step" in run.message


def test_what_it_costs_is_counted_to_the_last_row(runs):
    """32 steps of y and v come first; curvature is measured every 64 steps, by 32 products."""
    _, run, _ = runs
    steps = {
        n: np.diff(run.trace[f"{n}_samples"], prepend=0) for n in ("inner", "outer", "product")
    }
    assert [steps[n][0] for n in steps] == [33 * 4, 34 * 4, (34 + 32) * 4]
    whole = int(run.message.rpartition("all from step ")[2].split(" ")[0])
    looked = np.where(np.arange(1, whole) % 64 == 0, 32, 0)
    np.testing.assert_array_equal(steps["inner"][1:whole], 4)
    np.testing.assert_array_equal(steps["outer"][1:whole], 2 * 4)
    np.testing.assert_array_equal(steps["product"][1:whole], (2 + looked) * 4)
    assert not np.any(steps["inner"][whole:] % 1024)
    total = sum(run.trace[f"{n}_samples"][-1] for n in steps)
    assert run.cost.total == pytest.approx(total / 1024)


def test_few_passes_lead_farther_than_on_all_rows(runs):
    problem, _, full = runs
    _, x, y = many()
    short = bl.solve(problem, x, y, METHOD, budget=8)
    assert short.cost.total < 8.1
    assert bl.solve(problem, x, y, budget=8).cost.total >= 8
    gaps = [phi(problem, z) - full.value for z in (x, short.x)]
    assert gaps[1] < 0.3 * gaps[0]
    assert "batches of 4 and 4 from step 0 on." in short.message
    assert short.value == pytest.approx(float(problem.outer(short.x, short.y, *problem.outer_data)))


def test_no_scale_of_f_and_g_matters(runs):
    """Steps of y are by the curvature of g, those of x by what h has been."""
    problem, _, _ = runs
    _, x, y = many()
    large = bl.Problem(
        lambda *a: 2.0**20 * problem.inner(*a), lambda *a: 2.0**-20 * problem.outer(*a),
        problem.inner_data, problem.outer_data,
    )  # fmt: skip
    first, second = (bl.solve(p, x, y, METHOD, steps=100) for p in (problem, large))
    np.testing.assert_allclose(second.x, first.x, rtol=1e-9)


def test_penalties_that_grow_do_not_make_y_diverge():
    """exp(x) y² with x up to 30 in one entry: a step for all of y would be 1e-13."""
    problem, _, y = many()
    steep = jnp.asarray([30.0, -1.0, -1.0, -1.0])
    run = bl.solve(problem, steep, y, METHOD, outer=1e-9, steps=600)
    X, t = map(np.asarray, problem.inner_data)
    exact = np.linalg.solve(X.T @ X / len(X) + np.diag(np.exp(run.x)), X.T @ t / len(X))
    assert np.linalg.norm(run.y - exact) < 0.3 * np.linalg.norm(exact)


def weighted(problem):
    return bl.Problem(
        lambda x, y, X, t: jnp.mean(jax.nn.sigmoid(x["w"]) * (X @ y - t) ** 2)
        + jnp.exp(x["p"]) * y @ y,
        lambda x, y, X, t: problem.outer(x["w"], y, X, t),
        problem.inner_data, problem.outer_data, per_sample=lambda x: x["w"],
    )  # fmt: skip


def test_weights_of_samples_move_when_they_are_drawn():
    """The first draw moves an entry by twice its unit, 1 where x is zero."""
    problem, _, y = many()
    x = {"w": jnp.zeros(1024), "p": jnp.full((), -3.0)}
    run = bl.solve(weighted(problem), x, y, METHOD, steps=3)
    moved = np.abs(run.x["w"])
    assert 4 <= np.count_nonzero(moved) <= 12
    assert np.max(moved) == pytest.approx(2.0)
    many_steps = np.sum(np.arange(1, 65) ** -0.5)  # until the curvature is looked at again
    one = bl.solve(weighted(problem), x, y, METHOD, steps=1)
    assert abs(one.x["p"] + 3.0) == pytest.approx(2 * 3.0 / many_steps)


def test_where_f_stands_still_y_is_calmed_and_x_goes_on(monkeypatch):
    """Steps of x become shorter by themselves."""
    problem, _, y = many()
    still = bl.Problem(
        problem.inner, lambda x, y, X, t: problem.outer(0 * x, 0 * y, X, t) + 1e-3 * x @ x,
        problem.inner_data, problem.outer_data,
    )  # fmt: skip
    found, original = [], Growth._shorten

    def shorten(self, back):
        before = self._engine.state
        original(self, back)
        after = self._engine.state
        assert jax.tree.all(
            jax.tree.map(lambda a, b: bool((a == b).all()), after.outer, before.outer)
        )
        found.append(float(after.method.batches.share / before.method.batches.share))

    monkeypatch.setattr(Growth, "_shorten", shorten)
    bl.solve(still, jnp.zeros(4), y, METHOD, steps=1200)
    assert set(found) == {0.5}


def test_where_f_is_not_finite_it_goes_back_and_on():
    problem, x, y = many()
    wall = bl.Problem(
        problem.inner,
        lambda x, y, *data: jnp.where(jnp.max(jnp.abs(x)) > 1.8, jnp.nan, 1.0)
        * problem.outer(x, y, *data),
        problem.inner_data, problem.outer_data,
    )  # fmt: skip
    run = bl.solve(wall, x, y, METHOD, budget=6)
    assert np.all(np.isfinite(run.trace["batch_value"][-5:]))
    assert not run.status.failed
    assert np.max(np.abs(run.x)) <= 1.8


def test_a_box_is_kept_on_batches():
    problem, x, y = many()
    run = bl.solve(problem, x, y, METHOD, outer=bl.Projected("auto", bl.Box(-1.2, -0.8)), budget=4)
    assert np.min(run.x) >= -1.2
    assert np.max(run.x) <= -0.8


def test_an_outer_step_of_a_given_size_is_used_on_batches_as_well():
    problem, x, y = many()
    run, once = (bl.solve(problem, x, y, METHOD, outer=1.0, steps=k) for k in (60, 1))
    np.testing.assert_allclose(
        np.linalg.norm(once.x - x), once.trace["hypergradient_norm"][0], rtol=1e-6
    )
    assert phi(problem, run.x) < phi(problem, x)


def test_few_rows_are_all_used_at_once():
    problem, x, y = regression(n=200, m=100)
    method = bl.schemes.auto(batch=8)
    run, full = bl.solve(problem, x, y, method), bl.solve(problem, x, y)
    np.testing.assert_array_equal(run.x, full.x)
    assert run.cost == full.cost
    few = "It used all inner samples from the first step on: 200 are fewer than 256 batches of 8."
    assert few in run.message
    with pytest.raises(ValueError, match="A batch of 201 is larger than inner_data, which has 200"):
        bl.solve(problem, x, y, bl.schemes.auto(batch=201), steps=1)


@pytest.mark.slow  # both programs, several times
@pytest.mark.parametrize("steps", [5, 700])
def test_resumed_to_the_same_bits_also_across_the_change(runs, tmp_path, steps):
    problem, once, _ = runs
    _, x, y = many()
    bl.solve(problem, x, y, METHOD, checkpoint=tmp_path, every=1, budget=0.05 * steps)
    run = bl.solve(problem, x, y, METHOD, checkpoint=tmp_path, every=1, budget=1000)
    for name in ("batch_value", "hypergradient_norm", "outer_samples"):
        np.testing.assert_array_equal(run.trace[name][: once.steps], once.trace[name][: run.steps])


def test_a_sweep_refuses_what_changes_in_the_middle():
    problem, x, y = many()
    with pytest.raises(TypeError, match="call solve for each, or give auto"):
        bl.sweep(problem, x, y, METHOD, outer="auto", steps=3, over={"outer": ["auto"]})
    few = many(200)
    bl.sweep(*few, METHOD, outer=0.1, steps=1, over={"outer": [0.1]})  # is auto() there


def test_losses_that_are_sums_are_refused():
    problem, x, y = many()
    sums = bl.Problem(
        lambda x, y, X, t: jnp.sum((X @ y - t) ** 2) + jnp.sum(jnp.exp(x) * y**2),
        problem.outer, problem.inner_data, problem.outer_data,
    )  # fmt: skip
    with pytest.raises(ValueError, match="inner must be a mean over its samples"):
        bl.solve(sums, x, y, METHOD)
    with pytest.raises(ValueError, match="batch must be"):
        bl.schemes.auto(batch=0)
    with pytest.raises(TypeError, match="of Growing must be an AID"):
        bl.Growing(bl.schemes.soba(4), 4)
