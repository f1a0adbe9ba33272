"""Equilibria y = T(x, y): hypergradients against dense algebra and finite differences."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest

import biloop as bl

from .helpers import relative_error, stepped

Q = 12
ZERO = jnp.zeros(Q)
RNG = np.random.default_rng(0)
U, SIGNS = RNG.normal(size=(Q, 3)), RNG.normal(size=Q)


def matrix(radius, seed=0):
    """Not symmetric, with this spectral radius."""
    W = np.random.default_rng(seed).normal(size=(Q, Q))
    return W * radius / np.max(np.abs(np.linalg.eigvals(W)))


def affine(x, y, d):
    return d["W"] @ y + d["U"] @ x


def outer(x, y):
    return jnp.sum(SIGNS * jnp.sin(y)) + 0.1 * jnp.sum(x**2)


def equilibrium(radius):
    data = ({"W": matrix(radius), "U": U},)
    return bl.Problem.fixed_point(affine, outer, data), jnp.asarray([0.5, -1.0, 2.0])


def dense(radius, x):
    """y* and ∇Φ by linear algebra."""
    M = np.eye(Q) - matrix(radius)
    y = np.linalg.solve(M, U @ x)
    return y, U.T @ np.linalg.solve(M.T, SIGNS * np.cos(y)) + 0.2 * x


def hypergradient(method, problem, x, y=ZERO):
    return stepped(method, problem, x, y)


ANDERSON, GMRES = bl.Anderson(200, tolerance=1e-11), bl.GMRES(bl.Adaptive(1e-12))
METHODS = {
    "fixed point": bl.AID(bl.FixedPoint(steps=600), bl.Richardson(1.0, steps=600)),
    "neumann": bl.AID(ANDERSON, bl.Neumann(1.0, steps=600)),
    "anderson, gmres": bl.AID(ANDERSON, GMRES),
    "normal equations": bl.AID(ANDERSON, bl.NormalEquations(bl.CG(200, tolerance=1e-12))),
    "bicgstab": bl.AID(ANDERSON, bl.Lineax(lx.BiCGStab(1e-12, 1e-12), symmetric=False)),
    "damped": bl.AID(bl.FixedPoint(steps=900, damping=0.7), bl.Richardson(0.7, steps=900)),
    "ITD": bl.ITD(bl.FixedPoint(steps=600)),
    "ITD, anderson": bl.ITD(bl.Anderson(steps=90)),
}


@pytest.mark.parametrize("name", METHODS)
def test_hypergradients_against_dense_algebra(name):
    problem, x = equilibrium(0.9)
    h, state, info = hypergradient(METHODS[name], problem, x)
    y, truth = dense(0.9, x)
    assert int(info.result) == bl.Status.COMPLETED
    assert relative_error(state.y, y) < 1e-9
    assert relative_error(h, truth) < 1e-9


@pytest.mark.parametrize("name", ["anderson, gmres", "normal equations"])
def test_a_map_need_not_contract(name):
    problem, x = equilibrium(1.5)
    h, _, info = hypergradient(METHODS[name], problem, x)
    assert int(info.result) == bl.Status.COMPLETED
    assert relative_error(h, dense(1.5, x)[1]) < 1e-8


def test_restarts_lead_on_or_the_loop_says_that_they_do_not():
    b, zero = jnp.asarray(SIGNS), ZERO
    for radius in (0.5, 0.9, 3.0):
        M = np.eye(Q) - matrix(radius)
        v, _, info = bl.GMRES(400, tolerance=1e-10, restart=5)(
            partial(jnp.matmul, M), b, zero, (), 0
        )
        np.testing.assert_allclose(info.residual, np.linalg.norm(M @ v - b), rtol=1e-3, atol=1e-14)
        assert (info.residual <= 1e-10) == (int(info.result) == bl.Status.COMPLETED)
        assert radius > 0.5 or int(info.result) == bl.Status.COMPLETED
    v, _, info = bl.GMRES(12, restart=12)(lambda v: M @ v, b, zero, (), 0)  # exact
    assert relative_error(M @ v, b) < 1e-12
    assert int(info.cost.products) == 1 + 12 + 1


@pytest.mark.parametrize(("grown", "differences"), [(1.9, 1), (2.1, 0)])
def test_anderson_forgets_where_the_residual_has_doubled(grown, differences):
    """Then it goes on as the plain iteration does, to T(y) = y − F."""
    solver, y, F = bl.Anderson(steps=5), jnp.ones(2), jnp.asarray([0.3, 0.4])
    y, state, _ = solver.step(lambda y: F, y, solver.start(y, ()))
    after, state, _ = solver.step(lambda y: grown * F, y, state)
    assert np.allclose(after, y - grown * F) == (differences == 0)
    # What was forgotten has no part in the next step either.
    bent = lambda y: jnp.asarray([0.2, -0.1])  # noqa: E731
    third, _, _ = solver.step(bent, after, state)
    _, anew, _ = solver.step(lambda y: grown * F, y, solver.start(y, ()))
    alone, _, _ = solver.step(bent, after, anew)
    assert np.allclose(third, alone) == (differences == 0)


def test_cost_is_counted():
    """An evaluation of T is a gradient, a product with its derivative a product."""
    problem, x = equilibrium(0.5)
    evaluations = []

    def counted(x, y, d):
        jax.debug.callback(lambda: evaluations.append(1))
        return affine(x, y, d)

    problem = bl.Problem.fixed_point(counted, outer, problem.inner_data)
    method = bl.AID(bl.FixedPoint(steps=7), bl.Richardson(1.0, steps=5))
    _, _, info = hypergradient(method, problem, x)
    jax.effects_barrier()
    assert info.cost == (7 + 2, 5 + 1)
    assert len(evaluations) == 7 + 1  # and one for its linearisation
    m = bl.GMRES(24, restart=6)
    _, _, info = hypergradient(bl.AID(bl.FixedPoint(3), m), equilibrium(0.5)[0], x)
    assert int(info.cost.products) <= 1 + 4 * 7 + 1
    assert (int(info.cost.products) - 2) % 7 == 0


def test_a_deep_equilibrium_model_against_finite_differences():
    """y = tanh(Wy + Ua + b), with W, U and b as x and a batch of inputs."""
    batch = jnp.asarray(RNG.normal(size=(5, 3)))
    x = {
        "W": jnp.asarray(matrix(0.8)),
        "U": jnp.asarray(RNG.normal(size=(Q, 3))),
        "b": jnp.asarray(RNG.normal(size=Q)),
    }

    def layer(x, y, inputs):
        bias = jnp.broadcast_to(x["b"], y.shape)
        return jnp.tanh(y @ x["W"].T + inputs @ x["U"].T + bias)

    def loss(x, y):
        return jnp.mean(y**3)

    ystar, y0 = bl.equilibrium(layer), jnp.zeros((5, Q))
    value = jax.jit(lambda x: loss(x, ystar(x, y0, batch)))
    gradient = jax.jit(jax.grad(value))(x)
    direction = jax.tree.map(lambda a: jnp.asarray(RNG.normal(size=a.shape)), x)

    def moved(t):
        return value(jax.tree.map(lambda a, d: a + t * d, x, direction))

    slope = (moved(1e-5) - moved(-1e-5)) / 2e-5
    along = jax.tree.reduce(jnp.add, jax.tree.map(jnp.vdot, gradient, direction))
    assert relative_error(along, slope) < 1e-8
    forward = jax.jit(lambda x, d: jax.jvp(value, (x,), (d,))[1])(x, direction)
    assert relative_error(forward, along) < 1e-10
    problem = bl.Problem.fixed_point(layer, loss, (batch,))
    h, _, _ = hypergradient(bl.AID(ANDERSON, GMRES), problem, x, y0)
    assert relative_error(h, gradient) < 1e-8


def test_second_derivatives_of_an_equilibrium():
    _, x = equilibrium(0.9)
    data = {"W": matrix(0.9), "U": U}
    ystar = bl.equilibrium(affine)
    found = jax.jit(jax.hessian(lambda x: outer(x, ystar(x, ZERO, data))))(x)

    def closed(x):
        return jnp.linalg.solve(jnp.eye(Q) - data["W"], data["U"] @ x)

    assert relative_error(found, jax.jit(jax.hessian(lambda x: outer(x, closed(x))))(x)) < 1e-10


@pytest.mark.parametrize("radius", [0.3, 0.95, 1.4])
def test_the_contraction_is_measured(radius):
    problem, x = equilibrium(radius)
    found = bl.estimate.contraction(problem, x, ZERO, products=200)
    np.testing.assert_allclose(found, radius, rtol=0.02)


def test_solve_with_nothing_set():
    problem, x = equilibrium(1.3)
    run = bl.solve(problem, x, ZERO)
    assert run.status is bl.Status.CONVERGED
    assert np.linalg.norm(dense(1.3, run.x)[1]) < 2e-4 * np.linalg.norm(dense(1.3, x)[1])


@pytest.mark.parametrize(
    "method",
    [
        bl.AID(bl.FixedPoint(steps=3), bl.GMRES(20)),
        bl.AID(bl.FixedPoint(steps=40), bl.Richardson(1.0, steps=40)),
        bl.ITD(bl.FixedPoint(steps=10)),
    ],
    ids=["inner", "both", "ITD"],
)
def test_a_map_that_does_not_contract_is_told(method):
    problem, x = equilibrium(1.3)
    run = bl.solve(problem, x, ZERO, method, outer=1e-3, steps=30)
    assert run.status in (bl.Status.DIVERGED, bl.Status.UNCONVERGED)
    assert "does not contract there" in run.message
    radius = float(re.search(r"radius is about ([\d.]+\d)", run.message)[1])
    assert radius == pytest.approx(1.3, rel=0.1)


def test_metrics_of_f_are_columns_here_too():
    problem, x = equilibrium(0.5)
    told = lambda x, y: (outer(x, y), {"size": jnp.sum(y**2)})  # noqa: E731
    watched = bl.Problem.fixed_point(affine, told, problem.inner_data, has_aux=True)
    run = bl.solve(watched, x, ZERO, METHODS["anderson, gmres"], outer=1e-3, steps=2)
    y, _ = dense(0.5, x)
    np.testing.assert_allclose(run.trace["size"][0], np.sum(y**2))


def test_a_map_that_only_turns_does_not_contract():
    """Its spectral radius is one: T(y) − y never becomes smaller."""
    turn = jnp.asarray([[0.6, -0.8], [0.8, 0.6]])
    problem = bl.Problem.fixed_point(lambda x, y: turn @ y + x, lambda x, y: jnp.sum(y**2))
    method = bl.AID(bl.FixedPoint(steps=7), bl.GMRES(2))
    run = bl.solve(problem, jnp.ones(2), jnp.zeros(2), method, outer=1e-3, steps=10)
    assert run.status is bl.Status.UNCONVERGED
    assert "spectral radius is about 1." in run.message


def test_loops_for_minima_refuse():
    problem, x = equilibrium(0.5)
    with pytest.raises(TypeError, match=r"CG needs a symmetric matrix.*Use GMRES"):
        bl.AID(bl.FixedPoint(5), bl.CG(5)).init(problem, x, ZERO)
    with pytest.raises(TypeError, match="Richardson needs a symmetric matrix"):
        bl.AID(bl.FixedPoint(5), bl.Richardson("auto", 5)).init(problem, x, ZERO)
    with pytest.raises(TypeError, match=r"GradientDescent cannot take.*equilibrium"):
        bl.AID(bl.GradientDescent(0.1, 5), bl.GMRES(5)).init(problem, x, ZERO)
    smooth = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: jnp.sum(y))
    with pytest.raises(TypeError, match=r"FixedPoint cannot take.*smooth g"):
        bl.ITD(bl.FixedPoint(5)).init(smooth, ZERO, ZERO)
    scalar = bl.Problem.fixed_point(lambda x, y: jnp.sum(y), outer)
    with pytest.raises(ValueError, match="must return something like y"):
        bl.ITD(bl.FixedPoint(5)).init(scalar, x, ZERO)
    with pytest.raises(ValueError, match=r"An equilibrium .* has no prox"):
        bl.Problem(affine, outer, prox=bl.prox.L1(0.1), is_equilibrium=True)


@pytest.mark.parametrize("history", [2, 5])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_anderson_in_single_precision(history, shape):
    """More differences than dimensions: they depend on one another to the last digit."""
    problem = bl.Problem.fixed_point(lambda x, y: jnp.cos(y) + x, lambda x, y: jnp.sum(y))
    x = jnp.zeros(shape, jnp.float32)
    solver = bl.Anderson(steps=30, tolerance=1e-6, history=history)
    y, _, info = solver(problem, x, x, solver.init(x), 0)
    np.testing.assert_allclose(y, 0.73908513, rtol=1e-6)
    assert info.result == 0
    assert info.steps <= 8  # six where the precision is double


def test_a_start_far_away_does_not_hide_the_end():
    """What is rounding of y⁰ in single precision was half of y*, and the derivative off by 4 %."""
    A = 0.9 * np.array([[0.0, 1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]], np.float32)
    x = np.array([0.3, -0.2, 0.5], np.float32)
    ystar = bl.equilibrium(lambda x, y: jnp.sin(A @ y) + x)

    @jax.jit
    def found(y0):
        return ystar.with_info(x, y0), jax.jacrev(ystar)(x, y0)

    def truth(x):
        y = np.zeros(3)
        for _ in range(2000):
            y = np.sin(A @ y) + x
        return y

    slopes = np.stack([(truth(x + 1e-5 * e) - truth(x - 1e-5 * e)) / 2e-5 for e in np.eye(3)], 1)
    for far in (0.0, 1e3, 1e5):
        (y, info), derivative = found(np.full(3, far, np.float32))
        assert info.result == bl.Status.COMPLETED
        np.testing.assert_allclose(y, truth(x), rtol=1e-5)
        np.testing.assert_allclose(derivative, slopes, rtol=1e-4)
