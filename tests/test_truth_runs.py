"""What a run says of itself is true: CONVERGED, and everything that is wrong and finite."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import biloop as bl

from .helpers import random_quadratic

CURVATURE = jnp.asarray([1.0, 100.0])
STIFF = bl.Problem(
    lambda x, y: 0.5 * jnp.sum(CURVATURE * (y - x) ** 2), lambda x, y: 0.5 * jnp.sum((y - 1) ** 2)
)
ZERO = jnp.zeros(2)


@pytest.mark.parametrize(
    "method",
    [
        bl.AID(bl.GradientDescent(0.01, 5), bl.Richardson(0.01, 0)),  # h = ∇_x f = 0
        bl.AID(bl.GradientDescent(0.01, 5), bl.Richardson(1e-9, 1)),  # h ≈ 0
        bl.ITD(bl.GradientDescent(1e-9, 1)),
    ],
    ids=["no linear steps", "no linear progress", "no inner progress"],
)
def test_a_small_h_that_is_wrong_is_not_called_converged(method):
    run = bl.solve(STIFF, ZERO, ZERO, method, outer=0.1, steps=10, epsilon=1e-6)
    assert run.status is bl.Status.UNCERTAIN
    assert run.steps == 10


def test_converged_is_a_statement_on_the_gradient_of_phi():
    method = bl.schemes.n_q_loop(20, 20, inner_step=0.01, linear_step=0.01)
    for epsilon in (1e-4, 1e-10):
        run = bl.solve(STIFF, ZERO, ZERO, method, outer=0.3, steps=4000, epsilon=epsilon)
        assert run.status is bl.Status.CONVERGED
        assert np.sum((run.x - 1) ** 2) <= 1.3 * epsilon  # ∇Φ(x) = x − 1


def test_a_step_that_was_taken_back_does_not_converge():
    """At x = 1 the inner Hessian is zero; the minimiser is 29/30."""
    problem = bl.Problem(
        lambda x, y: 0.5 * (1 - x) * jnp.sum(y**2) - jnp.sum(y),
        lambda x, y: 0.5 * jnp.sum((y - 30) ** 2),
    )
    method = bl.AID(bl.GradientDescent(0.5, 20), bl.CG(10), warm_start_v=False)
    run = bl.solve(problem, jnp.zeros(()), ZERO, method, steps=100, epsilon=1e-10)
    assert run.status is not bl.Status.CONVERGED
    by_itself = bl.solve(problem, jnp.zeros(()), ZERO)
    assert by_itself.status is bl.Status.CONVERGED
    assert float(by_itself.x) == pytest.approx(29 / 30, abs=1e-4)


def test_a_small_h_at_a_point_that_is_left_again_does_not_converge():
    """The first step leads to x = 0, out of the well around 0.9, where Φ is flat and higher."""
    problem = bl.Problem(
        lambda x, y: 0.5 * (y - x) ** 2, lambda x, y: 21 - jnp.exp(-50 * (y - 0.9) ** 2)
    )
    run = bl.solve(problem, 1.0, 0.0, bl.Exact(), steps=60, epsilon=1e-8)
    assert run.trace["hypergradient_norm"][1] < 1e-9
    assert run.trace["result"][1] == bl.Status.UNDONE
    assert run.status is bl.Status.CONVERGED
    assert float(run.x) == pytest.approx(0.9, abs=1e-5)


@pytest.mark.parametrize("outer", [0.2, "auto"])
def test_what_has_no_minimum_is_told(outer):
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum((y - x) ** 2), lambda x, y: -jnp.sum(y**2) - jnp.sum(x)
    )
    method = bl.schemes.n_q_loop(5, 5, inner_step=0.5, linear_step=0.5)
    run = bl.solve(problem, jnp.ones(2), ZERO, method, outer=outer, steps=300)
    assert run.status is bl.Status.UNBOUNDED
    assert "‖h‖ went from" in run.message


def test_an_f_that_was_small_at_first_is_not_called_unbounded():
    """After one step y = 5.001, and goes on to y*(x) = 0: f grows by 10⁷, h by less than 10⁴."""
    problem = bl.Problem(lambda x, y: 0.5 * (y - x) ** 2, lambda x, y: 0.5 * (y - 5.0) ** 2)
    run = bl.solve(problem, 0.0, 5.001 / 0.95, bl.schemes.no_loop(0.05, 0.9), outer=1e-6, steps=60)
    assert abs(run.trace["value"][-1]) > 2e6 * abs(run.trace["value"][0])
    assert run.status is bl.Status.COMPLETED


def test_a_linear_loop_that_grows_is_told_while_it_is_finite():
    """The Chebyshev iteration for L = 1, of a matrix with the eigenvalue 8."""
    quadratic = random_quadratic(q=6, kappa=8.0)
    x, y = quadratic.start()
    method = bl.AID(bl.GradientDescent(0.1, 50), bl.Chebyshev(L=1.0, mu=0.1, steps=5))
    run = bl.solve(quadratic.problem, x, y, method, outer=1e-3, steps=2)
    assert run.trace["linear_residual"][-1] < 1e6
    assert run.status is bl.Status.DIVERGED
    assert np.all(np.isfinite(run.x))
    assert "eigenvalue of the inner Hessian is about 8" in run.message


def test_a_residual_that_grows_is_mentioned():
    """From the solution, with an outer step that moves y* farther than one inner step follows."""
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum((y - x) ** 2), lambda x, y: 0.5 * jnp.sum((y - 5.0) ** 2)
    )
    start = jnp.full(2, 1e-4)
    run = bl.solve(problem, start, jnp.zeros(2), bl.schemes.no_loop(0.01, 0.9), outer=0.5, steps=9)
    assert not run.status.failed
    assert "The inner residual grew from" in run.message


def test_loops_that_solve_only_the_first_step_exactly_are_no_cause_for_worry():
    """With nothing set the first residual is rounding, and later ones as small as h needs."""
    made = bl.problems.quadratic(16.0, p=4, q=6)
    run = bl.solve(made.problem, made.x0, made.y0)
    assert run.status is bl.Status.CONVERGED
    assert run.trace["inner_residual"][-1] > 1e3 * run.trace["inner_residual"][0] > 0
    assert run.message == bl.Status.CONVERGED.sentence


@pytest.mark.parametrize(("last", "told"), [(0.2, True), (-0.2, False)])
def test_an_f_that_rises_to_the_end_is_mentioned(last, told):
    """x ← 1.2 x in five steps, and then once more or back again, for Φ = ½x²."""
    problem = bl.Problem(lambda x, y: 0.5 * (y - x) ** 2, lambda x, y: 0.5 * y**2)
    outer = optax.scale_by_schedule(lambda k: jnp.where(k < 5, 0.2, last))
    run = bl.solve(problem, 1.0, 1.0, bl.schemes.no_loop(1.0, 1.0), outer=outer, steps=7)
    assert ("f rose from 0.5 to" in run.message) == told


RNG = np.random.default_rng(0)
X, V = RNG.normal(size=(2, 60, 20))
TRUTH = np.where(np.arange(20) < 4, 2.0, 0.0)
TRAIN, VALID = (X, X @ TRUTH + RNG.normal(size=60)), (V, V @ TRUTH)


def fit(y, X, t):
    return 0.5 * jnp.mean((X @ y - t) ** 2)


LASSO = bl.Problem(
    lambda x, y, X, t: fit(y, X, t) + jnp.exp(x) * jnp.sum(jnp.abs(y)),
    lambda x, y, X, t: fit(y, X, t),
    inner_data=TRAIN,
    outer_data=VALID,
)


@pytest.mark.parametrize(
    ("method", "outer"),
    [
        (None, "auto"),
        (bl.AID(bl.GradientDescent(0.1, 200), bl.CG(50)), 0.01),
        (bl.AID(bl.GradientDescent(0.1, 20), bl.Richardson(0.1, 20)), 0.1),
        (bl.AID(bl.Optax(optax.adam(0.05), 200), bl.CG(20)), 0.01),
        (bl.ITD(bl.GradientDescent(0.1, 201)), 0.01),
    ],
    ids=["auto", "cg", "richardson", "adam", "unrolled"],
)
def test_a_g_that_is_not_smooth_is_noticed(method, outer):
    run = bl.solve(LASSO, jnp.asarray(-2.0), jnp.zeros(20), method, outer=outer, steps=10)
    assert run.status is bl.Status.UNCONVERGED
    assert "g is not smooth there" in run.message


def test_kinks_that_unrolled_steps_pass_are_not_suspected():
    """A network of rectifiers has kinks wherever one looks; its loop goes on nevertheless."""
    rng = np.random.default_rng(1)
    start = {"in": rng.normal(size=(20, 16)) / 4, "out": rng.normal(size=16) / 4}

    def error(x, y, X, t):
        return 0.5 * jnp.mean((jax.nn.relu(X @ y["in"]) @ y["out"] - t) ** 2)

    def decayed(x, y, X, t):
        return error(x, y, X, t) + jnp.exp(x) * sum(jnp.sum(leaf**2) for leaf in y.values())

    problem = bl.Problem(decayed, error, inner_data=TRAIN, outer_data=VALID)
    method = bl.ITD(bl.GradientDescent(0.01, 20))
    run = bl.solve(problem, jnp.asarray(-5.0), start, method, outer=0.1, steps=10)
    assert run.message == "All steps were done."


def test_a_g_that_is_smooth_is_not_suspected():
    for steps in (1, 10, 300):
        ridge = bl.Problem(
            lambda x, y, X, t: fit(y, X, t) + jnp.exp(x) * jnp.sum(y**2),
            lambda x, y, X, t: fit(y, X, t),
            inner_data=TRAIN,
            outer_data=VALID,
        )
        method = bl.schemes.n_q_loop(steps, steps, inner_step=0.1, linear_step=0.1)
        run = bl.solve(ridge, jnp.asarray(-2.0), jnp.zeros(20), method, outer=0.01, steps=5)
        assert run.message == "All steps were done."


def test_a_step_that_oscillates_around_a_sharp_bend_is_named():
    """A smoothed |y| has the curvature 1/ε at zero: beyond what the step size allows."""
    problem = bl.Problem(
        lambda x, y, X, t: fit(y, X, t) + jnp.exp(x) * jnp.sum(jnp.sqrt(y**2 + 1e-6)),
        lambda x, y, X, t: fit(y, X, t),
        inner_data=TRAIN,
        outer_data=VALID,
    )
    method = bl.AID(bl.GradientDescent(0.1, 200), bl.CG(50))
    run = bl.solve(problem, jnp.asarray(-2.0), jnp.zeros(20), method, outer=0.01, steps=10)
    assert run.status is bl.Status.UNCONVERGED
    assert "The inner step size 0.1 is above the largest stable one" in run.message


class Prox(bl.InnerSolver):
    """A user's solver: the minimiser of another function than g, and a residual of 0 or ‖∇_y g‖."""

    honest: bool

    def init(self, y):
        return ()

    def __call__(self, problem, x, y0, state, k):
        X, t = problem.inner_data

        def body(_, y):
            y = y - 0.3 * X.T @ (X @ y - t) / 60
            return jnp.sign(y) * jnp.maximum(jnp.abs(y) - 0.3 * jnp.exp(x), 0)

        y = jax.lax.fori_loop(0, 300, body, y0)
        count = jnp.asarray(300)
        residual = jnp.linalg.norm(X.T @ (X @ y - t) / 60) if self.honest else jnp.zeros(())
        return y, (), bl.LoopInfo(residual, count, bl.Cost(count, 0), jnp.asarray(0))


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("honest", [False, True])
def test_an_inner_solver_that_minimises_something_else_is_found_out(honest, steps):
    problem = bl.Problem(
        lambda x, y, X, t: fit(y, X, t) + 0 * x,
        lambda x, y, X, t: fit(y, X, t),
        inner_data=TRAIN,
        outer_data=VALID,
    )
    method = bl.AID(Prox(honest), bl.CG(20))
    run = bl.solve(problem, jnp.asarray(-2.0), jnp.zeros(20), method, outer=0.1, steps=steps)
    assert run.status is bl.Status.UNCONVERGED
    assert "that y does not minimise g" in run.message


