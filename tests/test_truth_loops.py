"""What a loop says of itself is true: its residual, and whether it has arrived."""

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import biloop as bl

from .helpers import random_quadratic, relative_error, stepped


@eqx.filter_jit
def solve_linear(solver, H, b, v0):
    return solver(lambda v: H @ v, b, v0, solver.init(b), 0)


@eqx.filter_jit
def solve_inner(solver, problem, x, y):
    return solver(problem, x, y, solver.init(y), 0)


def spectrum(kappa, q=60, seed=0, dtype=np.float32):
    """A matrix with eigenvalues between 1/κ and 1, in this precision."""
    U = np.linalg.qr(np.random.default_rng(seed).normal(size=(q, q)))[0]
    return ((U * np.geomspace(1 / kappa, 1, q)) @ U.T).astype(dtype)


def true_residual(H, v, b):
    H, v, b = (np.asarray(a, np.float64) for a in (H, v, b))
    return np.linalg.norm(H @ v - b)


@pytest.mark.parametrize("kappa", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-5])
def test_conjugate_gradients_do_not_judge_themselves_by_their_recursion(kappa, tolerance):
    """In float32 the recursion goes on to fall where b − Hv does not."""
    H = spectrum(kappa)
    b = np.random.default_rng(1).normal(size=60).astype(np.float32)
    v, _, info = solve_linear(bl.CG(2000, tolerance), H, b, jnp.zeros_like(b))
    true = true_residual(H, v, b)
    if int(info.result) == bl.Status.COMPLETED:
        assert true <= 1.1 * tolerance
    else:
        assert int(info.result) == bl.Status.UNCONVERGED
    assert true <= 1.5 * float(info.residual)  # never told less than it is
    assert kappa < 1e3 or int(info.result) == bl.Status.UNCONVERGED or tolerance > 1e-3


@given(seed=st.integers(0, 10**6), log_kappa=st.floats(0, 6), log_tolerance=st.floats(-6, 0))
def test_no_arrival_is_claimed_in_vain(seed, log_kappa, log_tolerance):
    H = spectrum(10**log_kappa, q=24, seed=seed)
    b = np.random.default_rng(seed).normal(size=24).astype(np.float32)
    tolerance = 10**log_tolerance
    v, _, info = solve_linear(bl.CG(jnp.asarray(300), tolerance), H, b, jnp.zeros_like(b))
    true = true_residual(H, v, b)
    assert int(info.result) == bl.Status.UNCONVERGED or true <= 1.2 * tolerance
    assert true <= 2 * float(info.residual)


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e22])
@pytest.mark.parametrize(
    "solver",
    [
        bl.CG(40),
        bl.CG(40, preconditioner=bl.Diagonal(jnp.ones(20, jnp.float32))),
        bl.Lineax(lx.CG(rtol=1e-6, atol=1e-6)),
        bl.Lineax(lx.GMRES(rtol=1e-6, atol=1e-6)),
    ],
    ids=["CG", "preconditioned", "lineax's CG", "lineax's GMRES"],
)
def test_no_scale_is_absolute_for_conjugate_gradients(scale, solver):
    """The squares of 1e-22 are zero in float32, and those of 1e22 infinite."""
    H = spectrum(10.0, q=20)
    b = -np.abs(np.random.default_rng(2).normal(size=20)).astype(np.float32)
    v, _, info = solve_linear(solver, H, (scale * b).astype(np.float32), jnp.zeros_like(b))
    exact = np.linalg.solve(H.astype(float), b.astype(float))
    assert relative_error(np.asarray(v, float) / scale, exact) < 1e-4
    assert 0 < float(info.residual) < 1e-4 * scale
    assert int(info.result) == bl.Status.COMPLETED


@pytest.mark.parametrize("kappa", [1e2, 1e5])
def test_block_conjugate_gradients_compute_their_residual(kappa):
    H = spectrum(kappa, q=40)
    B = np.random.default_rng(3).normal(size=(3, 40)).astype(np.float32)
    V, info = jax.jit(
        lambda B: bl.block_cg(lambda v: H @ v, B, jnp.zeros_like(B), steps=400, tolerance=1e-5)
    )(B)
    true = np.linalg.norm(np.asarray(V, float) @ H.astype(float) - B)
    assert true <= 1.1 * float(info.residual) + 1e-12
    assert int(info.result) == bl.Status.UNCONVERGED or true <= 1.1e-5


