"""Loops and steps that size themselves: the rule, its cost, and that it needs no setting."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import biloop as bl

from .helpers import logistic_problem, random_quadratic, tree_problem

QUADRATIC = random_quadratic(q=8, p=5, kappa=30.0)
X, Y = QUADRATIC.start()


def residual(x, y):
    return np.linalg.norm(QUADRATIC.A @ y - QUADRATIC.B @ x - QUADRATIC.c)


def error(x, y):
    return np.linalg.norm(y - QUADRATIC.minimiser(np.asarray(x)))


INNER = {
    "gradient descent": lambda steps: bl.GradientDescent(1 / 30, steps),
    "automatic": lambda steps: bl.GradientDescent("auto", steps),
    "nesterov": lambda steps: bl.Nesterov.tuned(30.0, 1.0, steps),
}


@pytest.mark.parametrize("name", INNER)
def test_the_inner_loop_removes_all_but_its_share(name):
    """The smallest curvature that was seen is at least μ = 1, so the error may be a bit larger."""
    solver = INNER[name](bl.Adaptive(0.1))
    y, info = solver(QUADRATIC.problem, X, Y, 1)
    assert info.result == bl.Status.COMPLETED
    assert 2 < info.steps < 500
    assert 1 / 30 < info.memory.long <= 1 + 1e-9  # between 1/L and 1/μ
    y, again = solver(QUADRATIC.problem, X, Y, 1, info.memory._replace(long=jnp.asarray(1 / 0.9)))
    assert again.steps >= info.steps
    assert error(X, y) <= 0.15 * error(X, Y)
    _, short = INNER[name](bl.Adaptive(0.1, most=2))(QUADRATIC.problem, X, Y, 1)
    assert short.result == bl.Status.UNCONVERGED


LINEAR = {
    "cg": bl.CG(bl.Adaptive(0.05)),
    "richardson": bl.Richardson(1 / 30, bl.Adaptive(0.05)),
    "automatic": bl.Richardson("auto", bl.Adaptive(0.05)),
    "chebyshev": bl.Chebyshev(30.0, 1.0, bl.Adaptive(0.05)),
}


@pytest.mark.parametrize("name", LINEAR)
def test_the_linear_loop_follows_the_same_rule(name):
    b = jnp.asarray(QUADRATIC.t)
    A = jnp.asarray(QUADRATIC.A)
    v, info = LINEAR[name](lambda v: A @ v, b, Y, 1, jnp.asarray(1 / 0.9))
    solution = np.linalg.solve(QUADRATIC.A, QUADRATIC.t)
    assert np.linalg.norm(v - solution) <= 0.1 * np.linalg.norm(Y - solution)
    assert info.result == bl.Status.COMPLETED
    assert info.steps <= info.products <= info.steps + 1


@jax.jit
def both_ways(H, b, v0, share):
    """Conjugate gradients by their recurrences, and with a preconditioner that changes nothing."""
    rule = bl.Adaptive(share)
    nothing = bl.Diagonal(jnp.ones_like(b))
    plain = bl.CG(rule)(lambda v: H @ v, b, v0, 0)
    return plain, bl.CG(rule, preconditioner=nothing)(lambda v: H @ v, b, v0, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(
    log_kappa=st.floats(0.3, 3),
    share=st.floats(0.01, 0.5),
    seed=st.integers(0, 99),
    start=st.sampled_from(["none", "zero", "somewhere"]),
)
def test_conjugate_gradients_know_the_way_that_they_have_come(dtype, log_kappa, share, seed, start):
    """With a preconditioner it is told by points and residuals."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    H = (basis * np.geomspace(1, 10**log_kappa, 12) @ basis.T).astype(dtype)
    b, v0 = rng.normal(size=(2, 12)).astype(dtype)
    v0 = {"none": None, "zero": np.zeros_like(v0), "somewhere": v0}[start]
    (v, known), (u, seen) = both_ways(H, b, v0, share)
    assert known.steps == seen.steps
    digits = {np.float32: 1e-3, np.float64: 1e-6}[dtype]
    np.testing.assert_allclose(known.memory, seen.memory, rtol=digits)
    np.testing.assert_allclose(v, u, rtol=digits, atol=digits)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_curvature_is_seen_in_half_precision(dtype):
    """The difference of two gradients has a digit or two there, which is enough."""
    H = jnp.diag(jnp.geomspace(1, 20, 8)).astype(dtype)
    solvers = (
        bl.Richardson(0.05, bl.Adaptive(0.1)),
        bl.CG(bl.Adaptive(0.1)),
        bl.CG(bl.Adaptive(0.1), preconditioner=bl.Diagonal(jnp.ones(8, dtype))),
    )
    for solver in solvers:
        v, info = solver(lambda v: H @ v, jnp.ones(8, dtype), jnp.zeros(8, dtype), 0)
        assert info.memory > 0.05
        assert info.steps < 60
        error = np.linalg.norm(np.asarray(v, float) - np.geomspace(1, 1 / 20, 8))
        assert error < 0.3 * np.linalg.norm(np.geomspace(1, 1 / 20, 8))


