"""Sets that y is held in: starts outside of them, and directions that they do not have."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl

from .helpers import relative_error
from .test_proximal import CASES, TRAIN, ZERO, X, case, hypergradient, inner, outer, ridged


@pytest.mark.parametrize("solver", [bl.FISTA, bl.ProximalGradient])
def test_steps_are_found_from_starts_outside_of_the_set(solver):
    """Zero is not on the simplex, and no step is so short that it leads only a little away."""
    problem, x = case("scaled simplex")
    found = solver("auto", steps=bl.Adaptive(1e-10, 10_000))
    y, _, info = found(problem, x, ZERO, found.init(ZERO), 0)
    assert int(info.result) == bl.Status.COMPLETED
    slopes = X.T @ (X @ y - TRAIN[1]) / 60  # equal on the support, and nowhere smaller
    support = np.asarray(y) > 0
    assert 1 < np.sum(support) < 20
    np.testing.assert_allclose(slopes[support], np.min(slopes), rtol=1e-8)
    np.testing.assert_allclose(np.sum(y), np.exp(0.5), rtol=1e-12)


def test_more_steps_than_a_ball_has_directions_blame_no_constraint():
    """P of a ball has no direction outwards: the system is singular, and has a solution."""
    _, prox, _ = CASES["ball"]
    method = bl.AID(bl.FISTA("auto", steps=500), bl.CG(steps=30))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, V = rng.normal(size=(2, 30, 12))
        truth = rng.normal(size=12) * (rng.uniform(size=12) < 0.5)
        t, u = X @ truth + 0.3 * rng.normal(size=30), V @ truth
        problem = bl.Problem(inner, outer, (X, t), (V, u), prox=prox)
        x = jnp.asarray([rng.uniform(-3, -0.5)])
        h, state, info = hypergradient(method, problem, x, jnp.zeros(12))
        assert int(info.result) == bl.Status.COMPLETED
        # y = radius · direction, (H + λI) y = Xᵀt/n, differentiated.
        y, H = np.asarray(state.y), X.T @ X / 30
        multiplier = (y @ (X.T @ t / 30) - y @ H @ y) / (y @ y)
        A = np.block([[H + multiplier * np.eye(12), y[:, None]], [y[None], np.zeros((1, 1))]])
        slope = np.linalg.solve(A, np.append(np.zeros(12), y @ y))[:12]
        assert relative_error(h, slope @ V.T @ (V @ y - u) / 30) < 1e-8


def test_y_at_the_border_of_a_ball_has_derivatives():
    """∇f points outwards but for a little, and A takes what rounding leaves of that to zero."""
    ystar = bl.argmin(ridged, prox=bl.prox.BallL2(0.1))

    @jax.jit
    @jax.grad
    def slope(x, X, t):
        return jnp.sum(jnp.cos(3 * ystar(x, jnp.ones(6) / 6, X, t)))

    for seed in range(8):  # half of them were NaN
        rng = np.random.default_rng(seed)
        X, t = rng.normal(size=(12, 6)), rng.normal(size=12)
        # The penalty is the same on all of the border.
        np.testing.assert_allclose(slope(jnp.asarray([-4.0]), X, t), 0.0, atol=1e-12)


def test_f_may_fall_across_a_ball_alone():
    """There is no v then, but what rounding leaves of it, and it is nobody's constraint."""
    method = bl.AID(bl.FISTA("auto", steps=bl.Adaptive(1e-10, 10_000)), bl.CG(bl.Adaptive(1e-10)))
    size = lambda x, y, X, t: 0.5 * jnp.sum(y**2)  # noqa: E731
    for seed in range(4):  # three in four were SINGULAR or INDEFINITE
        rng = np.random.default_rng(seed)
        data = rng.normal(size=(30, 8)), rng.normal(size=30)
        problem = bl.Problem(inner, size, data, data, prox=bl.prox.BallL2(lambda x: jnp.exp(x[0])))
        x = jnp.asarray([-3.0])
        h, _, info = hypergradient(method, problem, x, jnp.zeros(8))
        assert int(info.result) == bl.Status.COMPLETED
        np.testing.assert_allclose(h, np.exp(2 * x), rtol=1e-8)  # Φ = exp(2x)/2


def test_ridges_of_all_sizes_leave_y_its_derivatives():
    """P is nearly zero for some coordinates: the system must not have powers of that."""
    rng = np.random.default_rng(5)
    X, t = rng.normal(size=(30, 8)), rng.normal(size=30)
    x = rng.permutation(np.linspace(-5.0, 5.0, 8)) * np.log(10)
    ystar = bl.argmin(inner, prox=bl.prox.ElasticNet(0.0, jnp.exp))
    jacobian = jax.jit(jax.jacrev(lambda x: ystar(x, jnp.zeros(8), X, t)))(jnp.asarray(x))
    A = X.T @ X / 30 + np.diag(np.exp(x))
    y = np.linalg.solve(A, X.T @ t / 30)
    truth = -np.linalg.solve(A, np.diag(np.exp(x) * y))
    for row, true in zip(jacobian, truth, strict=True):  # the small coordinates, too
        np.testing.assert_allclose(row, true, atol=1e-8 * np.max(np.abs(true)))


@pytest.mark.parametrize("solver", [bl.FISTA, bl.ProximalGradient])
def test_steps_are_found_where_jax_has_single_precision_alone(solver):
    """As it is by default: its integers end at 2³¹."""
    with jax.enable_x64(False):
        problem = bl.Problem(
            lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: jnp.sum(y**2), prox=bl.prox.Simplex()
        )
        found, y = solver("auto", steps=bl.Adaptive(1e-4, 100)), jnp.zeros(3)
        y, _, info = found(problem, jnp.asarray([1.0, 0.0, 0.0]), y, found.init(y), 0)
        assert int(info.result) == bl.Status.COMPLETED
    assert y.dtype == jnp.float32
    np.testing.assert_allclose(y, [1, 0, 0], atol=1e-3)
