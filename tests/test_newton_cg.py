"""NewtonCG: what it costs on quadratics, its line search, its tolerance, and where it stops."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop.loops.adaptive import Curvature

from .helpers import logistic_problem, random_quadratic, relative_error

QUADRATIC = random_quadratic(q=8, p=5, kappa=30.0)
X, Y = QUADRATIC.start()


def newton(problem, x, y, k=1, known=0.0, **settings):
    solver = bl.NewtonCG(**settings)
    state = solver.init(y)
    state = state._replace(inverse_mu=state.inverse_mu + known)
    return minimised(solver, problem, x, y, state, jnp.asarray(k))


@eqx.filter_jit
def minimised(solver, *given):
    """In one program instead of one for each operation."""
    return solver(*given)


def scalar(g, y, **settings):
    """Minimise g over y alone."""
    problem = bl.Problem(lambda x, y: jnp.sum(g(y)), lambda x, y: jnp.sum(y))
    return newton(problem, jnp.zeros(1), jnp.asarray(y), **settings)


def log_cosh(y):
    return jnp.logaddexp(y, -y) + 1e-3 * y**2


@pytest.mark.slow
def test_a_quadratic_takes_one_step_and_what_it_spends_is_counted():
    """Two gradients, and the products of conjugate gradients from zero; μ = 1 is known."""
    y, _, info = newton(QUADRATIC.problem, X, Y, known=1 / 0.9)
    best = QUADRATIC.minimiser(np.asarray(X))
    assert info.result == bl.Status.COMPLETED
    assert info.steps == info.cost.gradients == 2
    assert 2 <= info.cost.products <= 8  # y has eight entries
    assert np.linalg.norm(y - best) <= 0.2 * np.linalg.norm(Y - best)
    gradient = QUADRATIC.A @ y - QUADRATIC.B @ X - QUADRATIC.c
    np.testing.assert_allclose(info.residual, np.linalg.norm(gradient), rtol=1e-10)

    method = bl.AID(bl.NewtonCG(), bl.CG(3))
    _, _, whole = method(QUADRATIC.problem, X, method.init(QUADRATIC.problem, X, Y), 1)
    _, _, inner = newton(QUADRATIC.problem, X, Y)
    assert whole.cost == (inner.cost.gradients + 2, inner.cost.products + 3 + 1 + 1)


@pytest.mark.slow
def test_the_systems_are_solved_for_the_loop_as_a_whole():
    """The last ones are small: to solve each to its own share would take more products."""
    problem, x, y0 = logistic_problem(features=12)
    share = 1e-3
    found, _, info = newton(problem, x, y0, steps=bl.Adaptive(share))
    assert info.result == bl.Status.COMPLETED

    def g(y):
        return problem.inner(x, y, *problem.inner_data)

    cg, known = bl.CG(bl.Adaptive(share)), Curvature(jnp.zeros(()))
    y, products, d = y0, 0, jax.grad(g)(y0)
    while products == 0 or known.inverse_mu * jnp.linalg.norm(d) > 2 * share * jnp.linalg.norm(
        y - y0
    ):
        H = jax.hessian(g)(y)
        delta, known, solved = cg(lambda v, H=H: H @ v, d, jnp.zeros_like(d), known, 1)
        y, products = y - delta, products + solved.cost.products - 1  # from zero it is known
        d = jax.grad(g)(y)
    assert info.cost.products < products
    np.testing.assert_allclose(found, y, atol=4 * share * np.linalg.norm(y - y0))


def test_a_step_that_leads_away_is_shortened():
    """For log cosh a full step from 2 leads to −11, and from there farther."""
    y, _, info = scalar(log_cosh, [2.0], k=0)
    assert info.result == bl.Status.COMPLETED
    assert info.steps > 3
    np.testing.assert_allclose(y, 0.0, atol=0.05)


def test_a_step_to_where_g_is_as_large_is_shortened():
    """Newton's step for √(1 + y²) leads from 1 to −1, and from there back again."""
    y, _, info = scalar(lambda y: jnp.sqrt(1 + y**2), [1.0], tolerance=1e-9)
    assert info.result == bl.Status.COMPLETED
    np.testing.assert_allclose(y, 0.0, atol=1e-8)