def test_a_system_that_is_solved_already_is_left_alone():
    """Its residual is rounding: there is no step to learn from, and none to wait for."""
    b = jnp.asarray([3.0, 6.0, 9.0])
    v0 = jnp.asarray([np.nextafter(1.0, 2.0), 2.0, 3.0])
    assert 0 < jnp.linalg.norm(b - 3 * v0) < np.finfo(float).eps * jnp.linalg.norm(b)
    _, info = bl.CG("auto")(lambda v: 3 * v, b, v0, 1, jnp.asarray(0.5))
    assert info.products <= 3


def test_an_adaptive_loop_ends_at_a_breakdown():
    """The second direction is (0, 2), along which H is flat: nothing is learnt from it."""
    H = jnp.diag(jnp.asarray([1.0, 1e-18]))
    v, info = bl.CG("auto")(lambda v: H @ v, jnp.ones(2), None, 1)
    assert info.result == bl.Status.SINGULAR
    np.testing.assert_allclose(info.memory, 2.0)  # ⟨p, p⟩ / ⟨p, Hp⟩ of the first, (1, 1)
    np.testing.assert_allclose(v, 2.0)


def test_the_first_outer_step_starts_cold_and_goes_farther():
    solver = bl.GradientDescent("auto", "auto")
    (cold, _), (warm, _) = (solver(QUADRATIC.problem, X, Y, k) for k in (0, 1))
    assert residual(X, cold) < 0.3 * residual(X, warm)


def test_a_loop_that_has_only_rounding_left_ends():
    """Started at the solution, no residual can fall to a share of the first one."""
    y = jnp.asarray(QUADRATIC.minimiser(np.asarray(X)))
    _, info = bl.GradientDescent("auto", "auto")(QUADRATIC.problem, X, y, 1)
    assert info.steps < 100
    assert info.result == bl.Status.COMPLETED
    v, linear = bl.CG("auto")(lambda v: 2 * v, 2 * y, y, 1)
    assert linear.steps < 100
    np.testing.assert_array_equal(v, y)


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
    solver = bl.GradientDescent("auto", bl.Adaptive(1e-4, most=3000))
    return solver(problem, jnp.zeros(1), jnp.zeros(6), 1)


def test_a_step_that_overshoots_is_taken_back():
    """exp(y²) is flat at first and then steep: the curvature of one point misleads the next."""
    problem = bl.Problem(lambda x, y: jnp.sum(jnp.exp(y**2)), lambda x, y: jnp.sum(y))
    solver = bl.GradientDescent("auto", bl.Adaptive(1e-6, most=200))
    y, info = solver(problem, jnp.zeros(1), jnp.asarray([3.0, -2.0]), 1)
    assert info.result == bl.Status.COMPLETED
    np.testing.assert_allclose(y, 0.0, atol=1e-3)


def test_the_step_size_of_one_loop_is_the_first_of_the_next():
    method = bl.AID(bl.GradientDescent("auto", "auto"), bl.CG("auto"))
    warm = method.init(QUADRATIC.problem, X, Y)
    assert warm.memory[0].method == 0.0
    _, warm, _ = method(QUADRATIC.problem, X, warm, 0)
    assert 1 / 30 / 1.001 <= warm.memory[0].method <= 1.001


def test_newton_solves_a_quadratic_in_one_step_and_counts_what_it_spends():
    """Two gradients, and the products of conjugate gradients from zero; μ = 1 is known."""
    known = bl.NewtonCG().first_memory(Y)._replace(long=jnp.asarray(1 / 0.9))
    y, info = bl.NewtonCG()(QUADRATIC.problem, X, Y, 1, known)
    assert info.result == bl.Status.COMPLETED
    assert info.steps == 2
    assert 2 <= info.products <= 8  # y has eight entries
    assert error(X, y) <= 0.2 * error(X, Y)
    np.testing.assert_allclose(info.residual, residual(X, np.asarray(y)), rtol=1e-10)

    method = bl.AID(bl.NewtonCG(), bl.CG(3))
    _, _, whole = method(QUADRATIC.problem, X, method.init(QUADRATIC.problem, X, Y), 1)
    _, inner = bl.NewtonCG()(QUADRATIC.problem, X, Y, 1)
    assert whole.cost == (inner.steps + 2, inner.products + 3 + 1 + 1)