@pytest.mark.parametrize(
    "schedule",
    [
        lambda k: jnp.full((), jnp.inf),
        lambda k: 1e12 * (k + 1),
        lambda k: jnp.exp(1e3 * (k + 1.0)),
        lambda k: 10**9 + k,  # a number, and no end within the day
    ],
    ids=["inf", "1e12", "overflow", "1e9"],
)
@pytest.mark.parametrize("loop", ["inner", "linear"])
def test_a_schedule_that_gives_no_count_is_named(schedule, loop):
    N, Q = (schedule, 3) if loop == "inner" else (3, schedule)
    method = bl.AID(bl.GradientDescent(0.1, N), bl.CG(Q))
    run = bl.solve(STIFF, ZERO, ZERO, method, outer=0.1, steps=3)
    assert run.status is bl.Status.BAD_SCHEDULE
    assert run.cost.gradients >= 0


def test_a_concave_start_is_no_dead_end():
    problem = bl.Problem(
        lambda x, y: jnp.sum((y**2 - 1) ** 2) - 0.1 * x * jnp.sum(y),
        lambda x, y: 0.5 * jnp.sum((y - 1.05) ** 2),
    )
    run = bl.solve(problem, jnp.zeros(()), jnp.full(2, 0.1))
    assert run.status is bl.Status.CONVERGED
    np.testing.assert_allclose(run.y, 1.05, atol=1e-3)


