"""The problems on samples: against plain formulas, closed forms, differences, and scikit-learn."""

import os
import re
import subprocess
import sys
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.linear_model import LogisticRegression

import biloop as bl
from biloop import oracles, problems
from biloop.data import Samples, sow
from biloop.problems import classification, sparse_classes, sparse_regression
from biloop.problems.classification import aligned, scores

from . import by_jax
from .by_jax import inner_product, zeros_like

CLASSES = 4


def labelled(seed=0, n=30, d=7, classes=CLASSES, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return Samples(rng.normal(size=(n, d)).astype(dtype), rng.integers(classes, size=n))


def regression(seed=0):
    return sparse_regression(25, 6, relevant=3, noise=0.5, seed=seed)


def representation():
    rng = np.random.default_rng(3)
    start = rng.normal(size=(6, 8)), rng.normal(size=8)
    return problems.hyper_representation(*regression(), H0=start[0], w0=start[1])


TRAIN, VALIDATION = labelled(0), labelled(1, n=20)
FACTORIES = {
    "softmax ridge": lambda: problems.softmax_ridge(TRAIN, VALIDATION, classes=CLASSES, x0=-2.0),
    "data cleaning": lambda: problems.data_cleaning(TRAIN, VALIDATION, classes=CLASSES),
    "representation": representation,
    "network, labels": lambda: problems.hyper_network(
        TRAIN, VALIDATION, classes=CLASSES, widths=(6, 5)
    ),
    "network, targets": lambda: problems.hyper_network(*regression(), classes=None, widths=(5,)),
    "ridge": lambda: problems.ridge(*regression()),
    "logistic": lambda: problems.logistic(*sparse_classes(40, 6, relevant=3, noise=0.5)),
    "multinomial": lambda: problems.logistic(TRAIN, VALIDATION, classes=CLASSES, x0=-1.0),
    "robust": lambda: problems.robust_quadratic(6.0),
}
CLOSED = ("representation", "ridge", "robust")


@pytest.fixture(scope="module")
def instances():
    return {name: make() for name, make in FACTORIES.items()}


def near(tree, seed, scale=0.3):
    """A random point near a tree."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda a: jnp.asarray(np.asarray(a) + scale * rng.normal(size=a.shape), a.dtype), tree
    )


def difference(function, at, along, h=1e-5):
    """The derivative of a function at a point along a direction, by central differences."""

    def away(s):
        return np.asarray(function(jax.tree.map(lambda a, d: a + s * d, at, along)))

    return (away(h) - away(-h)) / (2 * h)


# Derivatives


@pytest.mark.parametrize("name", FACTORIES)
def test_derivatives_are_differences(instances, name):
    problem = instances[name].problem
    x, y = near(instances[name].x0, 1), near(instances[name].y0, 2)
    u, v = near(zeros_like(x), 3), near(zeros_like(y), 4)

    @jax.jit
    def at(x, y):
        hessian, cross = by_jax.linearise(problem, x, y)
        gradient = by_jax.inner_gradient(problem, x, y)
        f, f_x, f_y = by_jax.outer_gradients(problem, x, y)
        values = by_jax.inner_value(problem, x, y), inner_product(gradient, v), f
        by_y = inner_product(gradient, v), inner_product(hessian(v), v), inner_product(f_y, v)
        by_x = inner_product(cross(v), u), inner_product(f_x, u)
        return tuple(map(jnp.stack, (values, by_y, by_x)))

    _, by_y, by_x = at(x, y)
    close = {"rtol": 1e-7, "atol": 1e-9}
    np.testing.assert_allclose(by_y, difference(lambda y: at(x, y)[0], y, v), **close)
    np.testing.assert_allclose(by_x, difference(lambda x: at(x, y)[0], x, u)[1:], **close)


def test_exact_hypergradients_are_differences_of_the_total_objective(instances):
    instance = instances["network, labels"]
    exact = bl.Exact()
    call = eqx.filter_jit(exact)
    x, u = near(instance.x0, 1), near(zeros_like(instance.x0), 5)

    def at(x):
        return call(instance.problem, x, exact.init(instance.problem, x, instance.y0), 0)

    slope = float(difference(lambda x: at(x)[2].value, x, u, h=1e-4))
    assert float(inner_product(at(x)[0], u)) == pytest.approx(slope, rel=1e-5)


# Closed forms


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_are_those_of_the_functions(instances, name):
    instance = instances[name]
    exact = bl.Exact()
    call = eqx.filter_jit(exact)
    for seed in range(3):
        x = near(instance.x0, seed)
        start = exact.init(instance.problem, x, instance.y0)
        h, state, info = call(instance.problem, x, start, 0)
        np.testing.assert_allclose(state.y, instance.minimiser(x), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(state.v, instance.adjoint(x), rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(h, instance.hypergradient(x), rtol=1e-8, atol=1e-11)
        assert float(info.value) == pytest.approx(instance.value(x), rel=1e-10)


def test_closed_forms_of_a_network(instances):
    instance = instances["network, targets"]
    x = near(instance.x0, 1)
    y = jnp.asarray(instance.minimiser(x))
    residual = jax.jit(by_jax.inner_gradient)(instance.problem, x, y)
    assert np.linalg.norm(residual) < 1e-14
    loss = jax.jit(instance.loss)(x, y, regression()[1])
    assert float(loss) == pytest.approx(instance.value(x))
    with pytest.raises(ValueError, match="real targets, not for labels"):
        instances["network, labels"].minimiser(instances["network, labels"].x0)
    with pytest.raises(ValueError, match="accuracy needs labels"):
        instance.accuracy(x, y, TRAIN)


@pytest.mark.parametrize(("seed", "expected"), [(0, 0.004863), (1, 0.004164), (2, 0.004337)])
def test_the_infimum_on_the_draws_of_table_3(seed, expected):
    """Seed 0 has its best predictor inside the ellipsoid, seeds 1 and 2 on its boundary."""
    d = sow(seed)
    instance = problems.hyper_representation((d.X_T, d.Y_T), (d.X_V, d.Y_V), H0=d.H_0, w0=d.w_0)
    assert instance.infimum() == pytest.approx(expected, abs=5e-7)
    S, c = (instance.X.T @ a / 500 for a in (instance.X, instance.t))
    u = np.linalg.solve(instance.V.T @ instance.V, instance.V.T @ instance.s)
    assert (u @ (c - S @ u) > 0) == (seed == 0)
    assert instance.value(d.H_0) > instance.infimum()
    if seed == 0:  # attained, by a representation with a single feature
        H = np.zeros_like(d.H_0, np.float64)
        H[:, 0] = u * np.sqrt(instance.gamma / (u @ (c - S @ u)))
        assert instance.value(H) == pytest.approx(instance.infimum(), rel=1e-10)


def test_the_infimum_is_approached_and_never_passed(instances):
    instance = instances["representation"]
    H, velocity, values = np.asarray(instance.x0), 0.0, []
    for _ in range(1500):  # momentum, with closed forms
        velocity = 0.95 * velocity - 0.02 * instance.hypergradient(H)
        H = H + velocity
        values.append(instance.value(H))
    assert instance.infimum() <= min(values) <= 1.01 * instance.infimum()


def test_representation_without_signal():
    X = np.random.default_rng(0).normal(size=(5, 2))
    instance = problems.hyper_representation(
        (X, np.zeros(5)), (X, np.ones(5)), H0=np.eye(2), w0=np.zeros(2)
    )
    assert instance.infimum() == instance.value(np.eye(2)) == 0.5


def test_table_3():
    """f(H_k, w_k^N) in row k of the trace, after k outer steps, with the draws of seed 0."""
    d = sow(0)
    instance = problems.hyper_representation(
        (d.X_T, d.Y_T), (d.X_V, d.Y_V), H0=d.H_0, w0=d.w_0, dtype="float64"
    )
    outer = optax.adam(0.05)
    for N, expected in ((20, [9.326, 0.1100, 0.0122]), (1, [435.25, 6.906, 0.0407])):
        inner = bl.GradientDescent(1e-3, bl.schedules.Constant(N))
        method = bl.ITD(inner, max_steps=20, warm_start_y=False)
        run = bl.solve(instance.problem, instance.x0, instance.y0, method, outer=outer, steps=101)
        np.testing.assert_allclose(run.trace["value"][[10, 50, 100]], expected, rtol=2e-3)


def test_the_robust_loss_has_its_constants_and_is_not_convex(instances):
    instance = instances["robust"]
    c, rng = instance.constants, np.random.default_rng(0)
    r = np.linspace(-5, 5, 100_001)
    loss = r**2 / (1 + r**2)
    slope, curvature = np.gradient(loss, r), np.gradient(np.gradient(loss, r), r)
    assert np.sqrt(6) * instance.m * np.abs(slope).max() == pytest.approx(c.M, rel=1e-6)
    assert max(2 * instance.m, instance.gamma) == c.L
    assert curvature[2:-2].min() == pytest.approx(-0.5, abs=1e-3)
    assert curvature[2:-2].max() == pytest.approx(2, abs=1e-3)
    inner = np.block([[np.zeros((4, 4)), -instance.B.T], [-instance.B, instance.A]])
    assert np.linalg.norm(inner, 2) == pytest.approx(c.L)
    assert np.linalg.eigvalsh(instance.A)[0] == pytest.approx(c.mu)
    bends = []
    for _ in range(200):
        x, u = 3 * rng.normal(size=(2, 4))
        ends = instance.value(x + 0.1 * u), instance.value(x - 0.1 * u)
        bends.append(sum(ends) - 2 * instance.value(x))
    assert min(bends) < -1e-3 < 1e-3 < max(bends)


# The layout of the scores


def obvious(x, W, X, labels, penalty):
    """Data cleaning as one writes it."""
    S = X @ W.T
    entropy = jax.nn.logsumexp(S, axis=1) - jnp.sum(
        S * jax.nn.one_hot(labels, CLASSES, dtype=S.dtype), axis=1
    )
    return jnp.mean(jax.nn.sigmoid(x) * entropy) + penalty * jnp.sum(W**2)


@pytest.mark.parametrize("cpu", [True, False])
@pytest.mark.parametrize(("dtype", "rounding"), [("float64", 1e-13), ("float32", 1e-5)])
def test_data_cleaning_is_the_obvious_formula(dtype, rounding, cpu, monkeypatch):
    """In the layout for a CPU and in that for a GPU, which a CPU can compute with, too."""
    monkeypatch.setattr(classification, "on_cpu", lambda: cpu)
    ours = problems.data_cleaning(TRAIN, VALIDATION, classes=CLASSES, scale=0.4, dtype=dtype)
    arrays = (jnp.asarray(TRAIN.X, dtype), jnp.asarray(TRAIN.labels), jnp.asarray(1e-3, dtype))
    theirs = bl.Problem(obvious, ours.problem.outer, arrays)
    x, v = near(ours.x0, 1), near(ours.y0, 2)

    @eqx.filter_jit
    def everything(problem):
        hessian, cross = by_jax.linearise(problem, x, ours.y0)
        value = by_jax.inner_value(problem, x, ours.y0)
        return value, by_jax.inner_gradient(problem, x, ours.y0), hessian(v), cross(v)

    for a, b in zip(everything(ours.problem), everything(theirs), strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=rounding, atol=rounding * np.abs(b).max())


def test_scores_transpose_in_both_modes():
    @jax.jit
    def everything(W, dW, X):
        X = aligned(X)
        S, dS = jax.jvp(lambda W: scores(W, X), (W,), (dW,))
        R = jnp.cos(S)
        _, transpose = jax.vjp(lambda W: scores(W, X), W)
        _, again = jax.vjp(lambda R: transpose(R)[0], R)
        by_samples = jax.grad(lambda X: jnp.sum(scores(W, X) * R))(X)
        return S, dS, transpose(R)[0], again(W)[0], by_samples[:, :7]

    X = jnp.asarray(TRAIN.X)
    W, dW = jax.random.normal(jax.random.key(0), (2, CLASSES, 7))
    R = np.cos(X @ W.T)
    expected = X @ W.T, X @ dW.T, R.T @ X, X @ W.T, R @ W
    for ours, theirs in zip(everything(W, dW, X), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-13)


def test_forward_mode_is_reverse_mode(instances):
    """ITD may carry tangents forward."""
    instance = instances["softmax ridge"]
    y, v = near(instance.y0, 1), near(instance.y0, 2)

    @jax.jit
    def both(y):
        hessian, _ = by_jax.linearise(instance.problem, instance.x0, y)
        gradient = partial(by_jax.inner_gradient, instance.problem, instance.x0)
        return jax.jvp(gradient, (y,), (v,))[1], hessian(v)

    forward, reverse = both(y)
    np.testing.assert_allclose(forward, reverse, rtol=1e-11, atol=1e-14)


def test_vmap_is_a_loop_and_one_wide_product():
    instance = problems.data_cleaning(TRAIN, VALIDATION, classes=CLASSES)
    xs, Ws = (jnp.stack([near(a, seed) for seed in range(5)]) for a in (instance.x0, instance.y0))

    def gradient_and_product(x, W):
        hessian, _ = by_jax.linearise(instance.problem, x, W)
        return by_jax.inner_gradient(instance.problem, x, W), hessian(W)

    one, many = jax.jit(gradient_and_product), jax.jit(jax.vmap(gradient_and_product))
    for together, apart in zip(many(xs, Ws), zip(*map(one, xs, Ws), strict=True), strict=True):
        np.testing.assert_allclose(together, jnp.stack(apart), rtol=1e-11, atol=1e-14)
    # Four products with X, however many runs: a gradient and a Hessian product.
    assert len(products(many.lower(xs, Ws).compile().as_text())) <= 4


def products(hlo):
    return re.findall(r" dot\(.*", hlo)


def test_products_with_the_samples_are_laid_out_as_measured():
    """X Wᵀ by rows of samples, and Rᵀ X from an R by rows of samples: see docs/problems.md."""
    instance = problems.softmax_ridge(TRAIN, VALIDATION, classes=CLASSES, dtype="float32")
    gradient = jax.jit(partial(by_jax.inner_gradient, instance.problem))
    text = gradient.lower(instance.x0, instance.y0).compile().as_text()
    found = re.findall(r"= (f32\[\d+,\d+\]\S*) dot\(.*?lhs_contracting_dims=\{(\d)\}", text)
    # Rows of 7 features are stored in 8.
    assert instance.problem.inner_data[0].shape == (30, 8)
    assert found == [("f32[30,4]{1,0}", "1"), ("f32[4,8]{1,0}", "0")]


def test_only_padding_is_padding():
    W = jnp.zeros((CLASSES, 7))
    for columns in (6, 7 + 16):
        with pytest.raises(ValueError, match=f"for 7 features, but the samples have {columns}"):
            scores(W, jnp.ones((5, columns)))
    with pytest.raises(ValueError, match=r"for 7 features; the samples have shape \(5, 8\)"):
        FACTORIES["data cleaning"]().loss(W, Samples(np.ones((5, 8)), np.zeros(5, int)))


@pytest.mark.parametrize("name", ["data cleaning", "softmax ridge", "multinomial"])
def test_a_product_computes_nothing_that_depends_on_the_point(instances, name):
    instance = instances[name]

    def loop(x, y, v):
        hessian, _ = oracles.linearise(instance.problem, x, y)
        return jax.lax.fori_loop(0, 3, lambda _, v: hessian(v), v)

    program = jax.make_jaxpr(loop)(instance.x0, instance.y0, instance.y0)
    (body,) = (e.params["jaxpr"] for e in program.eqns if e.primitive.name == "scan")
    assert str(body).count("= dot_general[") == 2
    assert "exp" in str(program)
    assert not re.search(r"\b(exp|log|logistic|eq)\b", str(body)), body


def test_samples_may_lie_on_several_devices():
    program = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh
import biloop as bl
from biloop import oracles, problems
from biloop.data import Samples

rng = np.random.default_rng(0)
samples = Samples(rng.normal(size=(8, 3)).astype("float32"), rng.integers(4, size=8))
instance = problems.data_cleaning(samples, samples, classes=4, scale=1.0)
sharded = bl.shard(instance.problem, Mesh(np.array(jax.devices()), ("data",)))
x, W = instance.x0, instance.y0

@jax.jit
def gradient_and_product(problem):
    hessian, cross = oracles.linearise(problem, x, W)
    return oracles.inner_gradient(problem, x, W), hessian(W), cross(W)

for a, b in zip(gradient_and_product(instance.problem), gradient_and_product(sharded)):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
text = gradient_and_product.lower(sharded).compile().as_text()
assert "all-reduce" in text and "all-gather(f32[4,3]" not in text
print(len(jax.devices()), "devices")
"""
    flags = os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PATH": ""},
    )
    assert done.stdout == "2 devices\n", done.stderr