def test_the_systems_of_newton_are_solved_for_the_loop_as_a_whole():
    """The last ones are small: to solve each to its own share would take more products."""
    problem, x, y0 = logistic_problem(features=12)
    share, long = 1e-3, jnp.zeros(())
    found, info = bl.NewtonCG(bl.Adaptive(share))(problem, x, y0, 1)
    assert info.result == bl.Status.COMPLETED

    def g(y):
        return problem.inner(x, y, *problem.inner_data)

    y, products, d = y0, 0, jax.grad(g)(y0)
    while products == 0 or long * jnp.linalg.norm(d) > 2 * share * jnp.linalg.norm(y - y0):
        H = jax.hessian(g)(y)
        delta, solved = bl.CG(bl.Adaptive(share))(lambda v, H=H: H @ v, d, None, 1, long)
        y, long, products = y - delta, solved.memory, products + solved.products
        d = jax.grad(g)(y)
    assert info.products < products
    np.testing.assert_allclose(found, y, atol=4 * share * np.linalg.norm(y - y0))


@pytest.mark.parametrize("preconditioner", [None, bl.Diagonal(jnp.ones(8))], ids=["no", "diagonal"])
def test_a_system_that_is_part_of_a_loop_counts_the_way_before_it(preconditioner):
    A, b = jnp.asarray(QUADRATIC.A), jnp.asarray(QUADRATIC.t)
    solver = bl.CG(bl.Adaptive(0.01), preconditioner=preconditioner)
    steps = []
    for come in (0.0, 10.0, 1e9):
        v, info = solver(lambda v: A @ v, b, None, 1, None, come)
        assert info.memory * info.residual <= 0.01 * np.hypot(np.linalg.norm(v), come) * (1 + 1e-9)
        steps.append(int(info.steps))
    assert steps[0] > steps[1] > steps[2] == 1


def test_newton_shortens_a_step_that_leads_away():
    """For log cosh a full step from 2 leads to −11, and from there farther."""
    problem = bl.Problem(
        lambda x, y: jnp.sum(jnp.logaddexp(y, -y)) + 1e-3 * jnp.sum(y**2), lambda x, y: jnp.sum(y)
    )
    y, info = bl.NewtonCG()(problem, jnp.zeros(1), jnp.asarray([2.0]), 0)
    assert info.result == bl.Status.COMPLETED
    assert info.steps > 3
    np.testing.assert_allclose(y, 0.0, atol=0.05)


def test_newton_is_not_for_itd():
    method = bl.ITD(bl.NewtonCG())
    with pytest.raises(TypeError, match="NewtonCG goes with AID"):
        method(QUADRATIC.problem, X, method.init(QUADRATIC.problem, X, Y), 0)


def test_newton_ends_where_only_rounding_is_left():
    y = jnp.asarray(QUADRATIC.minimiser(np.asarray(X)))
    _, info = bl.NewtonCG()(QUADRATIC.problem, X, y, 1)
    assert info.result == bl.Status.COMPLETED
    assert info.steps < 10


PROBLEMS = {
    "quadratic": (QUADRATIC.problem, X, Y),
    "logistic": logistic_problem(),
    "pytrees": tree_problem(),
}


@pytest.mark.parametrize(
    "name", ["quadratic", "logistic", pytest.param("pytrees", marks=pytest.mark.slow)]
)
def test_no_setting_is_needed(name):
    """‖∇Φ‖² falls to a millionth (as measured exactly) without a step size or a loop size."""
    problem, x, y = PROBLEMS[name]

    def squared_norm(x, y):
        h, _, info = EXACT(problem, x, EXACT.init(problem, x, y), 0)
        assert info.result < 10
        return sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(h))

    start = squared_norm(x, y)
    run = bl.solve(
        problem, x, y, bl.schemes.auto(), outer="auto", steps=100, epsilon=0.5e-6 * float(start)
    )
    assert run.status is bl.Status.CONVERGED
    assert squared_norm(run.x, run.y) <= 1e-6 * start


EXACT = bl.Exact()


def test_a_bad_outer_step_is_taken_back():
    """Far beyond the first curvature Φ is steep: the run must come back and go on."""
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum((y - x) ** 2),
        lambda x, y: jnp.sum(jnp.cosh(4 * y)) + 1e-3 * jnp.sum(x**2),
    )
    run = bl.solve(
        problem,
        jnp.asarray([0.25]),
        jnp.zeros(1),
        bl.schemes.auto(),
        outer=bl.QuasiNewton(first=8.0),
        steps=60,
        epsilon=1e-12,
    )
    assert run.status is bl.Status.CONVERGED
    assert bl.Status.UNDONE in run.trace["result"]
    np.testing.assert_allclose(run.x, 0.0, atol=1e-5)