FLAT = random_quadratic(q=4, kappa=3.0)
SOLVED = jnp.asarray(FLAT.minimiser(np.zeros(4)))


@pytest.mark.parametrize(
    "solver",
    [
        bl.GradientDescent("auto", 50, tolerance=1e-3),
        bl.GradientDescent(0.1, 200, tolerance=1e-3),
        bl.Nesterov(0.1, 0.5, 200, tolerance=1e-3),
        bl.HeavyBall(0.1, 0.5, 200, tolerance=1e-3),
        bl.Optax(optax.adam(0.1), 400, tolerance=1e-3),
        bl.NewtonCG(tolerance=1e-3),
        bl.FISTA("auto", 200, tolerance=1e-3),
    ],
    ids=["automatic", "gradient descent", "nesterov", "heavy ball", "adam", "newton", "fista"],
)
@pytest.mark.parametrize("start", [1e-7, 1.0])
def test_the_y_that_is_returned_is_the_y_that_was_judged(solver, start):
    """Also where the tolerance holds already: no trial step, and none for good measure."""
    x = jnp.zeros(4)
    y, _, info = solve_inner(solver, FLAT.problem, x, SOLVED + start)
    true = np.linalg.norm(FLAT.A @ y - FLAT.c)
    assert int(info.result) == bl.Status.COMPLETED
    assert float(info.residual) == pytest.approx(true, rel=1e-6, abs=1e-14)  # where it is rounding
    assert true <= 1e-3
    assert start > 1e-3 or int(info.steps) <= 2  # FISTA looks twice


@pytest.mark.parametrize("solver", [bl.ProximalGradient, bl.FISTA])
def test_a_start_at_the_minimum_without_the_penalty_is_not_the_end(solver):
    """As of a lasso at least squares, where ∇g is 1e-16: no α is so long that this is good."""
    problem = bl.Problem(
        FLAT.problem.inner,
        FLAT.problem.outer,
        FLAT.problem.inner_data,
        FLAT.problem.outer_data,
        prox=bl.prox.L1(0.5),
    )
    y, _, info = solve_inner(solver("auto", 500, tolerance=1e-6), problem, jnp.zeros(4), SOLVED)
    z = np.asarray(y - 0.1 * (FLAT.A @ y - FLAT.c))
    shrunk = np.sign(z) * np.maximum(np.abs(z) - 0.05, 0.0)
    assert int(info.result) == bl.Status.COMPLETED
    assert np.linalg.norm(y - shrunk) <= 1e-6


@pytest.mark.parametrize(
    "solver",
    [
        bl.Richardson("auto", 60, tolerance=1e-3),
        bl.Richardson(0.1, 200, tolerance=1e-3),
        bl.Chebyshev(8.0, 0.5, 200, tolerance=1e-3),
        bl.Neumann(0.1, 200, tolerance=1e-3),
        bl.CG(60, tolerance=1e-3),
    ],
    ids=["automatic", "richardson", "chebyshev", "neumann", "cg"],
)
@pytest.mark.parametrize("start", [1e-7, 1.0])
def test_the_v_that_is_returned_is_the_v_that_was_judged(solver, start):
    b = jnp.asarray(FLAT.t)
    v0 = jnp.asarray(np.linalg.solve(FLAT.A, FLAT.t)) + start
    v, _, info = solve_linear(solver, jnp.asarray(FLAT.A), b, v0)
    true = true_residual(FLAT.A, v, b)
    assert int(info.result) == bl.Status.COMPLETED
    np.testing.assert_allclose(float(info.residual), true, rtol=1e-5, atol=1e-12)
    assert true <= 1e-3


@given(seed=st.integers(0, 10**6), log_kappa=st.floats(0, 1.7), log_scale=st.floats(-3, 3))
def test_an_automatic_step_does_not_break_what_it_has_solved(seed, log_kappa, log_scale):
    """Where the gradient is zero there is nothing to multiply the step by."""
    curvature = np.geomspace(1, 10**log_kappa, 4) * 10**log_scale
    target = np.random.default_rng(seed).normal(size=4)
    y, info = to_target(jnp.asarray(curvature), jnp.asarray(target))
    assert int(info.result) == bl.Status.COMPLETED
    assert relative_error(y, target) < 1e-6


