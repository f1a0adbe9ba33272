"""Problems whose samples are drawn: a quadratic in closed form, mixtures, distillation."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import biloop as bl
from biloop import problems
from biloop.data import Samples, fragments, next_letters

from . import by_jax
from .by_jax import inner_product, zeros_like
from .test_ml_problems import CLASSES, difference, labelled, near

SOURCES, TARGET = [labelled(seed, n=n) for seed, n in ((0, 30), (1, 20), (2, 14))], labelled(3)
FACTORIES = {
    "sampled quadratic": lambda: problems.sampled_quadratic(6.0, samples=24),
    "mixture": lambda: problems.mixture(SOURCES, TARGET, classes=CLASSES),
    "distillation": lambda: problems.distillation(TARGET, learned=8, classes=CLASSES),
}


@pytest.fixture(scope="module")
def instances():
    return {name: make() for name, make in FACTORIES.items()}


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
        values = jnp.stack([by_jax.inner_value(problem, x, y), inner_product(gradient, v), f])
        by_y = inner_product(gradient, v), inner_product(hessian(v), v), inner_product(f_y, v)
        by_x = inner_product(cross(v), u), inner_product(f_x, u)
        return values, jnp.stack(by_y), jnp.stack(by_x)

    _, by_y, by_x = at(x, y)
    close = {"rtol": 1e-7, "atol": 1e-9}
    np.testing.assert_allclose(by_y, difference(lambda y: at(x, y)[0], y, v), **close)
    np.testing.assert_allclose(by_x, difference(lambda x: at(x, y)[0], x, u)[1:], **close)


# The quadratic


def test_the_sampled_quadratic_is_the_quadratic(instances):
    sampled, whole = instances["sampled quadratic"], problems.quadratic(6.0)
    assert sampled.constants == whole.constants
    exact = bl.Exact()
    call = eqx.filter_jit(exact)
    for seed in range(2):
        x = near(sampled.x0, seed)
        h, state, info = call(sampled.problem, x, exact.init(sampled.problem, x, sampled.y0), 0)
        np.testing.assert_allclose(state.y, whole.minimiser(x), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(h, whole.hypergradient(x), rtol=1e-8, atol=1e-11)
        assert float(info.value) == pytest.approx(whole.value(x), rel=1e-10)
    a = np.asarray(sampled.problem.inner_data[0])
    low, *_, high = np.linalg.eigvalsh(a.T @ a / len(a))
    assert low == pytest.approx(1 / 6, rel=1e-12)
    assert high == pytest.approx(0.9 + 0.1 / 6, rel=1e-12)


def test_noise_is_variance_at_the_solution_and_nothing_else():
    """At x*, y*(x*) the gradients on single rows differ by what `noise` asks for, and cancel."""
    spreads = []
    for noise in (0.0, 1.0, 2.0):
        made = problems.sampled_quadratic(6.0, samples=24, noise=noise)
        x = jnp.asarray(made.solution())
        y = jnp.asarray(made.minimiser(x))
        rows = jax.vmap(
            lambda i, m=made, x=x, y=y: by_jax.inner_gradient(m.problem.batch(i[None]), x, y)
        )(jnp.arange(24))
        np.testing.assert_allclose(rows.mean(0), 0, atol=1e-12)
        spreads.append(float(jnp.sum(rows**2)))
    assert spreads[0] < 1e-20  # interpolation: every row is stationary at y*(x)
    assert spreads[2] == pytest.approx(4 * spreads[1], rel=1e-9)


def test_saba_reaches_the_solution_of_the_sampled_quadratic(instances):
    made = instances["sampled quadratic"]
    method = bl.schemes.saba(4, 0.1, 0.1)
    run = bl.solve(made.problem, made.x0, made.y0, method, outer=0.05, steps=8000)
    assert np.linalg.norm(made.hypergradient(run.x)) < 1e-8
    np.testing.assert_allclose(run.x, made.solution(), atol=1e-7)


# Mixtures


def test_a_mixture_weighs_sources_and_not_rows(instances):
    """g = Σ_s softmax(x)_s mean CE over source s + penalty ‖W‖², in NumPy; f without either."""
    made = instances["mixture"]
    x, W = map(np.asarray, (near(made.x0, 1), near(made.y0, 2)))

    def loss(samples):
        scores = samples.X @ W.T
        log_sum = np.log(np.exp(scores).sum(1))
        return np.mean(log_sum - scores[np.arange(len(scores)), samples.labels])

    shares = np.exp(x) / np.exp(x).sum()
    g = sum(w * loss(s) for w, s in zip(shares, SOURCES, strict=True)) + 1e-3 * np.sum(W**2)
    assert float(by_jax.inner_value(made.problem, x, W)) == pytest.approx(g, rel=1e-12)
    assert float(by_jax.outer_value(made.problem, x, W)) == pytest.approx(loss(TARGET), rel=1e-12)
    np.testing.assert_allclose(made.shares(x), shares, rtol=1e-12)
    assert float(made.loss(W, TARGET)) == pytest.approx(loss(TARGET))
    guess = (TARGET.X @ W.T).argmax(1)
    assert float(made.accuracy(W, TARGET)) == np.mean(guess == TARGET.labels)


@pytest.mark.parametrize(("name", "penalty"), [("mixture", 1e-3), ("distillation", 1e-2)])
def test_curvature_is_as_the_page_says(instances, name, penalty):
    made = instances[name]
    x, W = near(made.x0, 1), near(made.y0, 2)
    hessian = jax.hessian(lambda w: by_jax.inner_value(made.problem, x, w.reshape(W.shape)))
    low, *_, high = np.linalg.eigvalsh(hessian(W.ravel()))
    assert low == pytest.approx(2 * penalty, rel=1e-9)
    designs = [s.X for s in SOURCES] if name == "mixture" else [np.asarray(x)]
    bound = 0.5 * max(np.linalg.eigvalsh(X.T @ X / len(X))[-1] for X in designs)
    assert high <= bound + 2 * penalty


def test_a_mixture_finds_the_language_of_its_target():
    names = list(fragments())[:-1]
    found = problems.load("mixture-fragments")
    run = bl.solve(found.problem, found.x0, found.y0, steps=8)
    shares = found.instance.shares(run.x)
    assert names[int(np.argmax(shares))] == "Shakespeare"
    assert shares.max() > 0.6
    assert shares.sum() == pytest.approx(1.0, rel=1e-6)
    assert run.value < run.trace["value"][0] - 0.05  # of equal shares


def test_rows_of_all_sources_are_in_every_block():
    made = problems.load("mixture-fragments", seed=1)
    source = np.asarray(made.problem.inner_data[2])
    assert all(len(np.unique(source[first : first + 64])) == 4 for first in range(0, 2176, 64))


# Distillation


def test_distillation_trains_on_the_learned_samples_alone(instances):
    made = instances["distillation"]
    x = near(made.x0, 1)
    exact = bl.Exact()
    _, state, _ = jax.jit(exact)(made.problem, x, exact.init(made.problem, x, made.y0), 0)
    # scikit-learn minimises C Σ CE + ½‖W‖²
    model = LogisticRegression(C=1 / (2 * 1e-2 * 8), fit_intercept=False, tol=1e-10, max_iter=5000)
    model.fit(np.asarray(x), np.asarray(made.labels))
    np.testing.assert_allclose(state.y, model.coef_, atol=1e-5)


def test_learned_samples_begin_as_samples_of_their_class(instances):
    made = instances["distillation"]
    np.testing.assert_array_equal(made.labels, np.repeat(range(CLASSES), 2))
    for row, label in zip(np.asarray(made.x0), np.asarray(made.labels), strict=True):
        (place,) = np.flatnonzero((row == TARGET.X).all(1))
        assert TARGET.labels[place] == label


def test_distillation_draws_rows_of_f_only():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 5))
    labels = rng.integers(3, size=300)
    samples = Samples(centres[labels] + rng.normal(size=(300, 5)), labels)
    made = problems.distillation(samples, learned=3, classes=3)
    method = bl.schemes.soba((None, 32), 0.3, 0.3)
    run = bl.solve(made.problem, made.x0, made.y0, method, outer=0.05, steps=1500, measure=1500)
    assert run.trace["outer_samples"][0] == 2 * 32
    assert run.watched["value"][-1] < 0.9 * run.watched["value"][0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            partial(problems.sampled_quadratic, 6.0, samples=10),
            r"at least p \+ q \+ 1 = 11, got 10",
        ),
        (partial(problems.sampled_quadratic, 6.0, noise=-1.0), "noise must be .* got -1.0"),
        (partial(problems.mixture, SOURCES[:1], TARGET, classes=4), "two sources, got 1"),
        (partial(problems.mixture, SOURCES, TARGET, classes=2), "with classes=2 the labels are"),
        (partial(problems.mixture, SOURCES, TARGET, classes=4, penalty=0.0), "penalty must be"),
        (partial(problems.distillation, TARGET, learned=6, classes=4), "multiple of classes = 4"),
        (partial(problems.distillation, TARGET, learned=200, classes=4), "fewer than 50"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_next_letter_and_those_before_it():
    X, labels = next_letters("Ça, là!", context=2)
    assert X.shape == (3, 2 * 27 + 1)
    assert [" abcdefghijklmnopqrstuvwxyz"[code] for code in labels] == [" ", "l", "a"]
    assert np.flatnonzero(X[1]).tolist() == [0, 27 + 1, 54]  # a space, an a before it, and the one
