"""Runs on batches: resumed to the bit, swept over seeds, measured apart, and ended in words."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import biloop as bl

from ..helpers import logistic_problem, relative_error, tree_problem
from .common import Hand, path, regression

S = bl.schemes


def same(a, b):
    np.testing.assert_array_equal(a.x, b.x)
    np.testing.assert_array_equal(a.y, b.y)
    np.testing.assert_array_equal(a.v, b.v)
    for name in a.trace.columns:
        if name != "seconds":
            np.testing.assert_array_equal(a.trace[name], b.trace[name])


def strongly_convex(n=512):
    return regression(n=n, m=n, features=4)


@pytest.mark.parametrize(
    ("method", "steps"),
    [(S.saba(16, 0.2, 0.2), 2500), (S.srba(16, 0.2, 0.2, period=32), 2000)],
    ids=["saba", "srba"],
)
def test_variance_reduction_goes_to_the_end_of_double_precision(method, steps):
    problem, x, y = strongly_convex()
    run = bl.solve(problem, x, y, method, outer=1.0, steps=steps)
    h = Hand(problem).hypergradient(np.asarray(run.x))
    assert np.sum(h**2) <= 1e-24


def test_plain_directions_stay_at_a_floor_that_falls_with_the_step():
    problem, x, y = strongly_convex()
    floors = []
    for scale in (1.0, 0.1):
        method = S.soba(16, 0.1 * scale, 0.1 * scale)
        xs, *_ = path(method, problem, x, y, int(3000 / scale), 0.3 * scale)
        late = np.asarray(xs)[-1000::50]
        floors.append(np.mean([np.sum(Hand(problem).hypergradient(x) ** 2) for x in late]))
    assert floors[0] > 1e-8
    assert floors[1] < 0.3 * floors[0]


def test_resumed_to_the_same_bits_with_tables_and_keys(tmp_path):
    problem, x, y = regression()
    method = bl.SingleLoop(
        S.soba((4, 5), key=jax.random.key(7)).samples,
        0.1,
        0.1,
        {"y": bl.Saga(), "v": bl.ZeroSarah(0.3), "x": bl.Recursive(probability=0.2)},
    )
    arguments = (problem, x, y, method)
    whole = bl.solve(*arguments, outer=(0.1, -0.2), steps=60)
    kept = {"checkpoint": tmp_path / "run", "every": 10}
    bl.solve(*arguments, outer=(0.1, -0.2), steps=23, **kept)
    resumed = bl.solve(*arguments, outer=(0.1, -0.2), steps=60, **kept)
    same(whole, resumed)
    other = bl.SingleLoop(S.soba((4, 5), key=8).samples, 0.1, 0.1, method.estimators)
    with pytest.raises(ValueError, match="method"):
        bl.solve(problem, x, y, other, outer=(0.1, -0.2), steps=60, **kept)


def test_a_sweep_over_seeds_and_steps_is_single_runs():
    problem, x, y = regression()
    method = S.saba((4, 5), 0.1, 0.1, key=3)
    swept = bl.sweep(
        problem, x, y, method, outer=0.1, steps=40, seeds=range(3), over={"inner_step": [0.1, 0.2]}
    )
    assert len(swept.runs) == 6
    ends = set()
    for run, (step, seed) in zip(
        swept.runs, [(a, s) for a in (0.1, 0.2) for s in range(3)], strict=True
    ):
        key = jax.random.fold_in(jax.random.key(3), seed)
        alone = bl.solve(problem, x, y, S.saba((4, 5), step, 0.1, key=key), outer=0.1, steps=40)
        assert relative_error(run.x, alone.x) < 1e-12
        np.testing.assert_allclose(run.value, alone.value, rtol=1e-12)
        np.testing.assert_array_equal(run.trace["inner_samples"], alone.trace["inner_samples"])
        assert run.cost == alone.cost
        ends.add(float(run.value))
    assert len(ends) == 6  # other seeds, other runs


def test_seeds_reach_methods_that_are_an_axis():
    problem, x, y = regression()
    methods = {"short": S.soba((4, 5), 0.1, 0.1), "long": S.soba((4, 5), 0.2, 0.2)}
    swept = bl.sweep(
        problem, x, y, methods["short"], outer=0.1, steps=5, over={"method": methods}, seeds=[0, 1]
    )
    assert len({float(run.value) for run in swept.runs}) == 4


def test_lanes_that_stop_early_stand_still():
    """One lane diverges; the others are what they are without it, tables included."""
    problem, x, y = regression()
    swept = bl.sweep(
        problem, x, y, S.saba((4, 5), 0.1, 0.1), outer=0.1, steps=300,
        over={"inner_step": [0.1, 1e6]},
    )  # fmt: skip
    good, bad = swept.runs
    assert good.status is bl.Status.COMPLETED
    assert bad.status.failed
    assert np.all(np.isfinite(bad.x))
    assert np.all(np.isfinite(bad.y))
    alone = bl.solve(problem, x, y, S.saba((4, 5), 0.1, 0.1), outer=0.1, steps=300)
    assert relative_error(good.x, alone.x) < 1e-12


def test_vmap_over_keys_and_jit():
    problem, x, y = regression()

    def run(key):
        method = S.saba((4, 5), 0.1, 0.1, key=key)
        state = method.init(problem, x, y)

        def step(carry, k):
            h, state, _ = method(problem, carry[0], carry[1], k)
            return (carry[0] - 0.1 * h, state), None

        return jax.lax.scan(step, (x, state), jnp.arange(20))[0][0]

    keys = jax.random.split(jax.random.key(0), 3)
    many, alone = jax.jit(jax.vmap(run))(keys), jax.jit(run)
    for key, found in zip(keys, many, strict=True):
        assert relative_error(found, alone(key)) < 1e-13


def test_pytrees():
    problem, x, y = tree_problem()
    for method in (S.saba(4, 0.1, 0.1), S.stable(4, mu=0.01)):
        run = bl.solve(problem, x, y, method, outer=0.1, steps=30)
        assert jax.tree.structure(run.x) == jax.tree.structure(x)
        assert jax.tree.structure(run.y) == jax.tree.structure(y)
        assert run.status is bl.Status.COMPLETED


def test_what_is_on_batches_is_named_so():
    problem, x, y = regression()
    method = S.soba((4, 5), 0.1, 0.1, key=1)
    run = bl.solve(problem, x, y, method, outer=0.1, steps=8)
    assert "batch_value" in run.trace.columns
    assert "value" not in run.trace.columns
    with pytest.raises(KeyError, match=r"no column 'value'.*f was seen on batches only"):
        run.trace["value"]
    whole = problem.outer(run.x, run.y, *problem.outer_data)
    np.testing.assert_allclose(run.value, whole, rtol=1e-14)
    first = rows_value(problem, method, x, y)
    np.testing.assert_allclose(run.trace["batch_value"][0], first, rtol=1e-14)
    assert run.message == "All steps were done."


def rows_value(problem, method, x, y):
    batch = problem.batch(*method.samples.rows(problem, 0))
    return batch.outer(x, y, *batch.outer_data)


def test_float32():
    problem, x, y = regression(dtype=np.float32)
    run = bl.solve(problem, x, y, S.saba((4, 5), 0.1, 0.1), outer=0.1, steps=40)
    assert run.x.dtype == run.y.dtype == np.float32
    double = bl.solve(*regression(), S.saba((4, 5), 0.1, 0.1), outer=0.1, steps=40)
    assert relative_error(run.x, double.x) < 1e-5


def fixed_curvature(x, y, X, t):
    """H does not depend on x, which a v that grows without end throws far away."""
    return 0.5 * jnp.mean((X @ y - t) ** 2) + 0.15 * y @ y - x @ y


@pytest.mark.parametrize(
    ("method", "loop"),
    [
        (S.soba((4, 5), 5.0, 0.1), "inner"),
        (S.soba((4, 5), 0.1, 5.0), "linear"),
        (S.amigo((4, 5), 0.1, 5.0), "linear"),
        (S.f2sa((4, 5), 5.0), "inner"),
    ],
    ids=["soba, y", "soba, v", "amigo, v", "f2sa"],
)
def test_a_step_that_is_too_large_is_told_with_the_stable_one(method, loop):
    problem, x, y = regression()
    data = problem.inner_data, problem.outer_data
    fixed = bl.Problem(fixed_curvature, problem.outer, *data)
    run = bl.solve(fixed, x, y, method, outer=1e-12, steps=5000)
    early = bl.solve(
        fixed, x, y, method, outer=1e-12, steps=50, watch=lambda x, y: 0.0, watch_every=7
    )
    assert run.status.failed
    assert early.status is not bl.Status.UNBOUNDED  # however early it is looked at
    X = np.asarray(problem.inner_data[0])
    stable = 2 / np.linalg.eigvalsh(X.T @ X / 24 + 0.3 * np.eye(3))[-1]
    assert loop in run.message
    assert f"try {stable / 2:.4g}" in run.message
    assert np.all(np.isfinite(run.x))
    assert np.all(np.isfinite(run.y))


def test_a_hypergradient_that_is_not_finite_is_called_so():
    problem, x, y = regression()
    broken = bl.Problem(
        lambda x, y, X, t: problem.inner(x, y, X, t) + jnp.sum(jnp.sqrt(x - x) * y),
        problem.outer,
        problem.inner_data,
        problem.outer_data,
    )
    run = bl.solve(broken, x, y, S.soba((4, 5), 0.1, 0.1), outer=0.1, steps=5)
    assert run.status is bl.Status.HYPERGRADIENT_NOT_FINITE


def test_converged_only_when_measured():
    problem, x, y = regression()
    method = S.saba((4, 5), 0.1, 0.1)
    run = bl.solve(problem, x, y, method, outer=0.3, steps=5000, epsilon=1e-8, measure=100)
    assert run.status is bl.Status.CONVERGED
    assert run.steps % 100 == 0
    assert 0 < run.steps < 5000
    truth = np.sum(Hand(problem).hypergradient(np.asarray(run.x)) ** 2)
    assert truth <= 1e-8
    np.testing.assert_allclose(run.watched["squared_norm"][-1], truth, rtol=0.1)
    assert np.all(run.watched["squared_norm"][:-1] > 1e-8)
    assert list(run.watched) == ["k", "squared_norm", "value", "error"]
    without = bl.solve(problem, x, y, method, outer=0.3, steps=run.steps)
    assert without.cost == run.cost  # measured outside of cost
    assert without.status is bl.Status.COMPLETED
    # From there it is over before the first step.
    again = bl.solve(problem, run.x, run.y, method, outer=0.3, steps=99, epsilon=1e-8, measure=50)
    assert (again.status, again.steps) == (bl.Status.CONVERGED, 0)
    np.testing.assert_array_equal(again.x, run.x)


def test_outer_steps_of_optax_and_schedules():
    problem, x, y = regression()
    method = S.soba((4, 5), 0.1, 0.1)
    adam = bl.solve(problem, x, y, method, outer=optax.adam(0.01), steps=20)
    assert adam.status is bl.Status.COMPLETED
    run = bl.solve(problem, x, y, method, outer=(0.1, -0.5), steps=20)
    x_hand, state = x, method.init(problem, x, y)
    step = jax.jit(method)
    for k in range(20):
        h, state, _ = step(problem, x_hand, state, k)
        x_hand = x_hand - 0.1 * (k + 1) ** -0.5 * h
    assert relative_error(run.x, x_hand) < 1e-12


SAMPLED = [scheme for scheme in S.TABLE if scheme.sampled]
ALWAYS = {"SOBA", "SUSTAIN", "F2SA"}


@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param(s, id=s.name, marks=[] if s.name in ALWAYS else [pytest.mark.slow])
        for s in SAMPLED
    ],
)
def test_every_scheme_lowers_the_objective_with_its_defaults(scheme):
    problem, x, y = logistic_problem()
    method = scheme.function(batch=8)
    outer = (0.3, scheme.schedules[1])
    run = bl.solve(problem, x, y, method, outer=outer, steps=600, measure=600)
    assert run.status is bl.Status.COMPLETED
    assert run.watched["value"][-1] < run.watched["value"][0] - 1e-3
    assert scheme.citation
    assert scheme.complexity is not None


def fit(x, y, X, t):
    return 0.5 * jnp.mean((X @ y - t) ** 2)


def penalised_fit(x, y, X, t):
    return fit(x, y, X, t) + 0.5 * jnp.exp(x) * jnp.sum(y**2)


@pytest.mark.parametrize(("share", "told"), [(0.1, False), (0.8, True), (1.7, True)])
def test_steps_that_batches_are_too_steep_for_are_named(share, told):
    """2/L is for all samples together; two of them may be five times as steep."""
    rng = np.random.default_rng(1)
    X, V = rng.normal(size=(64, 5)), rng.normal(size=(48, 5))
    w = rng.normal(size=5)
    data = (X, X @ w + rng.normal(size=64)), (V, V @ w + rng.normal(size=48))
    problem = bl.Problem(penalised_fit, fit, *data)
    step = share / (np.linalg.eigvalsh(X.T @ X / 64)[-1] + 1)
    run = bl.solve(problem, 0.0, jnp.zeros(5), S.amigo(2, step, step), outer=0.02, steps=300)
    assert run.status is (bl.Status.DIVERGED if share > 1 else bl.Status.COMPLETED)
    steep = np.linalg.norm(X, axis=1).max() ** 2 + np.exp(float(run.x))
    assert ("on some of the batches" in run.message) == told
    if told:
        named = float(run.message.split("on some of the batches, ")[1].split(",")[0])
        assert 2 / steep <= named < step