@jax.jit
def to_target(curvature, target):
    problem = bl.Problem(
        lambda x, y, d: 0.5 * jnp.sum(d["c"] * (y - d["t"]) ** 2),
        lambda x, y: jnp.sum(y),
        inner_data=({"c": curvature, "t": target},),
    )
    solver = bl.GradientDescent("auto", 150)
    y, _, info = solver(problem, jnp.zeros(1), jnp.zeros(4), solver.init(jnp.zeros(4)), 0)
    return y, info


@pytest.mark.parametrize("steps", [300, "auto"])
def test_no_scale_is_absolute_for_automatic_steps(steps):
    """Where y and g are of size 10⁻⁶ products of what a step changes underflow in float32."""

    def run(curvature, target):
        problem = bl.Problem(
            lambda x, y, d: 0.5 * jnp.sum(d["c"] * (y - d["t"]) ** 2),
            lambda x, y: jnp.sum(y),
            inner_data=({"c": curvature, "t": target},),
        )
        solver, y = bl.GradientDescent("auto", steps), jnp.zeros(8, jnp.float32)
        return solver(problem, jnp.zeros(1, jnp.float32), y, solver.init(y), 0)

    curvature = jnp.asarray(1e-6 * np.geomspace(0.01, 1, 8), jnp.float32)
    targets = jnp.asarray(1e-6 * np.random.default_rng(0).normal(size=(20, 8)), jnp.float32)
    y, _, info = jax.jit(jax.vmap(lambda t: run(curvature, t)))(targets)
    assert np.all(np.isfinite(info.residual))
    assert np.all(np.linalg.norm(y - targets, axis=1) < 0.5 * np.linalg.norm(targets, axis=1))


def test_a_step_size_that_underflows_is_refused():
    with pytest.raises(ValueError, match="1e-09 is 0 in float16"):
        bl.GradientDescent(1e-9, 3).init(jnp.zeros(2, jnp.float16))
    bl.GradientDescent(1e-9, 3).init(jnp.zeros(2, jnp.float32))


RNG = np.random.default_rng(0)
X, NOISE = RNG.normal(size=(50, 5)), RNG.normal(size=50)
SIGNS = np.sign(X @ RNG.normal(size=5) + 0.5 * NOISE)
COUNTS = RNG.poisson(3, size=50).astype(float)
CONVEX = {
    "logistic": (lambda y: jnp.mean(jax.nn.softplus(-SIGNS * (X @ y))) + 5e-3 * jnp.sum(y**2), 5.0),
    "far away": (lambda y: jnp.mean(jax.nn.softplus(-SIGNS * (X @ y))) + 5e-3 * jnp.sum(y**2), 500),
    "poisson": (lambda y: jnp.mean(jnp.exp(X @ y) - COUNTS * (X @ y)) + 0.05 * jnp.sum(y**2), 5.0),
    "pseudo-huber": (
        lambda y: jnp.mean(jnp.sqrt(1 + (X @ y - 5 * COUNTS) ** 2)) + 0.05 * jnp.sum(y**2),
        50.0,
    ),
    "soft hinge": (
        lambda y: jnp.mean(jax.nn.softplus(10 * (1 - SIGNS * (X @ y)))) / 10 + 0.05 * jnp.sum(y**2),
        5.0,
    ),
}


@pytest.mark.parametrize("name", CONVEX)
def test_newton_reaches_its_tolerance_on_what_is_smooth_and_strongly_convex(name):
    g, start = CONVEX[name]
    problem = bl.Problem(lambda x, y: g(y) + 0 * x, lambda x, y: jnp.sum(y))
    y0 = jnp.full(5, float(start))
    y, _, info = solve_inner(bl.NewtonCG(tolerance=1e-8), problem, jnp.zeros(()), y0)
    assert int(info.result) == bl.Status.COMPLETED
    assert np.linalg.norm(jax.grad(g)(y)) <= 1e-8