def test_the_run_knows_where_it_is():
    """value, y and v belong to the last x, not to the one before it."""
    quadratic = random_quadratic()
    x, y = quadratic.start()
    run = bl.solve(quadratic.problem, x, y, bl.Exact(), outer=0.1, steps=3)
    last = np.asarray(run.x)
    np.testing.assert_allclose(run.y, quadratic.minimiser(last), rtol=1e-9)
    assert run.value == pytest.approx(quadratic.value(last), rel=1e-12)
    assert run.value < run.trace["value"][-1]
    assert run.cost == run.trace.cost  # the look at the last x is not part of it


def test_solve_needs_nothing_but_a_problem_and_a_start():
    quadratic = random_quadratic()
    run = bl.solve(quadratic.problem, *quadratic.start())
    assert run.status is bl.Status.CONVERGED
    first = np.linalg.norm(quadratic.hypergradient(np.asarray(quadratic.start()[0])))
    # ‖∇Φ‖ is measured to a tenth.
    assert np.linalg.norm(quadratic.hypergradient(np.asarray(run.x))) < 1.1e-4 * first


def test_only_rounding_is_left_in_float32():
    quadratic = random_quadratic(dtype=np.float32)
    x, y = (jnp.asarray(a, jnp.float32) for a in quadratic.start())
    run = bl.solve(quadratic.problem, x, y, bl.schemes.auto(), outer="auto", steps=500)
    assert run.status is bl.Status.SETTLED
    assert run.steps < 120


