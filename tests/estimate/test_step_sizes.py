"""Step sizes: stable along the whole way to the minimiser, at a bounded cost."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

import biloop as bl
from biloop import estimate, problems

from ..by_jax import inner_gradient, inner_product, outer_gradients
from ..helpers import logistic_problem, random_quadratic, tree_problem
from ..test_cost import TICKS, counting_problem


@pytest.mark.slow
def test_what_step_sizes_cost():
    """Thirty products in each place, ten for each of at most six steps between them."""
    quadratic = random_quadratic(q=50, p=3)
    problem = counting_problem(quadratic, "reverse")
    x, y = quadratic.start()
    TICKS.clear()
    estimate.step_sizes(problem, x, y)
    jax.effects_barrier()
    assert 60 < TICKS["Hessian product"] <= 7 * 30 + 6 * 10
    assert TICKS["inner gradient"] <= 1 + 3 * 6 + 7
    flat = bl.Problem(lambda x, y: 0.5 * jnp.sum(y**2), lambda x, y: jnp.sum(y))
    assert estimate.step_sizes(flat, 0.0, jnp.zeros(50)).at == 0  # where there is no way to go


def test_pytrees():
    problem, x, y = tree_problem()
    found = estimate.step_sizes(problem, x, y)
    flat, unravel = jax.flatten_util.ravel_pytree(y)
    H = jax.jit(jax.hessian(lambda v: problem.inner(x, unravel(v), *problem.inner_data)))(flat)
    eigenvalues = np.linalg.eigvalsh(H)
    assert pytest.approx(eigenvalues[-1], rel=1e-9) == found.L
    assert found.mu == pytest.approx(eigenvalues[0], rel=1e-9)


def million(dtype):
    """Ridge regression of a million parameters on ten samples, and its extreme eigenvalues."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10, 10**6)).astype(dtype) / 1000
    gram = np.linalg.eigvalsh(X.astype(np.float64) @ X.astype(np.float64).T)

    def inner(x, y, X):
        return 0.5 * jnp.sum((X @ y["w"]) ** 2) + 0.5 * x * jnp.sum(y["w"] ** 2)

    problem = bl.Problem(inner, inner, (X,), (X,))
    x, y = jnp.asarray(0.1, dtype), {"w": jnp.zeros(10**6, dtype)}
    return problem, x, y, 0.1, gram[-1] + 0.1


@pytest.mark.slow
def test_a_million_parameters():
    problem, x, y, mu, L = million(np.float32)
    found = estimate.step_sizes(problem, x, y, products=15)
    assert L * (1 - 1e-3) <= found.L <= 1.1 * L
    assert found.mu == pytest.approx(mu, rel=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_million_parameters_with_all_products(dtype):
    problem, x, y, mu, L = million(dtype)
    found = estimate.step_sizes(problem, x, y, products=60)
    assert L * (1 - 1e-3) <= found.L <= 1.001 * L
    assert found.mu == pytest.approx(mu, rel=1e-2)


# Step sizes


@functools.cache
def digits_cleaning(dtype=np.float32):
    """Weights σ(x_i) of 300 training digits, three in ten mislabelled, and 200 clean ones."""
    X, labels = load_digits(return_X_y=True)
    X, rng = (X / 16).astype(dtype), np.random.default_rng(0)
    onehot = np.eye(10, dtype=dtype)
    noisy = np.where(rng.uniform(size=300) < 0.3, rng.integers(0, 10, 300), labels[:300])

    def cross_entropy(W, X, T):
        return -jnp.sum(T * jax.nn.log_softmax(X @ W), axis=1)

    def inner(x, W, X, T):
        weighted = jnp.mean(jax.nn.sigmoid(x) * cross_entropy(W, X, T))
        return weighted + 0.005 * jnp.sum(W**2)

    def outer(x, W, X, T):
        return jnp.mean(cross_entropy(W, X, T))

    problem = bl.Problem(
        inner, outer, (X[:300], onehot[noisy]), (X[300:500], onehot[labels[300:500]])
    )
    # A wide start: the softmax is saturated, and its curvature there says nothing of what follows.
    W = rng.normal(size=(64, 10)).astype(dtype)
    return problem, jnp.zeros(300, dtype), jnp.asarray(W)


def quadratic_start(kappa):
    instance = problems.quadratic(kappa)
    return instance.problem, instance.x0, instance.y0


STARTS = {
    "quadratic, κ = 2": (lambda: quadratic_start(2.0), 0.1, 300),
    "quadratic, κ = 30": (lambda: quadratic_start(30.0), 0.01, 300),
    "logistic regression": (logistic_problem, 2.0, 300),
    "digits cleaning": (digits_cleaning, 30.0, 100),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if "digits" in n else n for n in STARTS],
)
def test_step_sizes_lead_to_a_converging_run(name):
    start, outer, steps = STARTS[name]
    problem, x, y = start()
    sizes = estimate.step_sizes(problem, x, y)
    assert all(isinstance(size, float) for size in sizes[:4])
    assert isinstance(sizes.at, int)
    assert 0 < sizes.mu <= sizes.L
    assert sizes.inner == sizes.linear == pytest.approx(1 / sizes.L, rel=1e-6)
    method = bl.schemes.n_q_loop(20, 20, inner_step=sizes.inner, linear_step=sizes.linear)
    run = bl.solve(problem, x, y, method, outer=outer, steps=steps)
    assert run.status is bl.Status.COMPLETED, run.message
    g_y, (_, _, f_y) = inner_gradient(problem, x, y), outer_gradients(problem, x, y)
    for column, first in (
        ("inner_residual", jnp.sqrt(inner_product(g_y, g_y))),
        ("linear_residual", jnp.sqrt(inner_product(f_y, f_y))),
        ("hypergradient_norm", run.trace["hypergradient_norm"][0]),
    ):
        assert run.trace[column][-1] < 0.2 * float(first), column
    assert run.trace["value"][-1] < run.trace["value"][0]