@pytest.mark.parametrize("name", CONVEX)
def test_an_adaptive_newton_leaves_the_share_of_the_error_that_it_may(name):
    g, start = CONVEX[name]
    problem = bl.Problem(lambda x, y: g(y) + 0 * x, lambda x, y: jnp.sum(y))
    y0 = jnp.full(5, float(start))
    y, _, info = solve_inner(bl.NewtonCG(), problem, jnp.zeros(()), y0)
    best, _, _ = solve_inner(bl.NewtonCG(tolerance=1e-8), problem, jnp.zeros(()), y0)
    assert int(info.result) == bl.Status.COMPLETED
    assert np.linalg.norm(y - best) <= 2 * 0.1**1.5 * np.linalg.norm(y0 - best)


def test_newton_says_so_where_it_stops_short():
    """At a kink no step is short enough, in float32 no tolerance of 1e-12 is met."""
    kink = bl.Problem(lambda x, y: jnp.sum(jnp.abs(y)) + 0.5 * jnp.sum(y**2), lambda x, y: 0.0 * x)
    for solver in (bl.NewtonCG(), bl.NewtonCG(tolerance=1e-6)):
        _, _, info = solve_inner(solver, kink, jnp.zeros(()), jnp.asarray([0.3, -2.0]))
        assert int(info.result) == bl.Status.UNCONVERGED
    problem = bl.Problem(
        lambda x, y: jnp.sum(jnp.logaddexp(y - 1, 1 - y)) + x, lambda x, y: jnp.sum(y)
    )
    y0 = jnp.full(3, 0.7, jnp.float32)
    _, _, info = solve_inner(bl.NewtonCG(tolerance=1e-12), problem, jnp.float32(0), y0)
    assert int(info.result) in (bl.Status.UNCONVERGED, bl.Status.COMPLETED)
    assert int(info.result) == bl.Status.UNCONVERGED or float(info.residual) <= 1e-12


def test_newton_leaves_a_hill():
    """A double well from its concave middle: to one of the minima."""
    problem = bl.Problem(lambda x, y: jnp.sum((y**2 - 1) ** 2), lambda x, y: jnp.sum(y))
    y0 = jnp.asarray([0.1, -0.2, 0.05])
    y, _, info = solve_inner(bl.NewtonCG(tolerance=1e-8), problem, jnp.zeros(()), y0)
    np.testing.assert_allclose(np.abs(y), 1.0, atol=1e-6)
    assert int(info.result) == bl.Status.COMPLETED


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_exact_is_exact_in_every_scale(scale, size):
    """h against finite differences of Φ by SciPy-free Newton in NumPy, with y of this size."""
    data = (np.random.default_rng(4).normal(size=(30, 3)) / size, NOISE[:30])

    def inner(x, y, Z, t):
        r = Z @ y - t
        return scale * (jnp.mean(jnp.logaddexp(r, -r)) + 0.5 * jnp.exp(x) * jnp.sum(y**2) / size**2)

    problem = bl.Problem(
        inner, lambda x, y, Z, t: jnp.mean((Z @ y - t) ** 2), inner_data=data, outer_data=data
    )

    def phi(x):
        Z, t = data
        y = np.zeros(3)
        for _ in range(50):
            r = Z @ y - t
            d = Z.T @ np.tanh(r) / 30 + np.exp(x) * y / size**2
            H = (Z.T * (1 - np.tanh(r) ** 2)) @ Z / 30 + np.exp(x) * np.eye(3) / size**2
            y = y - np.linalg.solve(H, d)
        return np.mean((Z @ y - t) ** 2)

    method, x = bl.Exact(), jnp.zeros(())
    h, _, info = jax.jit(method)(problem, x, method.init(problem, x, jnp.zeros(3)), 0)
    assert int(info.result) == bl.Status.COMPLETED
    assert relative_error(h, (phi(1e-5) - phi(-1e-5)) / 2e-5) < 1e-6


def test_exact_finds_a_minimiser_that_is_nothing_but_rounding():
    """At y* = 0, by symmetry: what is left is small against the way there, not against y."""
    rng = np.random.default_rng(3)
    half, t = rng.normal(size=(20, 3)), rng.normal(size=20)
    Z, T = np.concatenate([half, half]), np.concatenate([t, -t])

    def inner(x, y):
        r = Z @ y - T
        return jnp.mean(jnp.logaddexp(r, -r)) + 0.05 * jnp.exp(x) * jnp.sum(y**2)

    problem, method = bl.Problem(inner, lambda x, y: jnp.sum(y**2) + x**2), bl.Exact()
    x = jnp.ones(())
    h, state, info = jax.jit(method)(problem, x, method.init(problem, x, jnp.ones(3)), 0)
    assert int(info.result) == bl.Status.COMPLETED
    assert 0 < np.linalg.norm(state.y) < 1e-15
    np.testing.assert_allclose(h, 2.0)