@pytest.mark.parametrize("start", [3.0, 30.0, -300.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_it_arrives_from_afar_whatever_the_scale_of_g(start, scale):
    y, _, info = scalar(lambda y: scale * log_cosh(y), [start])
    assert info.result == bl.Status.COMPLETED
    assert abs(float(y[0])) <= 0.25 * abs(start)
    assert info.cost.gradients < 60


def test_a_tolerance_is_reached_where_the_gradient_says_so():
    problem, x, y0 = logistic_problem()
    gradient = jax.grad(lambda y: problem.inner(x, y, *problem.inner_data))
    spent = []
    for tolerance in (1e-1, 1e-4, 1e-10):
        y, _, info = newton(problem, x, y0 + 2.0, tolerance=tolerance)
        assert info.result == bl.Status.COMPLETED
        assert relative_error(info.residual, np.linalg.norm(gradient(y))) < 1e-3
        assert info.residual <= tolerance
        spent.append(int(info.cost.total))
    assert spent == sorted(set(spent))
    assert spent[-1] < 100
    y, _, info = newton(problem, x, y, tolerance=1e-10)  # there already
    assert info.cost == (1, 0)


def test_a_tolerance_below_rounding_is_not_said_to_be_reached():
    _, _, info = newton(QUADRATIC.problem, X, Y, tolerance=1e-300)
    assert info.result == bl.Status.UNCONVERGED
    assert 0 < info.residual < 1e-10
    assert info.cost.gradients < 50


def test_without_a_minimum_it_says_so():
    """exp(−y) falls for ever: no point is a share of the way closer."""
    _, _, info = scalar(lambda y: jnp.exp(-y), [0.0], tolerance=1e-200)
    assert info.result == bl.Status.UNCONVERGED


def test_from_a_maximum_it_goes_down_to_a_minimum():
    """(y² − 1)² has negative curvature between ±1/√3: −∇g leads on where δ leads up."""
    y, _, info = scalar(lambda y: (y**2 - 1) ** 2, [0.1, -0.2], tolerance=1e-9)
    assert info.result == bl.Status.COMPLETED
    np.testing.assert_allclose(y, [1.0, -1.0], atol=1e-9)


def test_what_is_not_finite_is_no_step_forward():
    """−log is not defined beyond its wall, to where the first step leads."""
    y, _, info = scalar(lambda y: y**2 - 1e-3 * jnp.log(1 - y), [-8.0], tolerance=1e-9)
    assert info.result == bl.Status.COMPLETED
    np.testing.assert_allclose(2 * y + 1e-3 / (1 - y), 0.0, atol=1e-9)
    _, _, info = scalar(lambda y: y * jnp.nan, [1.0])
    assert info.result == bl.Status.UNCONVERGED or not np.isfinite(info.residual)


def test_it_ends_where_only_rounding_is_left():
    y = jnp.asarray(QUADRATIC.minimiser(np.asarray(X)))
    _, _, info = newton(QUADRATIC.problem, X, y)
    assert info.result == bl.Status.COMPLETED
    assert info.steps < 10


def test_a_step_that_was_shortened_to_nothing_is_no_rounding():
    """Finite at 0 alone, where the slope is 1: each step is a tenth of the one before."""

    def g(y):
        wall = jax.lax.stop_gradient(jnp.where(y == 0, 0.0, jnp.inf) - y)
        return 1 + wall + y + 0.5 * y**2

    y, _, info = scalar(g, [0.0])
    assert info.result == bl.Status.UNCONVERGED
    np.testing.assert_allclose([y[0], info.residual], [0.0, 1.0])


def test_a_damped_step_that_leaves_what_it_should_is_believed():
    """H = λ = 1 halves the gradient, to λδ: near enough for a share of 0.9, at the second look."""
    problem, y = bl.Problem(lambda x, y: 0.5 * jnp.sum(y**2), lambda x, y: jnp.sum(y)), jnp.ones(1)
    solver = bl.NewtonCG(bl.Adaptive(0.9))
    state = solver.init(y)._replace(damping=jnp.asarray(1.0))
    y, _, info = solver(problem, jnp.zeros(1), y, state, 1)
    np.testing.assert_allclose(y, 0.5)
    assert (int(info.steps), int(info.result)) == (2, bl.Status.COMPLETED)


def test_after_a_step_that_was_too_long_the_next_is_damped_more():
    """½y² with a wall at ½, where δ = 1 leads from 1: a tenth of it is taken.

    From then on δ is 2, 1 and ½: half of 1, four times that, and half of it again and again.
    """

    def g(x, y):
        return jnp.sum(0.5 * y**2 + jnp.where((y > 0.4) & (y < 0.6), 10.0, 0.0))

    solver, y = bl.NewtonCG(), jnp.ones(1)
    state = solver.init(y)._replace(damping=jnp.asarray(1.0))
    problem = bl.Problem(g, lambda x, y: jnp.sum(y))
    y, _, info = solver(problem, jnp.zeros(1), y, state, 1)
    np.testing.assert_allclose(y, 0.95 * (2 / 3) * (1 / 2) * (1 / 3))
    assert int(info.cost.gradients) == 6


@pytest.mark.parametrize("k", [0, 1])
def test_where_g_was_not_convex_later_outer_steps_look_at_few_points(k):
    problem = bl.Problem(lambda x, y: jnp.sum(log_cosh(y)), lambda x, y: jnp.sum(y))
    solver, y = bl.NewtonCG(), jnp.asarray([30.0])
    state = solver.init(y)._replace(damping=jnp.asarray(1e-3))
    _, _, info = solver(problem, jnp.zeros(1), y, state, k)
    assert (int(info.cost.gradients) > 6, int(info.result)) == (k == 0, int(k == 1))


def test_it_is_not_for_itd():
    with pytest.raises(TypeError, match=r"got NewtonCG.*Other inner solvers go with AID"):
        bl.ITD(bl.NewtonCG())
