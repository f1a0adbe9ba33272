"""Hypergradients against closed forms, finite differences and the paper's formulas."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import biloop as bl

from .helpers import logistic_problem, random_quadratic, relative_error, stepped


@eqx.filter_jit
def call(method, problem, x, state, k=0):
    return method(problem, x, state, k)


def hypergradient(method, problem, x, y):
    h, _, info = call(method, problem, x, method.init(problem, x, y))
    assert int(info.result) == 0
    return h


def converged_methods(quadratic):
    """Every method, with loops long enough for rounding error."""
    descent = bl.GradientDescent(step_size=1 / quadratic.L, steps=600)
    accelerated = bl.Nesterov.tuned(quadratic.L, quadratic.mu, steps=250)
    heavy = bl.HeavyBall.tuned(quadratic.L, quadratic.mu, steps=250)
    eta, q = 1 / quadratic.L, len(quadratic.c)
    return {
        "AID, CG": bl.AID(descent, bl.CG(steps=q + 2)),
        "AID, Richardson": bl.AID(descent, bl.Richardson(step_size=eta, steps=600)),
        "AID, Neumann": bl.AID(descent, bl.Neumann(step_size=eta, steps=600)),
        "AID, dense": bl.AID(descent, bl.Dense()),
        "AID, Nesterov": bl.AID(accelerated, bl.CG(steps=q + 2)),
        "AID, heavy ball": bl.AID(heavy, bl.CG(steps=q + 2)),
        "ITD": bl.ITD(descent),
        "ITD, sqrt": bl.ITD(descent, memory="sqrt"),
        "ITD, forward": bl.ITD(descent, memory="forward"),
        "ITD, truncated": bl.ITD(descent, truncate=400),
        "ITD, Nesterov": bl.ITD(accelerated),
        "ITD, heavy ball": bl.ITD(heavy),
        "Exact": bl.Exact(),
    }


@pytest.mark.parametrize("name", converged_methods(random_quadratic()))
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_closed_form(name, seed):
    quadratic = random_quadratic(seed, q=7, p=5, kappa=10.0)
    x, y = quadratic.start()
    h = hypergradient(converged_methods(quadratic)[name], quadratic.problem, x, y)
    assert relative_error(h, quadratic.hypergradient(x)) < 1e-10


@given(seed=st.integers(0, 10_000), kappa=st.floats(1.5, 30.0))
def test_closed_form_for_any_quadratic(seed, kappa):
    quadratic = random_quadratic(seed, kappa=kappa)
    x, y = quadratic.start(seed)
    N = int(25 * kappa)
    inner = bl.GradientDescent(step_size=1 / quadratic.L, steps=jnp.asarray(N))
    for method in (bl.AID(inner, bl.CG(steps=8)), bl.ITD(inner, max_steps=1000)):
        h = hypergradient(method, quadratic.problem, x, y)
        assert relative_error(h, quadratic.hypergradient(x)) < 1e-9


def test_closed_form_value_is_phi():
    """The closed form itself: ∇Φ by finite differences of Φ."""
    quadratic = random_quadratic(5)
    x, _ = quadratic.start()
    assert relative_error(finite_differences(quadratic.value, x), quadratic.hypergradient(x)) < 1e-6


def finite_differences(phi, x, step=1e-5):
    x = np.asarray(x)
    basis = np.eye(len(x))
    return np.array([(phi(x + step * e) - phi(x - step * e)) / (2 * step) for e in basis])


@pytest.mark.parametrize(
    "method",
    [
        bl.AID(bl.GradientDescent(step_size=0.5, steps=800), bl.CG(steps=10)),
        bl.ITD(bl.GradientDescent(step_size=0.5, steps=800)),
        bl.Exact(),
    ],
    ids=["AID", "ITD", "Exact"],
)
def test_finite_differences_of_phi_on_logistic_regression(method):
    problem, x, y = logistic_problem()
    exact = bl.Exact()

    @jax.jit
    def phi(x):
        _, state, _ = call(exact, problem, x, exact.init(problem, x, y), 0)
        return problem.outer(x, state.y, *problem.outer_data)

    h = hypergradient(method, problem, x, y)
    assert relative_error(h, finite_differences(phi, x)) < 1e-6


@pytest.mark.parametrize("N", [1, 5, pytest.param(17, marks=pytest.mark.slow)])
def test_itd_equals_the_product_formula(N):
    """∇_x f − α Σ_t ∇_x∇_y g(x, y^t) Π_{j>t} (I − α∇²_y g(x, y^j)) ∇_y f, with dense matrices."""
    problem, x, y0 = logistic_problem()
    y0 = y0 + 0.5  # at y = 0 the penalty has no derivative with respect to x
    alpha = 0.7

    def g(x, y):
        return problem.inner(x, y, *problem.inner_data)

    def f(x, y):
        return problem.outer(x, y, *problem.outer_data)

    gradient = jax.jit(jax.grad(g, 1))
    cross, hessian = jax.jit(jax.jacobian(jax.grad(g, 1), 0)), jax.jit(jax.hessian(g, 1))
    path = [y0]
    for _ in range(N):
        path.append(path[-1] - alpha * gradient(x, path[-1]))
    expected, w = jax.grad(f, (0, 1))(x, path[-1])
    for t in reversed(range(N)):
        expected = expected - alpha * cross(x, path[t]).T @ w
        w = w - alpha * hessian(x, path[t]) @ w

    inner = bl.GradientDescent(step_size=alpha, steps=N)
    for method in (
        bl.ITD(inner),
        bl.ITD(inner, memory="sqrt"),
        bl.ITD(inner, memory="forward"),
        bl.ITD(inner, truncate=N),
        bl.ITD(inner, max_steps=N + 7),
        bl.ITD(inner, max_steps=N + 7, memory="sqrt"),
    ):
        assert relative_error(hypergradient(method, problem, x, y0), expected) < 1e-12


@pytest.mark.parametrize(
    "inner",
    [
        bl.Nesterov(step_size=0.5, momentum=0.6, steps=13),
        pytest.param(bl.HeavyBall(step_size=0.5, momentum=0.6, steps=13), marks=pytest.mark.slow),
        bl.Optax(optax.adam(0.1), steps=13),
        bl.GradientDescent(step_size=0.5, steps=100, tolerance=1e-2),
    ],
    ids=["nesterov", "heavy ball", "adam", "to tolerance"],
)
def test_itd_is_the_derivative_of_the_loop_that_ran(inner):
    """Against finite differences of x ↦ f(x, y^N(x)), with N too small for convergence."""
    problem, x, y = logistic_problem()

    @jax.jit
    def unrolled(x):
        y_end, _, _ = inner(problem, x, y, inner.init(y), 0)
        return problem.outer(x, y_end, *problem.outer_data)

    expected = finite_differences(unrolled, x)
    for memory in ("recompute", "sqrt", "forward"):
        h = hypergradient(bl.ITD(inner, memory=memory), problem, x, y)
        assert relative_error(h, expected) < 1e-6


def test_truncated_itd_keeps_the_last_terms():
    quadratic = random_quadratic()
    x, y = quadratic.start()
    alpha, N, T = 0.1, 12, 5
    inner = bl.GradientDescent(step_size=alpha, steps=N)
    truncated = bl.ITD(inner, truncate=T)
    h, state, info = call(
        truncated, quadratic.problem, x, truncated.init(quadratic.problem, x, y), 0
    )

    w = quadratic.D @ (state.y - quadratic.t)
    expected = quadratic.E @ x
    for _ in range(T):
        expected = expected + alpha * quadratic.B.T @ w
        w = w - alpha * quadratic.A @ w
    assert relative_error(h, expected) < 1e-12
    assert (int(info.cost.gradients), int(info.cost.products)) == (N + 2, 2 * T)


def test_truncated_itd_goes_back_from_where_a_tolerance_ended_the_loop():
    """The step that would have followed is neither made nor differentiated."""
    problem, x, y = logistic_problem()
    inner = bl.GradientDescent(step_size=0.5, steps=200, tolerance=1e-2)
    h, state, info = call(bl.ITD(inner, truncate=3), problem, x, bl.ITD(inner).init(problem, x, y))
    moves = int(info.cost.gradients) - 3
    assert 3 < moves < 199
    fixed = bl.ITD(bl.GradientDescent(step_size=0.5, steps=moves), truncate=3)
    again, there, _ = call(fixed, problem, x, fixed.init(problem, x, y))
    assert relative_error(state.y, there.y) < 1e-14
    assert relative_error(h, again) < 1e-13


@pytest.mark.parametrize("warm_start_v", [True, False])
def test_adjoint_follows_the_papers_recursion_step_by_step(warm_start_v):
    """v_k^q = v_k^{q−1} − η(∇²_y g v_k^{q−1} − ∇_y f), v_k^0 = v_{k−1}^Q or 0, over outer steps."""
    quadratic = random_quadratic()
    x, y = quadratic.start()
    alpha, eta, beta, N, Q = 0.1, 0.08, 0.05, 3, 2
    method = bl.AID(
        bl.GradientDescent(step_size=alpha, steps=N),
        bl.Richardson(step_size=eta, steps=Q),
        warm_start_v=warm_start_v,
    )
    state = method.init(quadratic.problem, x, y)
    x_ref, y_ref, v_ref = np.asarray(x), np.asarray(y), np.zeros_like(y)
    for k in range(6):
        h, state, info = call(method, quadratic.problem, x, state, k)
        x = x - beta * h

        for _ in range(N):
            y_before = y_ref
            y_ref = y_ref - alpha * (quadratic.A @ y_ref - quadratic.B @ x_ref - quadratic.c)
        v_ref = v_ref if warm_start_v else np.zeros_like(v_ref)
        for _ in range(Q):
            residual = quadratic.A @ v_ref - quadratic.D @ (y_ref - quadratic.t)
            v_ref = v_ref - eta * residual
        h_ref = quadratic.E @ x_ref + quadratic.B.T @ v_ref

        assert relative_error(state.y, y_ref) < 1e-13
        assert relative_error(state.v, v_ref) < 1e-13
        assert relative_error(h, h_ref) < 1e-13
        gradient = quadratic.A @ y_before - quadratic.B @ x_ref - quadratic.c
        assert relative_error(info.residuals.inner, np.linalg.norm(gradient)) < 1e-12
        assert relative_error(info.residuals.linear, np.linalg.norm(residual)) < 1e-12
        assert (
            relative_error(
                info.value,
                0.5 * (y_ref - quadratic.t) @ quadratic.D @ (y_ref - quadratic.t)
                + 0.5 * x_ref @ quadratic.E @ x_ref,
            )
            < 1e-13
        )
        x_ref = x_ref - beta * h_ref


def test_cold_start_goes_back_to_the_first_y():
    quadratic = random_quadratic()
    x, y = quadratic.start()
    inner = bl.GradientDescent(step_size=0.1, steps=3)
    for method in (
        bl.AID(inner, bl.CG(steps=3), warm_start_y=False),
        bl.ITD(inner, warm_start_y=False),
    ):
        state = method.init(quadratic.problem, x, y)
        _, once, _ = call(method, quadratic.problem, x, state, 0)
        _, twice, _ = call(method, quadratic.problem, x, once, 1)
        np.testing.assert_array_equal(once.y, twice.y)
        np.testing.assert_array_equal(twice.start, y)


def test_warm_start_continues():
    quadratic = random_quadratic()
    x, y = quadratic.start()
    half = bl.ITD(bl.GradientDescent(step_size=0.1, steps=4))
    whole = bl.ITD(bl.GradientDescent(step_size=0.1, steps=8))
    state = half.init(quadratic.problem, x, y)
    for k in range(2):
        _, state, _ = call(half, quadratic.problem, x, state, k)
    _, once, _ = call(whole, quadratic.problem, x, whole.init(quadratic.problem, x, y), 0)
    assert relative_error(state.y, once.y) < 1e-14


def test_exact_solves_the_inner_problem_from_far_away():
    problem, x, y = logistic_problem()
    exact = bl.Exact()
    _, state, info = call(exact, problem, x, exact.init(problem, x, y + 50.0), 0)
    assert info.residuals.inner < 1e-12
    _, near, _ = call(exact, problem, x, exact.init(problem, x, y), 0)
    assert relative_error(state.y, near.y) < 1e-10


def test_exact_goes_down_where_the_hessian_is_negative():
    """From y = 0.1 a Newton step leads up to the maximum at 0, −∇g to the minimum at 1."""
    problem = bl.Problem(lambda x, y: 0.25 * (y**2 - 1) ** 2 - x * y, lambda x, y: y)
    method = bl.Exact()
    h, state, info = stepped(method, problem, 0.0, 0.1)
    assert int(info.result) == 0
    assert float(state.y) == pytest.approx(1.0, abs=1e-12)
    assert float(h) == pytest.approx(0.5)  # H = 2 there


@pytest.mark.parametrize("unit", [1.0, 1e-10])
def test_exact_says_so_where_its_steps_do_not_suffice(unit):
    """tanh z = ½ from z = 0.9: the first step is half of z, whatever its unit."""
    problem = bl.Problem(
        lambda x, y: jnp.logaddexp(y / unit, -y / unit) - 0.5 * y / unit, lambda x, y: y / unit
    )
    for steps, result in ((1, bl.Status.NEWTON_FAILED), (9, bl.Status.COMPLETED)):
        method = bl.Exact(steps=steps)
        _, state, info = call(method, problem, 0.0, method.init(problem, 0.0, 0.9 * unit))
        assert int(info.result) == result
    assert float(state.y) == pytest.approx(unit * np.arctanh(0.5), rel=1e-10)


def test_exact_knows_a_minimiser_where_nothing_is_left():
    """One Newton step ends where ∇_y g is zero, whatever the error before it."""
    problem = bl.Problem(lambda x, y: 0.5 * jnp.sum((y - x) ** 2), lambda x, y: jnp.sum(y**2))
    x = jnp.asarray([1.0, 2.0])
    for y in (jnp.zeros(2), x):
        h = hypergradient(bl.Exact(), problem, x, y)
        np.testing.assert_allclose(h, 2 * x, rtol=1e-14)


@pytest.mark.parametrize("beyond", [1e-5, 1e-3, 0.1, 2.0])
def test_no_step_of_exact_leads_up(beyond):
    """For log cosh a full Newton step from 1.08866 leads to −1.08866; from beyond that, farther."""
    problem = bl.Problem(lambda x, y: jnp.sum(jnp.logaddexp(y, -y)), lambda x, y: jnp.sum(y))
    x, y0 = jnp.zeros(1), jnp.asarray([1.0886594924826534 + beyond])
    once = bl.Exact(steps=1)
    _, state, _ = call(once, problem, x, once.init(problem, x, y0))
    assert problem.inner(x, state.y) < problem.inner(x, y0)
    _, state, info = call(bl.Exact(), problem, x, once.init(problem, x, y0))
    assert int(info.result) == bl.Status.COMPLETED
    np.testing.assert_allclose(state.y, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    "method",
    [
        bl.AID(bl.GradientDescent(step_size=0.1, steps=3), bl.CG(steps=3)),
        bl.ITD(bl.GradientDescent(step_size=0.1, steps=3)),
    ],
    ids=["AID", "ITD"],
)
def test_the_method_itself_can_be_jitted(method):
    quadratic = random_quadratic()
    problem, (x, y) = quadratic.problem, quadratic.start()
    compiled = jax.jit(method)
    h, state, _ = compiled(problem, x, method.init(problem, x, y), 0)
    compiled(problem, x, state, 1)
    assert compiled._cache_size() == 1
    assert h.shape == x.shape
