"""Step sizes that a loop finds itself, against their recursion written out in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import biloop as bl

from .helpers import random_quadratic, relative_error, stepped

QUADRATIC = random_quadratic(q=8, p=5, kappa=30.0)
X, Y = QUADRATIC.start()


def gradient(x, y):
    return QUADRATIC.A @ y - QUADRATIC.B @ x - QUADRATIC.c


def barzilai_borwein(x, y, first, steps):
    """The sizes of all steps but the last, which is the shortest of them and of its own."""
    sizes, points = [first], [np.asarray(y)]
    for _ in range(1, steps):
        points.append(points[-1] - sizes[-1] * gradient(x, points[-1]))
        s = points[-1] - points[-2]
        e = QUADRATIC.A @ s
        assert np.linalg.norm(gradient(x, points[-1])) < 4 * np.linalg.norm(gradient(x, points[-2]))
        sizes.append(s @ e / (e @ e))
    return [*sizes[:-1], min(sizes)]


def test_the_steps_are_those_of_barzilai_and_borwein_and_the_last_is_the_shortest():
    shorter = 0
    for steps in range(1, 9):
        sizes = barzilai_borwein(X, Y, 0.02, steps)
        expected = np.asarray(Y)
        for size in sizes:
            expected = expected - size * gradient(X, expected)
        solver = bl.GradientDescent("auto", steps)
        state = solver.init(Y)._replace(kept=jnp.asarray(0.02))
        y, _, _ = solver(QUADRATIC.problem, X, Y, state, 0)
        assert relative_error(y, expected) < 1e-10
        shorter += sizes[-1] in sizes[:-1]
    assert shorter > 2  # otherwise nothing was said about the last step


@pytest.mark.parametrize(("x", "y"), [([0.0, 0.0], [3.0, 4.0]), ([3.0, 4.0], [0.0, 0.0])])
def test_the_very_first_step_is_a_thousandth_of_y(x, y):
    """Or of 1 from y = 0, which has no length."""
    problem = bl.Problem(lambda x, y: 0.5 * jnp.sum((y - x) ** 2), lambda x, y: jnp.sum(y))
    solver, x, y = bl.GradientDescent("auto", 1), jnp.asarray(x), jnp.asarray(y)
    after, _, _ = solver(problem, x, y, solver.init(y), 0)
    length = np.linalg.norm(y) or 1.0
    np.testing.assert_allclose(after - y, 1e-3 * length * (x - y) / 5, rtol=1e-12)


def test_the_step_size_of_one_loop_is_the_first_of_the_next():
    method = bl.AID(bl.GradientDescent("auto", "auto"), bl.CG("auto"))
    state = method.init(QUADRATIC.problem, X, Y)
    assert state.inner.kept == 0.0
    _, state, _ = method(QUADRATIC.problem, X, state, 0)
    kept = float(state.inner.kept)
    assert 1 / 30 / 1.001 <= kept <= 1.001

    once = bl.GradientDescent("auto", 1)
    y, _, _ = once(QUADRATIC.problem, 2 * X, state.y, state.inner._replace(curvature=()), 1)
    assert relative_error(y, state.y - kept * gradient(2 * X, state.y)) < 1e-13


@pytest.mark.parametrize("beyond", [1.0, jnp.nan], ids=["steep", "not a number"])
def test_a_step_that_overshoots_is_taken_back(beyond):
    """From y = 1 on ½y², with 100 as the step size: the way back is a quarter each time."""
    problem = bl.Problem(
        lambda x, y: jnp.sum(jnp.where(jnp.abs(y) < 4, 0.5, 0.5 * beyond) * y**2),
        lambda x, y: jnp.sum(y),
    )
    ends = []
    for steps in range(1, 5):
        solver, y0 = bl.GradientDescent("auto", steps), jnp.ones(1)
        state = solver.init(y0)._replace(kept=jnp.asarray(100.0))
        ends.append(float(solver(problem, jnp.zeros(1), y0, state, 0)[0][0]))
    np.testing.assert_allclose(ends, [-99.0, -24.0, -5.25, -0.5625])


def test_steep_functions_are_minimised_from_afar():
    """exp(y²) is flat at first and then steep: the curvature of one point misleads the next."""
    problem = bl.Problem(lambda x, y: jnp.sum(jnp.exp(y**2)), lambda x, y: jnp.sum(y))
    solver, y0 = bl.GradientDescent("auto", bl.Adaptive(1e-6, most=200)), jnp.asarray([3.0, -2.0])
    y, _, info = solver(problem, jnp.zeros(1), y0, solver.init(y0), 1)
    assert info.result == bl.Status.COMPLETED
    np.testing.assert_allclose(y, 0.0, atol=1e-3)


@pytest.mark.parametrize("memory", ["recompute", "store", "sqrt", "forward"])
def test_itd_takes_a_step_size_that_was_found_for_a_number(memory):
    """h is the derivative of the loop with these step sizes, not of the way to them."""
    steps = 6
    sizes = barzilai_borwein(X, Y, 0.02, steps)

    def unrolled(x):
        y = Y
        for size in sizes:
            y = y - size * (QUADRATIC.A @ y - QUADRATIC.B @ x - QUADRATIC.c)
        return QUADRATIC.problem.outer(x, y, *QUADRATIC.problem.outer_data)

    method = bl.ITD(bl.GradientDescent("auto", steps), memory=memory)
    state = method.init(QUADRATIC.problem, X, Y)
    state = state._replace(inner=state.inner._replace(kept=jnp.asarray(0.02)))
    h, _, _ = jax.jit(method)(QUADRATIC.problem, X, state, 0)
    assert relative_error(h, jax.grad(unrolled)(X)) < 1e-10


@settings(max_examples=25, deadline=None)
@given(st.floats(0.0, 6.0), st.floats(-6, 6), st.integers(0, 10**6))
def test_automatic_steps_find_any_curvature(log_kappa, log_scale, seed):
    """The error falls to a hundredth whatever the scale and (within reach) the condition."""
    rng = np.random.default_rng(seed)
    curvature = 10**log_scale * np.geomspace(1.0, 10 ** (log_kappa / 2), 6)
    target = rng.normal(size=6)
    y, info = AUTOMATIC(jnp.asarray(curvature), jnp.asarray(target))
    assert info.result == bl.Status.COMPLETED
    assert np.linalg.norm(y - target) <= 1e-2 * np.linalg.norm(target)


@jax.jit
def AUTOMATIC(curvature, target):
    problem = bl.Problem(
        lambda x, y, d: 0.5 * jnp.sum(d["c"] * (y - d["t"]) ** 2),
        lambda x, y: jnp.sum(y),
        inner_data=({"c": curvature, "t": target},),
    )
    solver, y0 = bl.GradientDescent("auto", bl.Adaptive(1e-4, most=3000)), jnp.zeros(6)
    y, _, info = solver(problem, jnp.zeros(1), y0, solver.init(y0), 1)
    return y, info


def test_where_nothing_curves_no_step_is_longer_than_those_that_were_measured():
    """∇g = max(y, 1) from y = 3 with α = ½: 3, 1½, 0 by α = 1, −3 by α = 3, and so on by 3.

    The last step is the shortest of all, ½.
    """
    slope = lambda y: jnp.where(y < 1, y - 0.5, 0.5 * y**2)  # noqa: E731
    problem = bl.Problem(lambda x, y: jnp.sum(slope(y)), lambda x, y: jnp.sum(y))
    ends = []
    for steps in range(2, 8):
        solver, y0 = bl.GradientDescent("auto", steps), jnp.full(1, 3.0)
        state = solver.init(y0)._replace(kept=jnp.asarray(0.5))
        ends.append(float(solver(problem, jnp.zeros(1), y0, state, 0)[0][0]))
    np.testing.assert_allclose(ends, [0.75, -0.5, -3.5, -6.5, -9.5, -12.5])


@pytest.mark.parametrize(("solver", "bound"), [(bl.GradientDescent, 1e-2), (bl.FISTA, 0.2)])
def test_derivatives_of_a_loop_do_not_grow_once_only_rounding_is_left(solver, bound):
    """From zero and from where that has led: there y rests, and shows no step that is too long."""
    d = np.geomspace(0.03, 1.0, 6)
    truth = np.random.default_rng(0).normal(size=(30, 6))

    def inner(x, y):
        return jnp.sum(0.5 * d * y**2 + jnp.logaddexp(y, -y) - x * y)

    problem = bl.Problem(inner, lambda x, y: jnp.sum(y))
    method = bl.ITD(solver("auto", 200))

    @jax.jit
    @jax.vmap
    def twice(x):
        first, state, _ = stepped(method, problem, x, jnp.zeros(6))
        second, _, _ = method(problem, x, state, 1)
        return first, second

    slopes = 1 / (d + 1 / np.cosh(truth) ** 2)  # at x, where the truth is the minimiser
    for h in twice(d * truth + np.tanh(truth)):
        assert np.max(np.abs(h / slopes - 1)) < bound