@pytest.mark.parametrize("lanes", [16])
def test_exact_ends_in_many_lanes(lanes):
    """Under vmap a predicate that computes may be rounded in two ways, and never be satisfied."""
    rng = np.random.default_rng(5)
    Z = rng.normal(size=(60, 4)).astype(np.float32)
    signs = np.sign(Z @ rng.normal(size=4) + rng.normal(size=60)).astype(np.float32)
    problem = bl.Problem(
        lambda x, y, Z, t: jnp.mean(jax.nn.softplus(-t * (Z @ y))) + jnp.sum(jnp.exp(x) * y**2),
        lambda x, y, Z, t: jnp.mean(jax.nn.softplus(-t * (Z @ y))),
        inner_data=(Z, signs),
        outer_data=(Z, signs),
    )
    method = bl.Exact()
    x = jnp.asarray(rng.normal(size=(lanes, 4)), jnp.float32)

    @jax.jit
    @jax.vmap
    def all_of_them(x):
        return method(problem, x, method.init(problem, x, jnp.zeros(4, jnp.float32)), 0)[2].result

    assert np.all(np.asarray(all_of_them(x)) == bl.Status.COMPLETED)


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_an_adaptive_loop_that_knows_nothing_looks_twice(start):
    """b along the stiff direction but for a hundredth: the first step sees nothing of the rest."""
    H, b = np.diag([1e3, 1e-2]), np.array([1.0, 1e-2])
    v, _, info = solve_linear(bl.CG("auto"), H, b, np.full(2, start))
    assert info.result == bl.Status.COMPLETED
    np.testing.assert_allclose(v, [1e-3, 1.0], atol=0.11)
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum(jnp.asarray([1e3, 1e-2]) * y**2) - y @ jnp.asarray(b),
        lambda x, y: jnp.sum(y),
    )
    y, _, info = solve_inner(bl.NewtonCG(), problem, jnp.zeros(()), jnp.zeros(2))
    assert info.result == bl.Status.COMPLETED
    np.testing.assert_allclose(y, [1e-3, 1.0], atol=0.11)


@pytest.mark.parametrize(
    "inner", [bl.NewtonCG(), bl.GradientDescent("auto", "auto")], ids=["newton", "descent"]
)
def test_an_adaptive_loop_that_knows_nothing_finds_a_flat_direction(inner):
    """Nine parts of b are 1 and one is 3e-4, with the curvature 1e-5: nearly all of y is there."""
    curvatures = jnp.concatenate([jnp.asarray([1e-5]), jnp.linspace(0.1, 1.0, 9)])
    b = jnp.ones(10).at[0].set(3e-4)
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum(curvatures * y**2) - jnp.sum(b * x * y),
        lambda x, y: 0.5 * jnp.sum((y - 100 * b) ** 2),
    )
    method, x = bl.AID(inner, bl.CG("auto")), jnp.ones(10)
    h, state, info = stepped(method, problem, x, jnp.zeros(10))
    y = b / curvatures
    exact = b * (y - 100 * b) / curvatures
    error = max(relative_error(state.y, y), relative_error(h, exact))
    assert error < 0.1 or info.result == bl.Status.UNCONVERGED


def test_an_adaptive_system_is_not_solved_where_zero_is_as_good():
    """From far away the residual falls by 10³, and is still b."""
    rng = np.random.default_rng(181)
    X = rng.normal(size=(40, 8))
    H = X.T @ X / 40 + np.diag(np.exp(rng.uniform(-8, 6, size=8)))
    b, v0 = rng.normal(size=(2, 8))
    v, _, info = solve_linear(bl.CG("auto"), H, b, v0)
    truth = np.linalg.solve(H, b)
    assert info.result == bl.Status.COMPLETED
    assert np.linalg.norm(v - truth) <= 0.3 * np.linalg.norm(truth)