def test_another_order_gets_a_sentence():
    quadratic = random_quadratic()
    x, y = quadratic.start()
    for call in (bl.solve, bl.sweep):
        with pytest.raises(TypeError, match=r"\(problem, x0, y0, method\)"):
            call(quadratic.problem, bl.Exact(), x, y, outer=0.1, steps=3)


@pytest.mark.parametrize("place", ["inner", "outer"])
def test_an_optax_transformation_that_leads_uphill_is_named(place):
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum((y - x) ** 2), lambda x, y: 0.5 * jnp.sum((y - 1.0) ** 2)
    )
    rates = {"inner": 0.1, "outer": 0.1} | {place: -0.1}
    method = bl.AID(bl.Optax(optax.sgd(rates["inner"]), steps=3), bl.CG(2))
    outer = optax.sgd(rates["outer"])
    run = bl.solve(problem, jnp.zeros(2), jnp.ones(2), method, outer=outer, steps=10)
    assert run.status is not bl.Status.COMPLETED
    assert f"the {place} optax transformation leads along the gradient" in run.message


def test_an_optax_transformation_that_wants_the_value_is_not_asked_without():
    """The look whether it leads uphill, after a run that rose, had no value for it."""
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum((y - x) ** 2), lambda x, y: 0.5 * jnp.sum((y - 1.0) ** 2)
    )
    polyak = optax.chain(optax.polyak_sgd(), optax.scale(6.0))  # three times the way to the minimum
    run = bl.solve(problem, ZERO, ZERO, bl.Exact(), outer=polyak, steps=10)
    assert run.value > run.trace["value"][0]
    assert "uphill" not in run.message


def test_a_way_from_x_to_f_that_jax_does_not_see_is_mentioned():
    for hide in (jax.lax.stop_gradient, jnp.round):
        problem = bl.Problem(
            lambda x, y, hide=hide: jnp.sum((y - hide(x)) ** 2),
            lambda x, y: jnp.sum((y - 1.0) ** 2),
        )
        run = bl.solve(problem, jnp.full(2, 0.4), jnp.ones(2), steps=2)
        assert "JAX sees no way from x to f" in run.message
