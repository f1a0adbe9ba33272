"""schemes.auto(batch=…): a part of the samples that grows, and ends on all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop.run.growth import pays

from ..helpers import relative_error
from .common import Hand, regression

METHOD = bl.schemes.auto(batch=8)  # parts of at least 64 rows


def many(n=1024, repeated=False):
    """Least squares, whose parts are 64 and 1024 rows."""
    problem, x, y = regression(n=n, m=n, features=4)
    if repeated:
        few = [tuple(np.asarray(a)[:64] for a in data) for data in (problem.inner_data,
               problem.outer_data)]  # fmt: skip
        data = [tuple(np.tile(a, (n // 64, *[1] * (a.ndim - 1))) for a in pair) for pair in few]
        problem = bl.Problem(problem.inner, problem.outer, *data)
    return problem, x, y


@pytest.fixture(scope="module")
def runs():
    problem, x, y = many()
    return problem, bl.solve(problem, x, y, METHOD), bl.solve(problem, x, y)


def test_it_ends_on_all_rows_where_full_batches_end(runs):
    problem, run, full = runs
    assert run.status is full.status is bl.Status.CONVERGED
    first = Hand(problem).hypergradient(np.full(4, -1.0))
    assert relative_error(run.x, full.x) < 1e-3
    assert np.linalg.norm(Hand(problem).hypergradient(np.asarray(run.x))) < 1e-3 * np.linalg.norm(
        first
    )
    assert run.value == pytest.approx(float(problem.outer(run.x, run.y, *problem.outer_data)))
    words = (
        "Of the 1024 inner and 1024 outer samples it used 64 and 64 from step 0 on, all from step"
    )
    assert words in run.message


def test_what_it_costs_is_in_passes_over_all_rows(runs):
    _, run, full = runs
    drawn = run.trace["inner_samples"]
    sizes = np.gcd.reduce(np.diff(drawn, prepend=0).reshape(-1, 1), axis=1)
    assert sizes[0] % 64 == 0 and sizes[0] < 1024  # noqa: PT018
    assert sizes[-1] % 1024 == 0
    grown = np.flatnonzero(sizes % 1024)[-1] + 1  # the first step on all rows
    assert f"all from step {grown} on." in run.message
    passes = (drawn[-1] + run.trace["product_samples"][-1] + run.trace["outer_samples"][-1]) / 1024
    assert run.cost.total == pytest.approx(passes)
    assert run.cost.total < full.cost.total


def test_rows_that_repeat_are_not_paid_for():
    problem, x, y = many(repeated=True)
    run, full = bl.solve(problem, x, y, METHOD), bl.solve(problem, x, y)
    assert run.status is full.status is bl.Status.CONVERGED
    assert relative_error(run.x, full.x) < 1e-3
    assert run.cost.total < 0.9 * full.cost.total


def test_a_part_is_left_when_half_of_its_gain_does_not_hold_beyond():
    assert pays(float("inf"), float("inf"))  # the first look
    assert pays(1.0, 0.6)
    assert pays(1e-9, 1e-9)  # slow, but as good as steps on more rows, which cost more
    assert not pays(1.0, 0.4)
    assert not pays(1.0, -0.1)  # the part is learned by heart
    assert not pays(1.0, float("nan"))


def test_it_looks_at_as_many_rows_beyond_a_part(runs):
    problem, run, _ = runs
    method = bl.Growing(bl.schemes.auto(), 8, key=3)
    first, last = method.parts(problem)
    mine, beyond = method.rows(problem, first).outer, method.beyond(problem, first)
    assert len(mine) == len(beyond) == 64
    assert not set(mine) & set(beyond)
    assert method.beyond(problem, last) is None
    drawn = np.diff(run.trace["outer_samples"], prepend=0)[:5]  # f and ∇f; a look after two steps
    np.testing.assert_array_equal(drawn, [128, 128, 192, 128, 192])


def test_weights_of_samples_begin_with_all_rows():
    """A part would learn the weights of its own rows, and end where they are others."""
    problem, _, _ = many()
    weighted = bl.Problem(
        lambda x, y, X, t: jnp.mean(jax.nn.sigmoid(x) * (X @ y - t) ** 2) + 0.1 * y @ y,
        problem.outer, problem.inner_data, problem.outer_data, per_sample=lambda x: x,
    )  # fmt: skip
    assert len(METHOD.parts(weighted)) == 1
    assert len(METHOD.parts(problem)) == 2


def test_an_outer_step_of_a_given_size_grows_as_well():
    problem, x, y = many()
    run = bl.solve(problem, x, y, METHOD, outer=1.0, steps=60)
    assert "all from step" in run.message
    assert run.trace["batch_value"][-1] < run.trace["batch_value"][0]


def test_few_rows_are_all_used_at_once():
    problem, x, y = regression(n=200, m=100)
    run, full = bl.solve(problem, x, y, METHOD), bl.solve(problem, x, y)
    np.testing.assert_array_equal(run.x, full.x)
    assert run.cost == full.cost
    assert "samples it used" not in run.message


@pytest.mark.slow  # a program for each part, twice
def test_resumed_to_the_same_bits_also_across_parts(runs, tmp_path):
    problem, once, _ = runs
    _, x, y = many()
    for steps in (5, 1000):
        run = bl.solve(problem, x, y, METHOD, checkpoint=tmp_path, every=1, steps=steps)
    end = min(run.steps, once.steps)
    assert end > 5
    for name in ("batch_value", "hypergradient_norm", "outer_samples"):
        np.testing.assert_array_equal(run.trace[name][:end], once.trace[name][:end])


def test_a_run_that_is_cut_short_has_the_value_on_all_rows():
    problem, x, y = many()
    run = bl.solve(problem, x, y, METHOD, steps=2)
    assert run.value == pytest.approx(float(problem.outer(run.x, run.y, *problem.outer_data)))
    assert "64 and 64 from step 0 on." in run.message


def test_it_says_why_it_begins_with_all_rows():
    problem, x, y = regression(n=64, m=64, features=4)
    run = bl.solve(problem, x, y, bl.schemes.auto(batch=8), steps=1)
    few = "It used all inner samples from the first step on: 64 are fewer than 128 batches of 8."
    assert few in run.message
    with pytest.raises(ValueError, match="A batch of 65 is larger than inner_data, which has 64"):
        bl.solve(problem, x, y, bl.schemes.auto(batch=65), steps=1)


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
