"""Inner problems that are not smooth, against dense algebra and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from benchmarks import lasso as lassos

from .helpers import relative_error, stepped

RNG = np.random.default_rng(0)
X, V = RNG.normal(size=(2, 60, 20))
TRUTH = np.where(np.arange(20) < 4, 2.0, 0.0)
TRAIN, VALID = (X, X @ TRUTH + RNG.normal(size=60)), (V, V @ TRUTH)
ZERO = jnp.zeros(20)


def fit(y, X, t):
    return 0.5 * jnp.mean((X @ y - t) ** 2)


def inner(x, y, X, t):
    return fit(y, X, t)


def ridged(x, y, X, t):
    return fit(y, X, t) + 0.5 * jnp.exp(x[0]) * jnp.sum(y**2)


def outer(x, y, X, t):
    return fit(y, X, t)


def user_prox(x, z, step):
    """The lasso as a user would write it."""
    return jnp.sign(z) * jnp.maximum(jnp.abs(z) - step * jnp.exp(x[0]), 0.0)


CASES = {
    "lasso": (inner, bl.prox.L1(lambda x: jnp.exp(x[0])), jnp.array([-1.5])),
    "weighted lasso": (inner, bl.prox.L1(jnp.exp), jnp.full(20, -1.5)),
    "user's own": (inner, user_prox, jnp.array([-1.5])),
    "elastic net": (
        inner,
        bl.prox.ElasticNet(lambda x: jnp.exp(x[0]), lambda x: jnp.exp(x[1])),
        jnp.array([-2.0, -1.0]),
    ),
    "box": (
        inner,
        bl.prox.Box(lambda x: -jnp.exp(x[0]), lambda x: jnp.exp(x[1])),
        jnp.array([-2.0, 0.3]),
    ),
    "non-negative": (ridged, bl.prox.NonNegative(), jnp.array([-2.0])),
    "simplex": (ridged, bl.prox.Simplex(), jnp.array([0.5])),
    "scaled simplex": (inner, bl.prox.Simplex(lambda x: jnp.exp(x[0])), jnp.array([0.5])),
    "ball": (inner, bl.prox.BallL2(lambda x: jnp.exp(x[0])), jnp.array([0.5])),
}
ALWAYS = {"elastic net", "box"}
TIGHT = bl.AID(
    bl.FISTA("auto", steps=bl.Adaptive(1e-10, 10_000)), bl.CG(steps=bl.Adaptive(1e-10, 1000))
)


def case(name):
    g, prox, x = CASES[name]
    return bl.Problem(g, outer, TRAIN, VALID, prox=prox), x


def hypergradient(method, problem, x, y=ZERO):
    return stepped(method, problem, x, y)


def differences(function, x, step=1e-5):
    units = np.eye(x.size)
    return np.array([(function(x + step * e) - function(x - step * e)) / (2 * step) for e in units])


@pytest.mark.parametrize(
    "name", [n if n in ALWAYS else pytest.param(n, marks=pytest.mark.slow) for n in CASES]
)
def test_hypergradients_against_finite_differences(name):
    problem, x = case(name)
    ystar = bl.argmin(problem.inner, prox=problem.prox)
    value = jax.jit(lambda x: outer(x, ystar(x, ZERO, *TRAIN), *VALID))
    truth = differences(value, x)
    h, state, info = hypergradient(TIGHT, problem, x)
    assert int(info.result) == bl.Status.COMPLETED
    assert relative_error(h, truth) < 1e-6
    for y in (state.y, ystar(x, ZERO, *TRAIN)):  # feasible, or of finite penalty
        if isinstance(problem.prox, bl.prox.Prox):
            assert np.isfinite(problem.prox.penalty(x, y))
    assert relative_error(jax.jit(jax.grad(value))(x), truth) < 1e-6
    steps = bl.ITD(bl.ProximalGradient(0.3, steps=300))
    assert relative_error(hypergradient(steps, problem, x)[0], truth) < 1e-6


def test_what_a_projection_returns_is_in_its_set():
    points = np.random.default_rng(0).normal(size=(200, 30))
    simplex = bl.prox.Simplex()
    inside = simplex(None, jnp.asarray(points), jnp.ones(()))
    assert simplex.penalty(None, inside) == 0
    assert simplex.penalty(None, inside.at[0, 0].add(1e-12)) == np.inf


def test_the_total_of_a_simplex_is_a_function_of_x():
    z, x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 8))), jnp.asarray(2.5)
    scaled = bl.prox.Simplex(lambda x: x**2)
    np.testing.assert_allclose(jnp.sum(scaled(x, z, 1.0), axis=1), x**2, rtol=1e-12)
    slope = jax.jacfwd(lambda x: scaled(x, z, 1.0))(x)
    np.testing.assert_allclose(jnp.sum(slope, axis=1), 2 * x, rtol=1e-12)
    with pytest.raises(ValueError, match="total must be a finite number greater than 0"):
        bl.prox.Simplex(0.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_second_derivatives_against_differences_of_first_ones(name):
    problem, x = case(name)
    ystar = bl.argmin(problem.inner, prox=problem.prox)
    gradient = jax.jit(jax.grad(lambda x: outer(x, ystar(x, ZERO, *TRAIN), *VALID)))
    hessian = jax.jit(jax.jacfwd(gradient))(x)
    assert relative_error(hessian, differences(gradient, x)) < 1e-6


def test_group_lasso_against_dense_algebra():
    """H + ∇²r on the active rows: another formula than the one that is used."""
    prox = bl.prox.GroupLasso(jnp.exp)
    problem = bl.Problem(
        lambda x, y, X, t: fit(y.reshape(-1), X, t),
        lambda x, y, X, t: fit(y.reshape(-1), X, t),
        TRAIN,
        VALID,
        prox=prox,
    )
    x = jnp.asarray(-0.5)
    h, state, info = hypergradient(TIGHT, problem, x, jnp.zeros((10, 2)))
    y = np.asarray(state.y)
    active = np.linalg.norm(y, axis=1) > 0
    assert 0 < active.sum() < 10
    rows = np.repeat(active, 2)
    strength, lengths = np.exp(x), np.linalg.norm(y[active], axis=1)
    penalty = np.zeros((rows.sum(), rows.sum()))
    for i, (row, length) in enumerate(zip(y[active], lengths, strict=True)):
        u = row / length
        penalty[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = (np.eye(2) - np.outer(u, u)) / length
    H = X[:, rows].T @ X[:, rows] / 60 + strength * penalty
    f_y = V.T @ (V @ y.ravel() - VALID[1]) / 60
    unit = (y[active] / lengths[:, None]).ravel()
    assert relative_error(h, -strength * unit @ np.linalg.solve(H, f_y[rows])) < 1e-8
    assert int(info.cost.products) < 40


def test_sparse_coding_against_finite_differences():
    """A dictionary as x, the codes of many samples as y."""
    D = jnp.asarray(np.linalg.qr(RNG.normal(size=(8, 6)))[0][:, :5] + 0.2)
    samples = jnp.asarray(RNG.normal(size=(7, 8)))

    def loss(D, codes):
        return 0.5 * jnp.sum((samples - codes @ D.T) ** 2) / 7

    problem = bl.Problem(loss, loss, prox=bl.prox.L1(0.05))
    ystar = bl.argmin(loss, prox=problem.prox)
    value = jax.jit(lambda D: loss(D, ystar(D, jnp.zeros((7, 5)))))
    h, state, _ = hypergradient(TIGHT, problem, D, jnp.zeros((7, 5)))
    assert 0 < np.sum(np.asarray(state.y) == 0) < 35
    direction = jnp.asarray(RNG.normal(size=D.shape))
    slope = (value(D + 1e-5 * direction) - value(D - 1e-5 * direction)) / 2e-5
    assert relative_error(jnp.sum(h * direction), slope) < 1e-6


def test_multiclass_svm_dual_against_finite_differences():
    """min ½‖Xᵀ(Y − y)‖²/exp(x) − ⟨Y, …⟩ over rows of y on the simplex; Blondel et al. (2022)."""
    features, labels = RNG.normal(size=(30, 4)), RNG.integers(0, 3, 30)
    Y, W, targets = np.eye(3)[labels], RNG.normal(size=(20, 4)), RNG.normal(size=(20, 3))

    def weights(x, y, d):
        return d["X"].T @ (d["Y"] - y) / jnp.exp(x)

    def dual(x, y, d):
        return 0.5 * jnp.exp(x) * jnp.sum(weights(x, y, d) ** 2) + jnp.sum(y * (1 - d["Y"]) * -1.0)

    def validation(x, y, d):
        return jnp.mean((d["W"] @ weights(x, y, d) - d["targets"]) ** 2)

    data = {"X": features, "Y": Y, "W": W, "targets": targets}

    def regularised(x, y, d):
        return dual(x, y, d) + 0.05 * jnp.sum(y**2)

    problem = bl.Problem(regularised, validation, (data,), (data,), prox=bl.prox.Simplex())
    ystar = bl.argmin(regularised, prox=problem.prox)
    y0, x = jnp.full((30, 3), 1 / 3), jnp.asarray(2.5)
    value = jax.jit(lambda x: validation(x, ystar(x, y0, data), data))
    h, state, info = hypergradient(TIGHT, problem, x, y0)
    assert int(info.result) == bl.Status.COMPLETED
    np.testing.assert_allclose(np.sum(state.y, axis=1), 1.0, rtol=1e-12)
    assert np.sum(np.asarray(state.y) == 0) > 10
    assert relative_error(h, (value(x + 1e-5) - value(x - 1e-5)) / 2e-5) < 1e-6


@pytest.mark.parametrize("seed", range(8))
def test_random_lassos_are_right_or_say_that_they_are_not(seed):
    verdict = lassos.judge(seed, [(30, 10), (40, 100)][seed % 2])
    assert not verdict.silent, verdict
    assert verdict.says != "COMPLETED" or verdict.error < lassos.CLOSE


@pytest.mark.parametrize(("seed", "shape"), [(25, (100, 500)), (11, (100, 500))])
def test_ill_conditioned_supports_are_no_excuse(seed, shape):
    """Residuals of CG that rise for long, and drift to be told from failure."""
    verdict = lassos.judge(seed, shape)
    assert verdict.says == "COMPLETED", verdict
    assert verdict.error < 1e-8


def test_the_rounding_of_residuals_shows_no_curvature():
    solver = lassos.METHOD.inner
    found = jax.jit(lambda p, x, y: solver(p, x, y, solver.init(y), 0)[1].curvature.inverse_mu)
    for seed in (79, 147, 472):  # 10¹⁷ and more was seen, of κ between 10³ and 10⁶
        lasso, kappa = lassos.random_lasso(seed, (30, 10))
        seen = found(lassos.problem_of(lasso), jnp.asarray(lasso.x), jnp.zeros(10))
        assert seen < 1e8 * kappa


@pytest.mark.slow
def test_two_hundred_lassos():
    found = lassos.main(200, 500)
    assert not any(verdict.silent for verdict in found)
    assert sum(verdict.says == "COMPLETED" for verdict in found) >= 198


def test_the_truth_of_the_lassos_can_say_no():
    lasso, _ = lassos.random_lasso(1, (30, 10))
    assert lassos.truth_on(np.arange(10), np.ones(10), lasso) is None


def test_steps_that_are_found_settle_and_cost_one_gradient():
    problem, x = case("lasso")
    for solver in (bl.ProximalGradient("auto", steps=40), bl.FISTA("auto", steps=40)):
        y, state, info = solver(problem, x, ZERO, solver.init(ZERO), 0)
        assert int(info.cost.gradients) == 40
        assert info.residual < 1e-4
        L = np.linalg.eigvalsh(X.T @ X / 60)[-1]
        assert 0.9 / L < state.kept < 2.5 / L
    # To a tolerance: the residual is that of the y returned.
    solver = bl.FISTA(0.3, steps=500, tolerance=1e-9)
    y, _, info = solver(problem, x, ZERO, solver.init(ZERO), 0)
    d = X.T @ (X @ y - TRAIN[1]) / 60
    again = problem.prox(x, y - 0.3 * d, jnp.asarray(0.3))
    np.testing.assert_allclose(info.residual, np.linalg.norm(y - again) / 0.3, atol=1e-14)
    assert info.residual <= 1e-9


def test_scales_change_nothing():
    """g and the penalty times 10⁶, y times 10⁻³."""
    problem, x = case("lasso")
    h, _, info = hypergradient(TIGHT, problem, x)
    scaled = bl.Problem(
        lambda x, y, X, t: 1e6 * fit(1e3 * y, X, t),
        lambda x, y, X, t: fit(1e3 * y, X, t),
        TRAIN,
        VALID,
        prox=bl.prox.L1(lambda x: 1e9 * jnp.exp(x[0])),
    )
    other, _, info = hypergradient(TIGHT, scaled, x)
    assert int(info.result) == bl.Status.COMPLETED
    assert relative_error(other, h) < 1e-8


def test_solve_with_nothing_set_finds_the_penalties():
    problem = bl.Problem(inner, outer, TRAIN, VALID, prox=bl.prox.L1(jnp.exp))
    run = bl.solve(problem, jnp.full(20, -2.0), ZERO)
    assert run.status is bl.Status.CONVERGED
    assert set(np.flatnonzero(run.y)) == {0, 1, 2, 3}
    h, _, _info = hypergradient(TIGHT, problem, run.x)
    assert np.linalg.norm(h) < 1e-4


def test_a_minimum_at_a_kink_is_told():
    """With one penalty the best one is where a coefficient leaves the support."""
    problem = bl.Problem(inner, outer, TRAIN, VALID, prox=bl.prox.L1(jnp.exp))
    run = bl.solve(problem, jnp.asarray(-2.0), ZERO)
    assert run.status is bl.Status.SETTLED
    assert "at a kink of Φ" in run.message
    left, right = (float(hypergradient(TIGHT, problem, run.x + move)[0]) for move in (-1e-4, 1e-4))
    assert left < 0 < right


def test_a_strength_below_zero_is_told_and_has_no_derivative():
    """−λ|y| pushes y away from zero: what minimises that is no lasso."""

    def g(x, y):
        return jnp.sum((y - jnp.asarray([2.0, -1.0])) ** 2)

    def f(x, y):
        return jnp.sum((y - jnp.asarray([2.5, -1.5])) ** 2)

    problem, y0 = bl.Problem(g, f, prox=bl.prox.L1(lambda x: x)), jnp.zeros(2)
    inner, linear = bl.ProximalGradient(0.4, steps=20), bl.CG(2)
    method = bl.AID(inner, linear)
    run = bl.solve(problem, jnp.asarray(0.5), y0, method, outer=1.0, steps=5)  # to −0.5
    assert run.status is bl.Status.INNER_NOT_FINITE
    assert "a strength or a radius that x gives is below zero" in run.message
    # A step that finds its size stays where there is a lasso; its border is no minimum of Φ.
    run = bl.solve(problem, jnp.asarray(0.5), y0, method)
    assert abs(run.x) < 1e-6
    assert np.isfinite(run.y).all()
    assert run.status is bl.Status.UNCONVERGED
    assert "a strength or a radius that x gives is below zero" in run.message

    ystar = bl.argmin(g, inner, linear, prox=bl.prox.L1(lambda x: x))
    assert np.isnan(jax.jit(jax.grad(lambda x: f(x, ystar(x, y0))))(-0.5))


def test_a_wrong_run_is_not_called_right():
    problem = bl.Problem(inner, outer, TRAIN, VALID, prox=bl.prox.L1(jnp.exp))
    short = bl.AID(bl.ProximalGradient(1e-9, steps=1), bl.CG(steps=10))
    run = bl.solve(problem, jnp.full(20, -2.0), ZERO, short, outer=0.1, steps=5, epsilon=1e-2)
    assert run.status is not bl.Status.CONVERGED
    long = bl.AID(bl.ProximalGradient(3.0, steps=20), bl.CG(steps=10))
    run = bl.solve(problem, jnp.full(20, -2.0), ZERO, long, outer=0.1, steps=20)
    assert run.status.failed
    assert "The inner step size 3 is above the largest stable one" in run.message


@pytest.mark.parametrize(
    ("method", "who"),
    [
        (bl.schemes.auto(), "NewtonCG"),
        (bl.AID(bl.GradientDescent(0.1, 5), bl.CG(5)), "GradientDescent"),
        (bl.ITD(bl.Nesterov(0.1, 0.5, 5)), "Nesterov"),
        (bl.Exact(), "Exact"),
    ],
)
def test_methods_for_smooth_problems_refuse(method, who):
    problem, x = case("lasso")
    with pytest.raises(TypeError, match=f"{who} cannot take.*proximal map"):
        method.init(problem, x, ZERO)


def test_what_is_no_proximal_map_is_refused():
    with pytest.raises(TypeError, match=r"prox must be a function prox\(x, y, step\)"):
        bl.Problem(inner, outer, TRAIN, VALID, prox=0.1)
    with pytest.raises(ValueError, match="strength must be at least 0"):
        bl.prox.L1(-1.0)
    problem = bl.Problem(inner, outer, TRAIN, VALID, prox=lambda x, z, step: z[:3])
    with pytest.raises(ValueError, match="must return something like y"):
        TIGHT.init(problem, jnp.zeros(1), ZERO)
    with pytest.raises(ValueError, match="strength must be a number or arrays"):
        bl.prox.L1(jnp.ones(3))(None, {"a": ZERO}, jnp.ones(()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lasso", "elastic net"])
def test_hypergradients_are_those_of_jaxopt(name):
    jaxopt = pytest.importorskip("jaxopt")
    problem, x = case(name)
    if name == "lasso":
        prox, strength = jaxopt.prox.prox_lasso, lambda x: jnp.exp(x[0])
    else:
        # Its penalty is λ(‖y‖₁ + γ/2 ‖y‖²).
        prox, strength = (
            jaxopt.prox.prox_elastic_net,
            lambda x: (jnp.exp(x[0]), jnp.exp(x[1] - x[0])),
        )

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        solver = jaxopt.ProximalGradient(
            fun=lambda y, X, t: fit(y, X, t), prox=prox, tol=1e-12, maxiter=20_000
        )

        def value(x):
            return fit(solver.run(ZERO, strength(x), *TRAIN).params, *VALID)

        theirs = jax.grad(value)(x)
    assert relative_error(hypergradient(TIGHT, problem, x)[0], theirs) < 1e-6


@pytest.mark.parametrize(
    ("prox", "words"),
    [
        (lambda x, z, step: jnp.sign(z) * jnp.maximum(jnp.abs(z) - 0.3, 0.0), "proportional"),
        (lambda x, z, step: jnp.where(jnp.abs(z) > step * 0.3, z, 0.0), "moves two points apart"),
        (bl.prox.L1(0.3), None),
    ],
    ids=["without the step", "hard threshold", "lasso"],
)
def test_what_is_no_proximal_map_is_told(prox, words):
    """h would be the derivative of something that nobody minimises."""
    problem = bl.Problem(ridged, outer, TRAIN, VALID, prox=prox)
    method = bl.AID(bl.ProximalGradient(0.1, 300), bl.CG(20))
    run = bl.solve(problem, jnp.array([-2.0]), ZERO, method, outer=0.01, steps=3)
    assert run.status is (bl.Status.COMPLETED if words is None else bl.Status.UNCONVERGED)
    assert ("prox is not the proximal map of a convex function" in run.message) == bool(words)
    assert words is None or words in run.message