@settings(max_examples=10)
@given(st.floats(1.1, 1e5), st.floats(1e-3, 1e3), st.integers(0, 1000))
def test_step_sizes_are_stable(kappa, L, seed):
    instance = problems.quadratic(kappa, L=L, seed=seed)
    sizes = estimate.step_sizes(instance.problem, instance.x0, instance.y0)
    top = np.linalg.eigvalsh(instance.A)[-1]
    assert 1 / (1.01 * top) <= sizes.inner <= 1 / (top * (1 - 1e-12))


def test_step_sizes_look_beyond_a_flat_start():
    problem, x, W = digits_cleaning()
    L = estimate.step_sizes(problem, x, W).L
    saturated = estimate.step_sizes(problem, x, 100 * W).L
    assert saturated > 1e-2
    assert L > 0.3


# A curvature that grows on the way


@functools.cache
def poisson(seed=0):
    """g(x, y) = mean exp(a_iᵀy) − t_i a_iᵀy + ½ Σ log(1 + exp x_j) y_j², from rates of 1."""
    rng = np.random.default_rng(seed)
    A = np.concatenate([rng.normal(size=(200, 30)) / np.sqrt(30), np.ones((200, 1))], axis=1)
    t = rng.poisson(np.exp(A @ np.append(rng.normal(size=30), 1.2))).astype(float)

    def inner(x, y, A, t):
        rate = A @ y
        return jnp.mean(jnp.exp(rate) - t * rate) + 0.5 * jnp.sum(jax.nn.softplus(x) * y**2)

    def outer(x, y, A, t):
        return jnp.mean(jnp.exp(A @ y) - t * (A @ y))

    return bl.Problem(inner, outer, (A, t), (A, t)), jnp.full(31, -3.0), jnp.zeros(31), A, t


def poisson_hessian(A, y, x):
    return A.T @ (np.exp(A @ y)[:, None] * A) / len(A) + np.diag(np.log1p(np.exp(x)))


def descend(A, t, x, y, step, steps):
    """Gradient descent in NumPy; ‖∇g‖ at its end."""
    penalty = np.log1p(np.exp(x))

    def gradient(y):
        return A.T @ (np.exp(np.minimum(A @ y, 500)) - t) / len(A) + penalty * y

    for _ in range(steps):
        y = y - step * gradient(y)
    return y, np.linalg.norm(gradient(y))


def test_step_sizes_are_stable_where_the_curvature_grows():
    problem, x, y, A, t = poisson()
    sizes = estimate.step_sizes(problem, x, y)
    x, y = np.asarray(x), np.asarray(y)
    minimiser, left = descend(A, t, x, y, sizes.inner, 5000)
    assert left < 1e-10
    first, last = (np.linalg.eigvalsh(poisson_hessian(A, z, x))[-1] for z in (y, minimiser))
    assert last > 3 * first
    assert 0.9 * last < sizes.L < 1.5 * last
    assert sizes.at > 0
    # Which one step from the curvature at the start is not.
    assert not descend(A, t, x, y, 1 / first, 5000)[1] < 1e-3


def test_step_sizes_remember_a_curvature_that_falls():
    """From the far side of the minimiser the start is the steepest place."""
    problem, x, y, A, t = poisson()
    y = np.append(np.zeros(30), 3.0)
    sizes = estimate.step_sizes(problem, x, jnp.asarray(y))
    top = np.linalg.eigvalsh(poisson_hessian(A, y, np.asarray(x)))[-1]
    assert top * (1 - 1e-9) <= sizes.L < 1.2 * top
    assert sizes.at == 0
    assert descend(A, t, np.asarray(x), y, sizes.inner, 5000)[1] < 1e-3


def test_the_smallest_eigenvalue_of_the_way_is_told():
    """g'' is 1.1 at the start 0 and falls to 0.1 far out, where the minimiser is."""
    problem = bl.Problem(
        lambda x, y: jnp.sum(0.05 * y**2 + jnp.logaddexp(y, -y) - 3 * y), lambda x, y: jnp.sum(y)
    )
    sizes = estimate.step_sizes(problem, 0.0, jnp.zeros(3))
    assert pytest.approx(1.1, rel=1e-6) == sizes.L
    assert sizes.mu < 0.11


@pytest.mark.slow
def test_scales_change_no_verdict():
    """Multiplying g by 10⁶ divides the steps by it; nothing else."""
    problem, x, y, *_ = poisson()
    sizes = estimate.step_sizes(problem, x, y)
    for scale in (1e6, 1e-6):
        scaled = bl.Problem(
            lambda x, y, s, *data: s[0] * problem.inner(x, y, *data),
            problem.outer,
            ((jnp.asarray(scale),), *problem.inner_data),
            problem.outer_data,
        )
        found = estimate.step_sizes(scaled, x, y)
        assert found.at == sizes.at
        assert found.L / scale == pytest.approx(sizes.L, rel=1e-6)


def test_inside_jit_nothing_is_raised():
    step_sizes = eqx.filter_jit(estimate.step_sizes)
    DIAGONAL = bl.Problem(lambda x, y: 0.5 * jnp.sum(x * y**2), lambda x, y: jnp.sum(y))
    good = DIAGONAL, jnp.asarray([2.0, 1.0, 3.0]), jnp.ones(3)
    np.testing.assert_allclose(step_sizes(*good), estimate.step_sizes(*good), rtol=1e-12)
    bad = DIAGONAL, jnp.asarray([2.0, 1.0, np.nan]), jnp.ones(3)
    assert np.isnan(step_sizes(*bad).inner)