@pytest.mark.parametrize(("value", "times"), [(np.inf, 24), (5.0, 8)])
def test_a_step_is_not_taken_back_for_ever(value, times):
    """Where loops fail however near x is to the last good one, the failure must come to light."""
    outer, x, h = bl.QuasiNewton(), jnp.asarray([1.0, 1.0]), jnp.asarray([0.3, 0.4])
    step = jax.jit(outer.step)
    after, state = step(x, h, outer.observe(jnp.asarray(1.0), outer.init(x)))
    for k in range(times):
        after, state = step(after, h, outer.observe(jnp.asarray(value), state))
        assert outer.undone(state)
        np.testing.assert_allclose(x - after, 2 * h * 0.25 ** (k + 1), atol=1e-15)
    _, state = step(after, h, outer.observe(jnp.asarray(value), state))
    assert not outer.undone(state)


@pytest.mark.parametrize("memory", [2, 4])
def test_quasi_newton_is_bfgs_on_a_quadratic(memory):
    """With exact hypergradients: the matrix form of BFGS over the last pairs, written out densely.

    With a memory of two the ring of pairs has gone round.
    """
    outer = bl.QuasiNewton(memory=memory)
    H = np.diag([1.0, 2.0, 5.0])
    gradient = jax.jit(outer.step)
    x = jnp.asarray([1.0, -1.0, 0.5])
    state = outer.init(x)
    points = [np.asarray(x)]
    for _ in range(4):
        h = H @ np.asarray(x)
        state = outer.observe(jnp.asarray(0.5 * np.asarray(x) @ h), state)
        x, state = gradient(x, jnp.asarray(h), state)
        points.append(np.asarray(x))

    pairs = [(b - a, H @ (b - a)) for a, b in itertools.pairwise(points[:-1])][-memory:]
    s, e = pairs[-1]
    B = np.eye(3) * (s @ e) / (e @ e)
    for s, e in pairs:
        rho = 1 / (s @ e)
        V = np.eye(3) - rho * np.outer(e, s)
        B = V.T @ B @ V + rho * np.outer(s, s)
    step = B @ (H @ points[-2])
    np.testing.assert_allclose(points[-1], points[-2] - step, rtol=1e-10)


@pytest.mark.parametrize(
    ("value", "length"),
    [
        (0.3, 0.5 * 0.3 / 5.0),  # half of the value, by the slope
        (-0.3, 0.5 * 0.3 / 5.0),
        (1e3, 4.0**0.5),  # at most √p
        (1e-30, 1e-3 * 4.0**0.5),  # the value says nothing
        (0.0, 1e-3 * 4.0**0.5),
    ],
)
def test_the_first_outer_step_is_as_long_as_value_and_slope_say(value, length):
    outer, x = bl.QuasiNewton(), jnp.asarray([0.5, 0.0, 0.0, 0.0])
    h = jnp.asarray([3.0, 0.0, -4.0, 0.0])
    after, _ = jax.jit(outer.step)(x, h, outer.observe(jnp.asarray(value), outer.init(x)))
    np.testing.assert_allclose(x - after, length * h / 5.0, rtol=1e-12)


@pytest.mark.parametrize("seen_by", ["N-loop", "Q-loop"])
def test_both_loops_know_what_one_has_seen_of_the_curvature(seen_by):
    """One of them moves only along the stiff coordinate, the other only along the flat one."""
    curvature = jnp.asarray([100.0, 0.1])
    flat, stiff = jnp.asarray([0.0, 1.0]), jnp.asarray([1.0, 0.0])
    y_way, v_way = (flat, stiff) if seen_by == "N-loop" else (stiff, flat)
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum(curvature * (y - y_way) ** 2) + 0 * x,
        lambda x, y: jnp.vdot(v_way, y) + 0.5 * x**2,
    )
    method, x = bl.schemes.auto(), jnp.asarray(1.0)
    _, warm, _ = method(problem, x, method.init(problem, x, jnp.zeros(2)), 0)
    inner, linear = warm.memory
    np.testing.assert_allclose([inner.long, linear], 1 / 0.1, rtol=0.11)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, np.nan])
def test_shares_that_are_none_are_refused(share):
    with pytest.raises(ValueError, match="share must be between 0 and 1"):
        bl.Adaptive(share)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bl.Adaptive(0.1, most=0), "most must be an integer of at least 1, got 0"),
        (lambda: bl.QuasiNewton(memory=0), "memory must be at least 1, got 0"),
        (lambda: bl.QuasiNewton(first=0.0), "first must be greater than 0"),
        (lambda: bl.GradientDescent("automatic", 3), "step_size must be a number"),
        (lambda: bl.CG("automatic"), 'steps must be an integer, "auto"'),
        (lambda: bl.NewtonCG(3), "steps must be Adaptive, got 3"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()