@pytest.mark.parametrize("name", ["softmax ridge", "logistic", "multinomial"])
def test_minimisers_are_those_of_scikit_learn(instances, name):
    instance = instances[name]
    X, labels = sparse_classes(40, 6, relevant=3, noise=0.5)[0] if name == "logistic" else TRAIN
    solver = bl.Nesterov(0.2, 0.9, steps=2000, tolerance=1e-10)
    start = solver.init(instance.y0)
    run = jax.jit(lambda x: solver(instance.problem, x, instance.y0, start, 0))
    y, _, info = run(instance.x0)
    assert info.residual <= 1e-10
    penalty = np.exp(np.ravel(instance.x0)[0])
    other = LogisticRegression(
        C=1 / (len(X) * penalty), fit_intercept=False, tol=1e-10, max_iter=1000
    ).fit(X, labels)
    np.testing.assert_allclose(y, other.coef_.reshape(y.shape), rtol=1e-5, atol=1e-6)
    accuracy = float(instance.accuracy(y, Samples(X, labels)))
    assert accuracy == pytest.approx(other.score(X, labels))
    chosen = other.predict_log_proba(X)[np.arange(len(X)), labels]
    assert float(instance.loss(y, Samples(X, labels))) == pytest.approx(-chosen.mean(), rel=1e-6)
