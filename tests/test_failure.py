"""Truth in failure: bad input is refused with its value, a failed run says why and what to try."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import biloop as bl

from .helpers import logistic_problem, quadratic_inner, quadratic_outer, random_quadratic

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


# --- refused before anything runs ---------------------------------------------------------------


@pytest.mark.parametrize("which", ["inner", "outer"])
@pytest.mark.parametrize(
    ("loss", "error", "words"),
    [
        (lambda x, y: y**2, ValueError, r"must return a scalar, got shape \(6,\)"),
        (lambda x, y: jnp.sum(y)[None], ValueError, r"got shape \(1,\)"),
        (lambda x, y: (jnp.sum(y), 1.0), TypeError, "must return a scalar array"),
        (lambda x, y: jnp.argmax(y), TypeError, "floating scalar, got dtype int"),
        (lambda x, y: x @ y, ValueError, "cannot be evaluated at these x and y"),
        (lambda x, y: y["w"], ValueError, "cannot be evaluated at these x and y"),
        (lambda x: jnp.sum(x), ValueError, "cannot be evaluated at these x and y"),
    ],
    ids=["vector", "one element", "pair", "integer", "shapes", "structure", "arguments"],
)
def test_functions_that_are_no_losses(which, loss, error, words):
    good = {"inner": lambda x, y: jnp.sum(y**2), "outer": lambda x, y: jnp.sum(y**2)}
    problem = bl.Problem(**(good | {which: loss}))
    with pytest.raises(error, match=f"{which}.*{words}"):
        METHOD.init(problem, X, Y)
    with pytest.raises(error, match=words):
        solve(problem)


@pytest.mark.parametrize(
    ("variable", "error", "words"),
    [
        (np.arange(6), TypeError, "dtype int64, but only floating"),
        ({"w": np.zeros(3), "n": np.arange(2)}, TypeError, r"\['n'\] has dtype int64"),
        (np.zeros(6, bool), TypeError, "dtype bool"),
        (np.zeros(6, complex), TypeError, "dtype complex128"),
        ([np.zeros(0)], ValueError, r"\[0\] is empty"),
        ({}, ValueError, "no leaves"),
        ({"f": jnp.tanh}, TypeError, r"\['f'\] is a .*eqx.partition"),
        ("text", TypeError, "is a str"),
    ],
)
@pytest.mark.parametrize("which", ["x", "y"])
def test_variables_that_cannot_be_optimised(variable, error, words, which):
    with pytest.raises(error, match=f"^{which}0?.*{words}"):
        solve(**{which: variable})


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (
            (np.zeros((10, 3)), np.zeros(9)),
            ValueError,
            r"different leading axes.*\(10, 3\), \(9,\)",
        ),
        ((np.zeros((0, 3)),), ValueError, r"inner_data\[0\] is empty.*\(0, 3\)"),
        (({"a": [np.zeros((2, 0))]},), ValueError, r"inner_data\[0\]\['a'\]\[0\] is empty"),
        (np.zeros(3), TypeError, r"must be a tuple.*inner_data=\(array,\)"),
        (("a.csv",), TypeError, r"inner_data\[0\] must be an array, got str"),
        ((jnp.sin,), TypeError, r"inner_data\[0\] must be an array"),
    ],
)
def test_data_that_do_not_fit(data, error, words):
    with pytest.raises(error, match=words):
        bl.Problem(quadratic_inner, quadratic_outer, inner_data=data)


def test_scalars_and_pytrees_among_the_data_are_fine():
    bl.Problem(
        quadratic_inner,
        quadratic_outer,
        inner_data=(np.zeros((4, 2)), np.zeros(4), 0.5, {"A": np.zeros((3, 3)), "b": np.ones(7)}),
    )


def test_functions_must_be_functions():
    with pytest.raises(TypeError, match=r"must be functions, got 3\.0"):
        bl.Problem(3.0, quadratic_outer)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"steps": 0}, ValueError, "steps must be an integer of at least 1, got 0"),
        ({"steps": 2.5}, ValueError, "got 2.5"),
        ({"outer": -0.1}, ValueError, "outer step size must be .* greater than 0, got -0.1"),
        ({"outer": float("nan")}, ValueError, "got nan"),
        ({"outer": "fast"}, TypeError, "an optax transformation or an OuterStep, got 'fast'"),
        ({"epsilon": -1.0}, ValueError, "epsilon"),
        ({"epsilon": float("nan")}, ValueError, "epsilon"),
        ({"seconds": 0.0}, ValueError, "seconds"),
        ({"x": X.at[1].set(jnp.nan)}, ValueError, "x0 has entries that are NaN"),
        ({"y": Y.at[1].set(jnp.inf)}, ValueError, "y0 has entries that are NaN or infinite"),
        ({"budget": 0}, ValueError, "budget must be an integer of at least 1, got 0"),
        ({"budget": float("nan")}, ValueError, "budget must be .* got nan"),
        ({"budget": bl.Cost(10, -1)}, ValueError, r"budget\.products must be .* got -1"),
        ({"method": "AID"}, TypeError, "AID, ITD or another Hypergradient"),
        ({"problem": "cleaning"}, TypeError, "must be a biloop.Problem, got str"),
        ({"v0": jnp.zeros(5)}, ValueError, "v0 does not have the structure of y0"),
        ({"v0": [Y]}, ValueError, "v0 does not have the structure of y0"),
        ({"outer": bl.Projected(0.1, bl.Box({"a": 0.0}, {"a": 1.0}))}, ValueError, "structure"),
    ],
)
def test_bad_arguments_of_solve(changes, error, words):
    with pytest.raises(error, match=words):
        solve(**changes)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: bl.AID(0.1, bl.CG(steps=1)), TypeError, "inner solver"),
        (lambda: bl.AID(INNER, 0.1), TypeError, "linear solver"),
        (lambda: bl.ITD(bl.CG(steps=3)), TypeError, "inner solver"),
        (lambda: bl.ITD(INNER, memory="lots"), ValueError, "'lots'"),
        (lambda: bl.ITD(INNER, truncate=0), ValueError, "truncate must be at least 1, got 0"),
        (lambda: bl.ITD(INNER, truncate=2, memory="sqrt"), ValueError, "truncate=2"),
        (lambda: bl.ITD(INNER, max_steps=0), ValueError, "max_steps must be at least 1"),
        (
            lambda: bl.ITD(bl.GradientDescent(step_size=0.1, steps=lambda k: k)),
            ValueError,
            "give max_steps",
        ),
        (lambda: bl.Lineax("cg"), TypeError, "lineax solver"),
        (lambda: bl.Exact(limit=3).init(QUADRATIC.problem, X, Y), ValueError, "6 × 6"),
    ],
)
def test_methods_that_make_no_sense(make, error, words):
    with pytest.raises(error, match=words):
        make()


# --- reported after the run, with cause and remedy ----------------------------------------------


def test_inner_step_size_too_large_is_named_with_the_largest_stable_one():
    method = bl.AID(
        bl.GradientDescent(step_size=1.0, steps=50), bl.Richardson(step_size=0.1, steps=5)
    )
    run = solve(method=method)
    assert run.status is bl.Status.DIVERGED
    assert f"largest stable one, {2 / QUADRATIC.L:.4g}" in run.message
    assert "inner step size 1 " in run.message
    assert np.all(np.isfinite(run.x))
    assert np.all(np.isfinite(run.y))
    assert run.steps == run.trace["k"][-1]  # the failed step is the last row


def test_slow_divergence_is_named_before_it_overflows():
    method = bl.AID(
        bl.GradientDescent(step_size=2.02 / QUADRATIC.L, steps=5),
        bl.Richardson(step_size=0.1, steps=5),
    )
    run = solve(method=method, steps=400)
    assert run.status is bl.Status.DIVERGED
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


def test_hypergradient_that_is_not_finite():
    """√x has an infinite derivative at 0, although g and its y-derivatives are finite."""
    problem = bl.Problem(
        lambda x, y: jnp.sum((y - jnp.sqrt(x)) ** 2), lambda x, y: jnp.sum((y - 1.0) ** 2)
    )
    run = solve(problem, x=jnp.zeros(2), y=jnp.zeros(2))
    assert run.status is bl.Status.HYPERGRADIENT_NOT_FINITE


def test_indefinite_hessian_under_cg():
    indefinite = changed(A=np.diag([1.0, 1.0, 1.0, 1.0, 1.0, -0.5]))
    run = solve(indefinite, bl.AID(INNER, bl.CG(steps=6)))
    assert run.status is bl.Status.INDEFINITE
    assert "has the eigenvalue -0.5" in run.message
    assert "not convex" in run.message


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
    assert run.status is bl.Status.COMPLETED
    assert "In 10 of 10 outer steps a loop spent its steps" in run.message


def test_throw_raises_and_keeps_the_run():
    with pytest.raises(bl.RunFailed, match="contains 6 values") as caught:
        solve(changed(c=np.full(6, np.inf)), throw=True)
    assert caught.value.run.status is bl.Status.INNER_NOT_FINITE


def test_throw_is_silent_about_success():
    assert solve(steps=3, throw=True).status is bl.Status.COMPLETED


def test_single_hypergradient_carries_its_code():
    problem = changed(c=np.full(6, np.nan))
    h, _, info = METHOD(problem, X, METHOD.init(problem, X, Y), 0)
    assert int(info.result) == bl.Status.INNER_NOT_FINITE
    assert not np.all(np.isfinite(h))


def test_failed_lane_of_a_batch_does_not_spoil_the_others():
    sizes = jnp.asarray([0.1, 10.0, 0.05])
    method = bl.ITD(bl.GradientDescent(step_size=0.1, steps=2000))

    def one(step_size):
        trial = eqx.tree_at(lambda m: m.inner.step_size, method, step_size)
        h, _, info = trial(QUADRATIC.problem, X, trial.init(QUADRATIC.problem, X, Y), 0)
        return h, info.result

    h, results = jax.vmap(one)(sizes)
    np.testing.assert_array_equal(results, [0, bl.Status.INNER_NOT_FINITE, 0])
    assert np.all(np.isfinite(h[jnp.asarray([0, 2])]))


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
    assert "In 5 of 5 outer steps" in run.message  # and nothing is called converged


@pytest.mark.parametrize("bad", ["0.1", True])
def test_step_sizes_that_are_no_numbers(bad):
    with pytest.raises(TypeError, match="must be a number"):
        bl.GradientDescent(step_size=bad, steps=1)
