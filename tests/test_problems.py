"""The problems that ship: closed forms against the definition, constants against dense Hessians."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import biloop as bl
from biloop import problems

STEP = 0.5
FACTORIES = {
    "worst case": lambda: problems.worst_case(1.0, 0.1, 1.0),
    "quadratic": lambda: problems.quadratic(8.0, L=2.0),
    "log cosh": lambda: problems.log_cosh(8.0, L=2.0, rho=0.5, M=3.0),
}
CLOSED = ("worst case", "quadratic")


def squared(v):
    return float(np.sum(np.asarray(v) ** 2))


@eqx.filter_jit
def _hessians(problem, x, y):
    p = x.size

    def of(function, data):
        return jax.hessian(lambda z: function(z[:p], z[p:], *data))(jnp.concatenate([x, y]))

    return of(problem.inner, problem.inner_data), of(problem.outer, problem.outer_data)


def hessians(problem, x, y):
    """The joint Hessians of g and f as matrices."""
    return map(np.asarray, _hessians(problem, jnp.asarray(x), jnp.asarray(y)))


def spectral(a):
    return np.linalg.norm(a, ord=2)


# Theorem 4


@pytest.fixture(scope="module")
def worst():
    return problems.worst_case(1.0, 0.1, 1.0)


def limit(instance, method, steps=1500):
    run = bl.solve(instance.problem, instance.x0, instance.y0, method, outer=STEP, steps=steps)
    assert run.status is bl.Status.COMPLETED
    return instance.hypergradient(np.asarray(run.x))


@pytest.mark.parametrize("N", [1, 2, 5, 20])
def test_itd_ends_at_the_floor(worst, N):
    reached = squared(limit(worst, bl.schemes.n_n_loop(N, inner_step=STEP)))
    assert reached == pytest.approx(worst.floor(N, STEP), rel=1e-9)


@pytest.mark.parametrize(("N", "Q"), [(1, 1), (1, 20), (20, 1), (20, 20)])
def test_aid_with_warm_start_has_no_floor(worst, N, Q):
    method = bl.schemes.n_q_loop(N, Q, inner_step=STEP, linear_step=STEP)
    gradient = limit(worst, method)
    assert squared(gradient) < 1e-15
    # What is left is rounding.
    assert np.linalg.norm(gradient) < 1e-12


@pytest.mark.parametrize("Q", [1, 2, 5, 20])
def test_aid_from_zero_has_the_floor_of_itd(worst, Q):
    method = bl.schemes.n_q_loop(3, Q, inner_step=STEP, linear_step=STEP, warm_start_v=False)
    reached = squared(limit(worst, method))
    assert reached == pytest.approx(worst.floor(Q, STEP), rel=1e-9)
    assert reached > 1e-3


def test_floor_bounds_every_iterate_from_ones(worst):
    method = bl.schemes.n_n_loop(5, inner_step=STEP)
    seen = [squared(limit(worst, method, steps)) for steps in (1, 2, 3, 10, 50, 200)]
    assert min(seen) >= worst.floor(5, STEP) * (1 - 1e-12)


def test_admissible_worst_case_has_the_constants_asked_for():
    instance = problems.admissible_worst_case(2.0, 0.1, 3.0)
    c = instance.constants
    assert (c.L, c.mu, c.rho, c.M) == pytest.approx((2.0, 0.1, 0.0, 3.0))
    with pytest.raises(ValueError, match=r"0\.618 L; got mu=0\.7"):
        problems.admissible_worst_case(1.0, 0.7)


# Closed forms


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_are_those_of_the_functions(name):
    instance = FACTORIES[name]()
    problem, rng = instance.problem, np.random.default_rng(0)
    exact = bl.Exact()
    call = eqx.filter_jit(exact)
    gradient = jax.jit(jax.grad(problem.inner, argnums=1))
    for _ in range(5):
        x = rng.normal(size=instance.x0.shape)
        y = instance.minimiser(x)
        assert np.linalg.norm(gradient(x, y, *problem.inner_data)) < 1e-12
        assert float(problem.outer(x, y, *problem.outer_data)) == pytest.approx(instance.value(x))
        start = exact.init(problem, x, instance.y0)
        h, state, _ = call(problem, jnp.asarray(x), start, 0)
        np.testing.assert_allclose(h, instance.hypergradient(x), rtol=1e-9, atol=1e-12)
        if name == "quadratic":
            np.testing.assert_allclose(state.v, instance.adjoint(x), rtol=1e-9)


@pytest.mark.parametrize("name", CLOSED)
def test_solution_is_stationary(name):
    instance = FACTORIES[name]()
    x = instance.solution()
    assert np.linalg.norm(instance.hypergradient(x)) < 1e-10
    for seed in range(5):
        away = x + 0.1 * np.random.default_rng(seed).normal(size=x.shape)
        assert instance.value(away) > instance.value(x)


# Constants


@pytest.mark.parametrize("name", FACTORIES)
def test_constants_hold_at_random_points(name):
    instance = FACTORIES[name]()
    c, problem = instance.constants, instance.problem
    rng = np.random.default_rng(1)
    p = instance.x0.size
    blocks = []
    for scale in (0.0, 0.1, 1.0, 1.0, 3.0, 3.0):
        z = scale * rng.normal(size=p + instance.y0.size)
        g, f = hessians(problem, z[:p], z[p:])
        assert max(spectral(g), spectral(f)) <= c.L * (1 + 1e-12)
        assert np.linalg.eigvalsh(g[p:, p:])[0] >= c.mu * (1 - 1e-12)
        blocks.append((z, g[:p, p:], g[p:, p:]))
    for z, cross, inner in blocks:
        for other, other_cross, other_inner in blocks:
            distance = np.linalg.norm(z - other)
            assert spectral(cross - other_cross) <= c.rho * distance + 1e-12
            assert spectral(inner - other_inner) <= c.rho * distance + 1e-12


@pytest.mark.parametrize("name", FACTORIES)
def test_L_is_attained(name):
    instance = FACTORIES[name]()
    g, f = hessians(instance.problem, jnp.zeros_like(instance.x0), jnp.zeros_like(instance.y0))
    assert max(spectral(g), spectral(f)) == pytest.approx(instance.constants.L, rel=1e-9)


@given(
    st.floats(1.01, 1e4),
    st.floats(0.01, 100),
    st.floats(0.01, 100),
    st.floats(0.01, 100),
    st.integers(0, 1000),
)
def test_log_cosh_has_the_constants_asked_for(kappa, L, rho, M, seed):
    instance = problems.log_cosh(kappa, L=L, rho=rho, M=M, seed=seed)
    c = instance.constants
    assert (c.kappa, c.L, c.rho, c.M) == pytest.approx((kappa, L, rho, M))
    inner, outer = (data[0] for data in (instance.problem.inner_data, instance.problem.outer_data))
    A, B, W, s = (np.asarray(inner[name]) for name in ("A", "B", "W", "s"))
    U, m, gamma = (np.asarray(outer[name]) for name in ("U", "m", "gamma"))
    p = len(B)
    K = np.block([[np.zeros((p, p)), B], [B.T, A]])
    assert spectral(K) < L
    assert spectral(K + s * W.T @ W) == pytest.approx(L, rel=1e-6)
    assert np.linalg.eigvalsh(A)[0] == pytest.approx(c.mu, rel=1e-9)
    assert gamma + m * spectral(U) ** 2 == pytest.approx(L)
    assert m * np.sqrt(len(U)) * spectral(U[:, p:]) == pytest.approx(M)
    P, Q = W[:, :p], W[:, p:]
    bend = np.linalg.norm(W, axis=1).max() * spectral(Q) * max(spectral(P), spectral(Q))
    assert 4 / np.sqrt(27) * s * bend == pytest.approx(rho)


def test_rho_of_log_cosh_is_the_steepest_change_of_the_hessian():
    """With one row w, ρ is exact: the Hessian changes fastest along w, where tanh² is 1/3."""
    instance = problems.log_cosh(5.0, rho=0.3, p=1, q=1, terms=1)
    problem = instance.problem
    w = np.asarray(problem.inner_data[0]["W"])[0]
    derivative = jax.grad(problem.inner, argnums=1)
    curvatures = jax.jit(jax.jacfwd(derivative, argnums=(0, 1)))  # ∇_x∇_y g and ∇²_y g
    z = np.linspace(-3, 3, 2001)[:, None] * w / (w @ w)  # so that wᵀz runs from −3 to 3
    found = np.asarray([np.ravel(curvatures(v[:1], v[1:], *problem.inner_data)) for v in z[::10]])
    steps = np.linalg.norm(np.diff(z[::10], axis=0), axis=1)
    changes = np.abs(np.diff(found, axis=0)) / steps[:, None]
    assert changes.max() == pytest.approx(instance.constants.rho, rel=1e-3)


def test_log_cosh_gradient_is_bounded_and_hardly_less():
    """M over many (x, y), and μ far out, where the second derivative of log cosh is zero."""
    instance = FACTORIES["log cosh"]()
    problem, c = instance.problem, instance.constants
    rng = np.random.default_rng(2)
    gradient = jax.jit(jax.grad(problem.outer, argnums=1))
    z = 100 * rng.normal(size=(200, 7))
    norms = [np.linalg.norm(gradient(v[:3], v[3:], *problem.outer_data)) for v in z]
    assert 0.5 * c.M < max(norms) <= c.M
    g, _ = hessians(problem, 1e3 * z[0, :3], 1e3 * z[0, 3:])
    assert np.linalg.eigvalsh(g[3:, 3:])[0] == pytest.approx(c.mu, rel=1e-9)


@given(st.floats(1.01, 1e5), st.integers(1, 5), st.integers(1, 7), st.integers(0, 1000))
def test_quadratic_has_the_constants_asked_for(kappa, p, q, seed):
    instance = problems.quadratic(kappa, p=p, q=q, seed=seed)
    A, B, c = instance.A, instance.B, instance.constants
    K = np.block([[np.zeros((p, p)), -B.T], [-B, A]])
    assert spectral(K) == pytest.approx(1.0, rel=1e-9)
    assert np.linalg.eigvalsh(A)[0] == pytest.approx(1 / kappa, rel=1e-9)
    assert max(spectral(instance.D), spectral(instance.E)) <= 1 + 1e-12
    assert c.kappa == pytest.approx(kappa)
    rng = np.random.default_rng(seed)
    for _ in range(3):
        x = rng.normal(size=p)
        x *= instance.radius / np.linalg.norm(x)
        gradient = instance.D @ (instance.minimiser(x) - instance.t)
        assert np.linalg.norm(gradient) <= c.M * (1 + 1e-9)


@pytest.mark.parametrize("name", FACTORIES)
def test_starts_fit(name):
    instance = FACTORIES[name]()
    L = instance.constants.L
    method = bl.schemes.no_loop(1 / L, 1 / L)
    run = bl.solve(instance.problem, instance.x0, instance.y0, method, outer=0.01, steps=5)
    assert run.status is bl.Status.COMPLETED


def test_dtypes():
    for instance in (
        problems.quadratic(3.0, dtype="float32"),
        problems.log_cosh(3.0, dtype="float32"),
    ):
        for leaf in jax.tree.leaves((instance.problem.inner_data, instance.x0, instance.y0)):
            assert leaf.dtype == jnp.float32


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: problems.quadratic(1.0), r"kappa must be .*greater than 1, got 1\.0"),
        (lambda: problems.quadratic(2.0, L=0.0), "L must be .*got 0"),
        (lambda: problems.quadratic(2.0, q=0), "at least 1, got p=4, q=0"),
        (lambda: problems.quadratic(2.0, radius=0.5), r"radius must be .*got 0\.5"),
        (lambda: problems.log_cosh(np.nan), "kappa must be .*got nan"),
        (lambda: problems.log_cosh(2.0, rho=0.0), r"rho must be .*got 0\.0"),
        (lambda: problems.log_cosh(2.0, terms=0), "terms must be at least 1, got 0"),
        (lambda: problems.worst_case(mu=2.0), "mu must be at most L"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
