"""A failed run says why and what to try, and keeps what was good before."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import biloop as bl
from biloop.run.diagnosis import inner_tridiagonal

from .helpers import (
    advanced,
    logistic_problem,
    quadratic_inner,
    quadratic_outer,
    random_quadratic,
    stepped,
)

QUADRATIC = random_quadratic()
X, Y = QUADRATIC.start()
DATA = QUADRATIC.problem.inner_data
INNER = bl.GradientDescent(step_size=0.1, steps=5)
METHOD = bl.AID(INNER, bl.Richardson(step_size=0.1, steps=5))


def solve(problem=QUADRATIC.problem, method=METHOD, x=X, y=Y, outer=0.05, steps=200, **more):
    return bl.solve(problem, x, y, method, outer=outer, steps=steps, **more)


def changed(**changes):
    """The quadratic problem with other entries in its data."""
    data = (DATA[0] | changes,)
    return bl.Problem(quadratic_inner, quadratic_outer, data, data)


def test_inner_step_size_too_large_is_named_with_the_largest_stable_one():
    method = bl.AID(
        bl.GradientDescent(step_size=1.0, steps=50), bl.Richardson(step_size=0.1, steps=5)
    )
    run = solve(method=method)
    assert run.status is bl.Status.DIVERGED
    assert f"largest stable one, {2 / QUADRATIC.L:.4g}" in run.message
    assert f"; try {1 / QUADRATIC.L:.4g}." in run.message
    assert "inner step size 1 " in run.message
    assert np.all(np.isfinite(run.x))
    assert np.all(np.isfinite(run.y))
    assert run.steps == len(run.trace) == 2  # the first whose residual is above that of another


def test_slow_divergence_is_named_before_it_overflows():
    method = bl.AID(
        bl.GradientDescent(step_size=2.02 / QUADRATIC.L, steps=5),
        bl.Richardson(step_size=0.1, steps=5),
    )
    run = solve(method=method, steps=105)
    assert run.status is bl.Status.DIVERGED
    assert run.trace["inner_residual"][-1] < 1e5 * run.trace["inner_residual"][0]
    assert f"largest stable one, {2 / QUADRATIC.L:.4g}" in run.message
    assert "residual grew from" in run.message


def test_growth_without_a_cause_is_not_called_divergence():
    """Started at the inner solution, the residual grows from nothing, which is no divergence."""
    method = bl.AID(
        bl.GradientDescent(step_size=1 / QUADRATIC.L, steps=1),
        bl.Richardson(step_size=1 / QUADRATIC.L, steps=1),
    )
    run = solve(method=method, y=jnp.asarray(QUADRATIC.minimiser(X)))
    assert run.trace["inner_residual"].max() > 1e3 * run.trace["inner_residual"][0]
    assert run.status is bl.Status.COMPLETED


@pytest.mark.parametrize("linear", [bl.Richardson, bl.Neumann])
def test_linear_step_size_too_large(linear):
    run = solve(method=bl.AID(INNER, linear(step_size=1.0, steps=500)))
    assert run.status is bl.Status.DIVERGED
    assert "linear step size 1 is above the largest stable one" in run.message


def test_outer_step_size_too_large():
    run = solve(outer=1e3, steps=2000)
    assert run.status.failed
    assert "the outer step size is too large" in run.message
    assert np.all(np.isfinite(run.x))


def test_outer_update_that_is_not_finite():
    """The state before the update is returned, also when the update is the last step of a chunk."""
    broken = optax.GradientTransformation(
        lambda x: jnp.zeros((), jnp.int32),
        lambda h, k, x: (jnp.where(k == 7, jnp.nan, -0.01) * h, k + 1),
    )
    reference = solve(outer=0.01, steps=7)
    for steps in (8, 9, 200):
        run = solve(outer=broken, steps=steps)
        assert run.status is bl.Status.UPDATE_NOT_FINITE
        assert run.steps == 7
        np.testing.assert_allclose(run.x, reference.x, rtol=1e-12)
        np.testing.assert_array_equal(run.trace["k"], np.arange(8))
        np.testing.assert_array_equal(run.trace["result"], [0] * 7 + [run.status])


@pytest.mark.parametrize("entry", ["A", "c"])
def test_nan_in_the_inner_data(entry):
    bad = np.array(DATA[0][entry])
    bad.flat[2] = np.nan
    run = solve(changed(**{entry: bad}))
    assert run.status is bl.Status.INNER_NOT_FINITE
    assert f"inner_data[0]['{entry}'] contains 1 values that are NaN" in run.message
    np.testing.assert_array_equal(run.x, X)


def test_nan_in_the_outer_data():
    problem, x, y = logistic_problem()
    V, labels = problem.outer_data
    bad = bl.Problem(
        problem.inner, problem.outer, problem.inner_data, (V.at[0, 0].set(jnp.nan), labels)
    )
    run = solve(bad, x=x, y=y)
    assert run.status is bl.Status.OUTER_NOT_FINITE
    assert "outer_data[0] contains 1 values" in run.message


@pytest.mark.parametrize("method", [bl.schemes.no_loop(1.0, 1.0), bl.schemes.itd_no_loop(1.0)])
def test_a_y_where_f_is_not_finite_is_not_kept(method):
    """h = 1 at x = 1, so that x becomes −2, and f is the logarithm of y = x."""
    problem = bl.Problem(lambda x, y: 0.5 * (y - x) ** 2, lambda x, y: jnp.log(y))
    run = bl.solve(problem, 1.0, 0.5, method, outer=3.0, steps=5)
    assert run.status is bl.Status.OUTER_NOT_FINITE
    assert (float(run.x), float(run.y)) == (-2.0, 1.0)


def test_hypergradient_that_is_not_finite():
    """√x has an infinite derivative at 0, although g and its y-derivatives are finite."""
    problem = bl.Problem(
        lambda x, y: jnp.sum((y - jnp.sqrt(x)) ** 2), lambda x, y: jnp.sum((y - 1.0) ** 2)
    )
    run = solve(problem, x=jnp.zeros(2), y=jnp.zeros(2))
    assert run.status is bl.Status.HYPERGRADIENT_NOT_FINITE


def test_indefinite_hessian_under_cg():
    indefinite = changed(A=np.diag([1.0, 1.0, 1.0, 1.0, 1.0, -1e-3]))
    run = solve(indefinite, bl.AID(INNER, bl.CG(steps=6)))
    assert run.status is bl.Status.INDEFINITE
    assert "has the eigenvalue -0.001" in run.message
    assert "not convex" in run.message


def test_an_h_that_is_zero_since_a_loop_failed_is_blamed_on_that_alone():
    problem = bl.Problem(lambda x, y: jnp.sum((y**2 - x) ** 2), lambda x, y: jnp.sum((y - 3) ** 2))
    run = solve(problem, bl.AID(INNER, bl.CG(steps=6)), x=jnp.ones(2), y=jnp.zeros(2))
    assert run.status is bl.Status.INDEFINITE
    assert run.trace["hypergradient_norm"].tolist() == [0.0]
    assert "no way from x to f" not in run.message


def test_indefinite_hessian_under_richardson_diverges_and_says_why():
    indefinite = changed(A=np.diag([1.0, 1.0, 1.0, 1.0, 1.0, -5.0]))
    run = solve(indefinite, bl.AID(INNER, bl.Richardson(step_size=0.1, steps=2000)))
    assert run.status is bl.Status.LINEAR_NOT_FINITE
    assert "has the eigenvalue -5" in run.message


@pytest.mark.parametrize("linear", [bl.CG(steps=8), bl.Dense()], ids=["cg", "dense"])
def test_singular_hessian(linear):
    singular = changed(A=np.diag([1.0, 1.0, 1.0, 1.0, 1.0, 0.0]))
    run = solve(singular, bl.AID(INNER, linear))
    assert run.status is bl.Status.SINGULAR
    assert "singular" in run.message


def test_newton_that_finds_no_minimiser():
    problem = bl.Problem(
        lambda x, y: jnp.sum(jnp.exp(-y)) + 0.0 * jnp.sum(x), lambda x, y: jnp.sum(y)
    )
    run = solve(problem, bl.Exact(), x=jnp.zeros(1), y=jnp.zeros(1))
    assert run.status is bl.Status.NEWTON_FAILED


def test_float16_overflow_is_reported():
    big = jnp.full(3, 300.0, jnp.float16)
    problem = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: jnp.sum(y**2) ** 2)
    run = solve(problem, x=big, y=big)
    assert run.status is bl.Status.OUTER_NOT_FINITE


def test_unconverged_loops_are_counted_in_the_message():
    method = bl.AID(bl.GradientDescent(step_size=0.1, steps=2, tolerance=1e-12), bl.CG(steps=6))
    run = solve(method=method, steps=10)
    assert run.status is bl.Status.UNCONVERGED
    assert "In 10 of 10 steps a loop stopped before its residual reached" in run.message


def test_throw_raises_and_keeps_the_run():
    with pytest.raises(bl.RunFailed, match="contains 6 values") as caught:
        solve(changed(c=np.full(6, np.inf)), throw=True)
    assert caught.value.run.status is bl.Status.INNER_NOT_FINITE


def test_throw_is_silent_about_success():
    assert solve(steps=3, throw=True).status is bl.Status.COMPLETED


def test_single_hypergradient_carries_its_code():
    problem = changed(c=np.full(6, np.nan))
    h, _, info = stepped(METHOD, problem, X, Y)
    assert int(info.result) == bl.Status.INNER_NOT_FINITE
    assert not np.all(np.isfinite(h))


def test_failed_lane_of_a_batch_does_not_spoil_the_others():
    sizes = jnp.asarray([0.1, 10.0, 0.05])
    method = bl.ITD(bl.GradientDescent(step_size=0.1, steps=2000))

    def one(step_size):
        trial = eqx.tree_at(lambda m: m.inner.step_size, method, step_size)
        h, _, info = trial(QUADRATIC.problem, X, trial.init(QUADRATIC.problem, X, Y), 0)
        return h, info.result

    h, results = jax.jit(jax.vmap(one))(sizes)
    np.testing.assert_array_equal(results, [0, bl.Status.INNER_NOT_FINITE, 0])
    assert np.all(np.isfinite(h[jnp.asarray([0, 2])]))


@pytest.mark.parametrize("chunk_seconds", [1e-9, 10.0], ids=["step by step", "at once"])
def test_the_row_that_failed_is_the_one_that_is_marked(monkeypatch, chunk_seconds):
    """g has no minimum where x > 1, which the fourth outer step is the first to see."""
    monkeypatch.setattr("biloop.run.progress._CHUNK_SECONDS", chunk_seconds)
    problem = bl.Problem(
        lambda x, y: jnp.sum(0.5 * y**2 * jnp.where(x > 1.0, jnp.nan, 1.0)),
        lambda x, y: -jnp.sum(x) + jnp.sum(y**2),
    )
    seen = []
    run = solve(
        problem,
        x=jnp.zeros(1),
        y=jnp.zeros(1),
        outer=0.3,
        steps=9,
        callback=lambda p: seen.append(p.k),
    )
    assert seen[-1] == 4
    assert run.status is bl.Status.INNER_NOT_FINITE
    np.testing.assert_array_equal(run.trace["result"], [0, 0, 0, 0, run.status])
    np.testing.assert_allclose(run.x, 1.2)
    assert run.steps == 4
    assert run.message.startswith("Outer step k = 4: ")


@pytest.mark.parametrize(
    "method",
    [
        bl.AID(bl.GradientDescent("auto", 4), bl.CG(4)),
        bl.AID(bl.GradientDescent(0.1, "auto"), bl.CG("auto")),
        bl.AID(bl.Optax(optax.adam(0.1), 4, carry_state=True), bl.Richardson(0.1, 4)),
        bl.ITD(bl.GradientDescent("auto", 4)),
        bl.schemes.auto(),
        bl.Exact(),
    ],
    ids=["automatic", "adaptive", "optax", "ITD", "newton", "exact"],
)
def test_what_a_failed_inner_loop_leaves_is_not_kept(method):
    """After NaN in the inner data the state is what it was, so that a run can go on from it."""
    _, before, info = stepped(method, QUADRATIC.problem, X, Y)
    assert int(info.result) < 10
    _, after, info = advanced(method, changed(c=np.full(6, np.nan)), X, before, jnp.asarray(1))
    assert int(info.result) >= 10
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(after))
    np.testing.assert_array_equal(after.y, before.y)
    if not isinstance(method, bl.Exact):
        assert eqx.tree_equal(after.inner, before.inner)


@pytest.mark.parametrize(
    "linear", [bl.CG("auto"), bl.CG(6), bl.Richardson("auto", 300)], ids=["adaptive", "cg", "rich"]
)
def test_what_a_failed_linear_loop_leaves_is_not_kept(linear):
    method = bl.AID(INNER, linear)
    _, before, info = stepped(method, QUADRATIC.problem, X, Y)
    assert int(info.result) < 10
    _, after, info = advanced(method, changed(t=np.full(6, np.nan)), X, before, jnp.asarray(1))
    assert int(info.result) == bl.Status.OUTER_NOT_FINITE
    np.testing.assert_array_equal(after.v, jnp.zeros_like(Y))
    assert eqx.tree_equal(after.linear, before.linear)


def test_every_status_has_a_sentence():
    for status in bl.Status:
        assert status.sentence.endswith(".")
        assert status.failed == (status >= 10)


def test_gradient_of_f_that_is_not_finite_is_blamed_on_f():
    """A norm at zero: f is finite there, its gradient is not."""
    inner = lambda x, y: jnp.sum((y - x) ** 2)  # noqa: E731
    for outer in (lambda x, y: jnp.linalg.norm(y), lambda x, y: jnp.linalg.norm(x) + jnp.sum(y)):
        run = solve(bl.Problem(inner, outer), x=jnp.zeros(2), y=jnp.zeros(2))
        assert run.status is bl.Status.OUTER_NOT_FINITE


def penalised(outer):
    problem = bl.Problem(exponential, half_square)
    method = bl.schemes.n_q_loop(10, 10, inner_step=0.2, linear_step=0.2)
    return bl.solve(problem, jnp.zeros(()), jnp.zeros(2), method, outer=outer, steps=20)


def exponential(x, y):
    return 0.5 * jnp.sum((y - 1) ** 2) + 0.5 * jnp.exp(x) * jnp.sum(y**2)


def half_square(x, y):
    return 0.5 * jnp.sum(y**2)


def test_no_step_size_is_named_that_no_step_could_have():
    """The outer step drives a penalty to e¹⁰⁰⁰: not the inner step of 0.2 is to be changed."""
    run = penalised(outer=1e3)
    assert run.status is bl.Status.DIVERGED
    assert "x has run away: the outer step size is too large" in run.message
    assert "largest stable one, " not in run.message


def test_the_largest_h_is_told_where_a_later_one_is_not_finite():
    run = penalised(outer=1e4)
    first, last = run.trace["hypergradient_norm"]
    assert np.isnan(last)
    assert f"‖h‖ was {first:.3g} at its largest" in run.message


def test_a_step_size_is_not_blamed_for_what_it_did_not_do():
    """The inner step size is too large, but after one step it is log(x) that fails."""
    problem = bl.Problem(
        lambda x, y: 1.5 * jnp.sum((y - x) ** 2), lambda x, y: jnp.sum(jnp.log(x) + y**2)
    )
    run = solve(problem, bl.schemes.no_loop(0.7, 0.3), x=-jnp.ones(1), y=jnp.zeros(1))
    assert run.status is bl.Status.OUTER_NOT_FINITE
    assert "inner step size 0.7" in run.message  # worth knowing all the same


def test_masked_values_are_not_blamed():
    data = ({"t": np.array([1.0, np.nan])},)
    problem = bl.Problem(
        lambda x, y, d: jnp.sum(
            jnp.where(jnp.isnan(d["t"]), 0.0, y - x - jnp.nan_to_num(d["t"])) ** 2
        ),
        lambda x, y: jnp.sum(y**2),
        inner_data=data,
    )
    run = solve(
        problem,
        bl.AID(bl.GradientDescent(step_size=2.0, steps=500), bl.Dense()),
        x=jnp.zeros(2),
        y=jnp.zeros(2),
    )
    assert run.status.failed
    assert "inner_data" not in run.message


def test_infinite_x_that_the_problem_swallows_is_noticed_at_once():
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum((y - jax.nn.sigmoid(x)) ** 2),
        lambda x, y: 0.5 * jnp.sum((y - 2.0) ** 2),
    )
    blow_up = optax.sgd(lambda k: jnp.where(k == 11, jnp.inf, 0.1))
    run = solve(problem, x=jnp.zeros(2), y=jnp.zeros(2), outer=blow_up, steps=100)
    assert run.status is bl.Status.UPDATE_NOT_FINITE
    assert run.steps == 11
    assert len(run.trace) == 12
    assert np.all(np.isfinite(run.x))


def test_schedules_that_give_nan_are_reported():
    bad_steps = bl.GradientDescent(step_size=0.1, steps=lambda k: jnp.nan + 0.0 * k.astype(float))
    run = solve(method=bl.AID(bad_steps, bl.CG(steps=3)))
    assert run.status is bl.Status.BAD_SCHEDULE
    negative = bl.GradientDescent(step_size=0.1, steps=lambda k: 2 - k)
    run = solve(method=bl.AID(negative, bl.CG(steps=3)))
    assert run.status is bl.Status.BAD_SCHEDULE
    assert run.steps == 3
    bad_tolerance = bl.GradientDescent(step_size=0.1, steps=4, tolerance=lambda k: jnp.nan)
    run = solve(method=bl.AID(bad_tolerance, bl.CG(steps=3)), steps=5)
    assert run.cost.gradients == 5 * 6  # the steps were done,
    assert "In 5 of 5 steps a loop stopped" in run.message  # and nothing is called converged


def test_the_diagnosis_of_a_large_network_takes_few_copies_of_it():
    problem = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: jnp.sum(y**2))
    x, y = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((), (2**28,)))
    diagnose = jax.jit(lambda x, y: inner_tridiagonal.function(problem, x, y, False))
    planned = diagnose.lower(x, y).compile().memory_analysis()
    assert planned.temp_size_in_bytes <= 10 * 2**30  # 45 with the basis of a small problem
