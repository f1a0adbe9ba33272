"""The N-loop: rates, stopping, schedules, agreement with the textbook and with optax."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import biloop as bl

from .helpers import INNER_SOLVERS, logistic_problem, random_quadratic, relative_error


@eqx.filter_jit
def solve_inner(solver, problem, x, y, k=0):
    y, _, info = solver(problem, x, y, solver.init(y), k)
    return y, info


def error(quadratic, solver, x, y):
    end, _ = solve_inner(solver, quadratic.problem, x, y)
    best = quadratic.minimiser(x)
    return np.linalg.norm(end - best) / np.linalg.norm(y - best)


@given(seed=st.integers(0, 1000), kappa=st.floats(2.0, 100.0), steps=st.integers(1, 60))
def test_contraction_of_gradient_descent(seed, kappa, steps):
    """‖y^N − y*‖ ≤ (1 − αμ)^N ‖y^0 − y*‖ for α ≤ 1/L: the first step of every proof."""
    quadratic = random_quadratic(seed, kappa=kappa)
    x, y = quadratic.start(seed)
    solver = bl.GradientDescent(step_size=1 / quadratic.L, steps=jnp.asarray(steps))
    bound = (1 - quadratic.mu / quadratic.L) ** steps
    assert error(quadratic, solver, x, y) <= bound * (1 + 1e-9) + 1e-13


def test_a_loop_ends_where_it_is_not_finite_any_more():
    """Steps of 9/L make the residual 8 times larger each time: 1024 / 3 of them are enough."""
    quadratic = random_quadratic()
    solver = bl.GradientDescent(9 / quadratic.L, steps=10_000, tolerance=1e-8)
    _, info = solve_inner(solver, quadratic.problem, *quadratic.start())
    assert not np.isfinite(info.residual)
    assert info.steps < 400


def test_acceleration():
    """At κ = 400, 100 steps: gradient descent (1 − 1/κ)^N, the others about (1 − 1/√κ)^N."""
    quadratic = random_quadratic(kappa=400.0)
    x, y = quadratic.start()
    L, mu = quadratic.L, quadratic.mu
    plain = error(quadratic, bl.GradientDescent(step_size=1 / L, steps=100), x, y)
    nesterov = error(quadratic, bl.Nesterov.tuned(L, mu, steps=100), x, y)
    heavy = error(quadratic, bl.HeavyBall.tuned(L, mu, steps=100), x, y)
    assert plain > 0.1
    assert nesterov < 0.05
    assert heavy < 0.01


def test_tuned_parameters_are_those_of_the_theory():
    """Nesterov (2.2.22), Polyak (1964): κ = 16 gives the ratio 3/5, which Polyak squares."""
    nesterov, heavy = (method.tuned(8.0, 0.5, steps=1) for method in (bl.Nesterov, bl.HeavyBall))
    assert float(nesterov.step_size) == 1 / 8
    assert float(nesterov.momentum) == pytest.approx(3 / 5)
    assert float(heavy.step_size) == pytest.approx(4 / (8**0.5 + 0.5**0.5) ** 2)
    assert float(heavy.momentum) == pytest.approx(9 / 25)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (bl.GradientDescent(step_size=0.1, steps=7), optax.sgd(0.1)),
        (bl.HeavyBall(step_size=0.1, momentum=0.5, steps=7), optax.sgd(0.1, momentum=0.5)),
    ],
    ids=["gradient descent", "heavy ball"],
)
def test_agreement_with_optax(ours, theirs):
    problem, x, y = logistic_problem()
    by_hand, _ = solve_inner(ours, problem, x, y + 1.0)
    by_optax, _ = solve_inner(bl.Optax(theirs, steps=7), problem, x, y + 1.0)
    assert relative_error(by_hand, by_optax) < 1e-13


def test_nesterov_follows_its_recursion():
    problem, x, y = logistic_problem()
    alpha, m = 0.5, 0.7
    gradient = jax.grad(lambda y: problem.inner(x, y, *problem.inner_data))
    previous = z = y
    for _ in range(6):
        after = z - alpha * gradient(z)
        z = after + m * (after - previous)
        previous = after
    ours, _ = solve_inner(bl.Nesterov(step_size=alpha, momentum=m, steps=6), problem, x, y)
    assert relative_error(ours, previous) < 1e-13


@pytest.mark.parametrize("name", INNER_SOLVERS)
def test_residual_is_the_last_gradient(name):
    """The residual of N steps is ‖∇_y g‖ where the N-th gradient was taken, and costs nothing."""
    steps = 1 if "tolerance" in name or "growing" in name else 4
    problem, x, y = logistic_problem()
    y = y + 1.0
    solver = INNER_SOLVERS[name](n=steps)
    _, info = solve_inner(solver, problem, x, y)
    points = []

    def gradient(y):
        points.append(y)
        return jax.grad(lambda y: problem.inner(x, y, *problem.inner_data))(y)

    gradient.prox = lambda z, step: z  # the problem has none
    state, point = solver.start(y, solver.nothing(y)), y
    for _ in range(steps):
        point, state, last = solver.step(gradient, point, state)
    assert int(info.steps) == steps == len(points)
    assert relative_error(info.residual, np.linalg.norm(last)) < 1e-12


def test_tolerance_ends_the_loop_and_is_met():
    problem, x, y = logistic_problem()
    y = y + 3.0
    for tolerance in (1e-1, 1e-3, 1e-6):
        solver = bl.GradientDescent(step_size=1.0, steps=5000, tolerance=tolerance)
        end, info = solve_inner(solver, problem, x, y)
        gradient = jax.grad(lambda y: problem.inner(x, y, *problem.inner_data))(end)
        assert 1 < info.steps < 5000
        assert info.residual <= tolerance
        assert relative_error(info.residual, np.linalg.norm(gradient)) < 1e-9  # at the y returned
        assert int(info.result) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda n, t: bl.GradientDescent(0.5, n, t),
        lambda n, t: bl.GradientDescent("auto", n, t),
        lambda n, t: bl.Nesterov(0.5, 0.6, n, t),
        lambda n, t: bl.HeavyBall(0.5, 0.6, n, t),
        lambda n, t: bl.Optax(optax.sgd(0.5), n, t),
        lambda n, t: bl.NewtonCG(tolerance=t),
    ],
    ids=["gradient descent", "automatic", "nesterov", "heavy ball", "optax", "newton"],
)
def test_what_is_judged_is_what_is_returned(make):
    """The residual of a loop that has arrived is ‖∇_y g‖ at its y: no step leads beyond it."""
    problem, x, y = logistic_problem()
    gradient = jax.grad(lambda y: problem.inner(x, y, *problem.inner_data))
    end, info = solve_inner(make(500, 1e-3), problem, x, y + 1.0)
    assert int(info.result) == bl.Status.COMPLETED
    assert 2 < info.cost.gradients < 500
    assert relative_error(info.residual, np.linalg.norm(gradient(end))) < 1e-9


def test_a_residual_that_equals_the_tolerance_is_small_enough():
    """‖∇_y g‖ = 3, 1.5, 0.75, … exactly: at most the tolerance, not less than it."""
    problem = bl.Problem(lambda x, y: 0.5 * jnp.sum(y**2), lambda x, y: jnp.sum(y))
    for tolerance, steps, end in ((0.75, 3, 0.75), (0.7499, 4, 0.375), (3.0, 1, 3.0)):
        solver = bl.GradientDescent(0.5, steps=9, tolerance=tolerance)
        y, info = solve_inner(solver, problem, jnp.zeros(1), jnp.asarray([3.0]))
        assert (int(info.steps), float(info.residual), float(y[0])) == (steps, end, end)
        assert int(info.result) == bl.Status.COMPLETED


def test_step_counts_are_rounded_up_but_for_rounding_errors():
    """⌈(k + 1)^¼/2⌉ is 1 up to k = 15; in floating point 16^¼/2 may come out above 1."""
    problem, x, y = logistic_problem()

    def steps(schedule, k=0):
        solver = bl.GradientDescent(0.1, schedule)
        return int(solve_inner(solver, problem, x, y, jnp.asarray(k))[1].steps)

    growing = bl.schedules.Power(0.5, 0.25)
    assert [steps(growing, k) for k in (0, 14, 15, 16, 255, 256)] == [1, 1, 1, 2, 2, 3]
    assert steps(lambda k: jnp.asarray(np.nextafter(2.0, 3.0))) == 2
    assert steps(lambda k: jnp.asarray(2.001)) == steps(lambda k: jnp.asarray(2.5)) == 3


def test_running_out_of_steps_is_said():
    problem, x, y = logistic_problem()
    solver = bl.GradientDescent(step_size=0.1, steps=3, tolerance=1e-12)
    _, info = solve_inner(solver, problem, x, y)
    assert int(info.steps) == 3
    assert int(info.result) == bl.Status.UNCONVERGED
    assert info.residual > 1e-12


def test_without_tolerance_the_budget_is_spent_and_that_is_no_failure():
    problem, x, y = logistic_problem()
    solver = bl.GradientDescent(step_size=0.1, steps=3, tolerance=0)
    _, info = solve_inner(solver, problem, x, y)
    assert (int(info.steps), int(info.result)) == (3, 0)


def test_schedules_of_steps_and_tolerance():
    problem, x, y = logistic_problem()
    solver = bl.GradientDescent(
        step_size=0.1,
        steps=lambda k: 2 * k + 1,
        tolerance=bl.schedules.Geometric(1e-3, 0.1),
    )
    for k in range(4):
        _, info = solve_inner(solver, problem, x, y, jnp.asarray(k))
        assert int(info.steps) == 2 * k + 1


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"step_size": 0.0, "steps": 1}, ValueError, "greater than 0, got 0.0"),
        ({"step_size": -1.0, "steps": 1}, ValueError, "got -1.0"),
        ({"step_size": float("nan"), "steps": 1}, ValueError, "got nan"),
        ({"step_size": float("inf"), "steps": 1}, ValueError, "got inf"),
        ({"step_size": "0.1 m", "steps": 1}, TypeError, "0.1 m"),
        ({"step_size": [0.1, 0.2], "steps": 1}, TypeError, "shape"),
        ({"step_size": 0.1, "steps": 0}, ValueError, "at least 1, got 0"),
        ({"step_size": 0.1, "steps": -3}, ValueError, "at least 1, got -3"),
        ({"step_size": 0.1, "steps": 2.5}, TypeError, "2.5"),
        ({"step_size": 0.1, "steps": True}, TypeError, "True"),
        ({"step_size": 0.1, "steps": 1, "tolerance": -1e-3}, ValueError, "-0.001"),
        ({"step_size": 0.1, "steps": 1, "tolerance": float("nan")}, ValueError, "nan"),
    ],
)
def test_bad_numbers_are_refused_with_their_value(arguments, error, words):
    with pytest.raises(error, match=words):
        bl.GradientDescent(**arguments)


def test_bad_momentum_and_spectrum_are_refused():
    with pytest.raises(ValueError, match=r"momentum .* got 1\.0"):
        bl.Nesterov(step_size=0.1, momentum=1.0, steps=1)
    with pytest.raises(ValueError, match="mu=2"):
        bl.HeavyBall.tuned(L=1.0, mu=2.0, steps=1)
    with pytest.raises(TypeError, match="GradientTransformation"):
        bl.Optax(0.1, steps=1)


@pytest.mark.parametrize(
    "solver",
    [
        bl.GradientDescent(step_size=1.0, steps=60),
        bl.Nesterov(step_size=1.0, momentum=0.6, steps=60),
        bl.HeavyBall(step_size=1.0, momentum=0.6, steps=60),
    ],
    ids=["gradient descent", "nesterov", "heavy ball"],
)
def test_largest_stable_step_separates_convergence_from_divergence(solver):
    quadratic = random_quadratic(kappa=5.0)
    x, y = quadratic.start()
    _, largest = solver.stability(quadratic.L)
    for factor, stable in ((0.97, True), (1.03, False)):
        trial = eqx.tree_at(lambda s: s.step_size, solver, jnp.asarray(factor * largest))
        trial = eqx.tree_at(lambda s: s.steps, trial, bl.schedules.Fixed(2000))
        assert (error(quadratic, trial, x, y) < 1e-3) == stable
