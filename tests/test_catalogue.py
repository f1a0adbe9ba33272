"""The catalogue of problems and the page about it, their measures, and what is refused."""

import difflib
import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from biloop import problems
from biloop.data import Samples, Speech, Split
from biloop.problems import shipped

from . import by_jax
from .test_ml_problems import FACTORIES, TRAIN, VALIDATION, labelled, near, regression

# Measures


def test_losses_and_accuracies():
    instance = FACTORIES["data cleaning"]()
    W = near(instance.y0, 1)
    X, labels = VALIDATION
    probability = np.exp(X @ W.T)
    probability /= probability.sum(axis=1, keepdims=True)
    chosen = probability[np.arange(20), labels]
    assert float(instance.loss(W, VALIDATION)) == pytest.approx(-np.mean(np.log(chosen)))
    right = np.mean(probability.argmax(axis=1) == labels)
    assert float(instance.accuracy(W, VALIDATION)) == pytest.approx(right)
    np.testing.assert_allclose(instance.weights(jnp.array([0.0, 50.0])), [0.5, 1.0])
    assert instance.loss(W.astype("float32"), VALIDATION).dtype == jnp.float32

    network = FACTORIES["network, labels"]()
    head = near(network.y0, 2)
    Z = np.tanh(X @ network.x0[0]["A"].T) @ network.x0[1]["A"].T
    guess = (np.tanh(Z) @ head.T).argmax(axis=1)
    assert float(network.accuracy(network.x0, head, VALIDATION)) == np.mean(guess == labels)


def test_what_the_page_shows_is_what_happens(capsys):
    """Cleaning finds the wrong labels, among other things."""
    page = (Path(__file__).parents[1] / "docs" / "problems.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == page.count("```python") == 2
    names = {}
    for code, claim in blocks:
        exec(code, names)
        assert capsys.readouterr().out == claim


# The catalogue


def blank(rows, features):
    return Samples(np.zeros((rows, features), np.float32), np.zeros(rows, np.int32))


@pytest.fixture
def blank_files(monkeypatch):
    """What has to be fetched in shape only, for machines that do not have it."""
    images, tables = blank(25_000, 784), (blank(49_990, 22), blank(91_701, 22))
    images.labels[:] = np.arange(25_000) % 10
    said = [Speech(year, "somebody", "some words " * 100) for year in range(1790, 2022)]
    monkeypatch.setattr(shipped, "speeches", lambda: said)
    monkeypatch.setattr(shipped, "mnist", lambda: Split(images, images))
    monkeypatch.setattr(shipped, "ijcnn1", lambda: Split(*tables))


@pytest.mark.parametrize("name", problems.catalogue())
def test_the_catalogue_says_what_it_has(name, blank_files):
    entry, made = problems.catalogue()[name], problems.load(name, seed=1)
    sizes = tuple(len(ravel_pytree(tree)[0]) for tree in (made.x0, made.y0))
    assert sizes == (entry.x_size, entry.y_size)
    assert made.description == entry.description
    assert made.instance.problem is made.problem
    samples = made.problem.inner_data[0]
    assert (len(samples) if eqx.is_array(samples) else 0) == entry.samples
    assert entry.name == name
    assert 10 < len(entry.description) <= 70
    for value in (by_jax.inner_value, by_jax.outer_value):
        assert np.isfinite(jax.eval_shape(value, made.problem, made.x0, made.y0).size)


def test_seeds_of_the_catalogue():
    same, again, other = (problems.load("ridge", seed=seed).instance.t for seed in (1, 1, 2))
    assert np.array_equal(same, again)
    assert not np.array_equal(same, other)


def test_the_catalogue_suggests_the_nearest_name():
    with pytest.raises(ValueError, match="no problem 'ridg'; did you mean 'ridge'"):
        problems.load("ridg")
    nearest = difflib.get_close_matches("mnist", problems.catalogue(), n=1, cutoff=0)[0]
    with pytest.raises(ValueError, match=nearest):
        problems.load("mnist")


def test_ijcnn1_is_logistic_regression_with_a_penalty_per_feature(monkeypatch):
    """g = mean log(1 + exp(yᵀa)) − label · yᵀa + ½ Σ exp(x_j) y_j², in NumPy; f without penalty."""
    rng = np.random.default_rng(0)
    train, validation = (
        Samples(rng.normal(size=(n, 22)).astype(np.float32), rng.integers(0, 2, n))
        for n in (40, 30)
    )
    monkeypatch.setattr(shipped, "ijcnn1", lambda: Split(train, validation))
    made = problems.load("ijcnn1")
    x, y = rng.normal(size=(2, 22)).astype(np.float32)

    def loss(samples):
        scores = samples.X @ y
        return np.mean(np.logaddexp(0, scores) - samples.labels * scores)

    problem = made.problem
    g, f = by_jax.inner_value(problem, x, y), by_jax.outer_value(problem, x, y)
    assert float(g) == pytest.approx(loss(train) + 0.5 * np.sum(np.exp(x) * y**2), rel=1e-5)
    assert float(f) == pytest.approx(loss(validation), rel=1e-5)


def test_badly_scaled_is_badly_scaled():
    good, bad = (problems.load(name).instance for name in ("ridge", "badly-scaled"))
    assert np.linalg.cond(good.hessian(good.x0)) < 20
    assert np.linalg.cond(bad.hessian(bad.x0)) > 1e3


# Bad input

FLAT = Samples(np.ones(5), np.zeros(5, int))
WIDE = Samples(np.ones((20, 8)), VALIDATION.labels)
HOLE = Samples(np.full((30, 7), np.nan), TRAIN.labels)
REAL = Samples(TRAIN.X, TRAIN.labels + 0.5)
HIGH = Samples(TRAIN.X, TRAIN.labels + 1)
LESS = Samples(TRAIN.X, TRAIN.labels - 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: problems.data_cleaning(FLAT, VALIDATION), r"train must be a matrix.*\(5,\)"),
        (lambda: problems.data_cleaning(TRAIN, WIDE), "7 features, but validation 8"),
        (lambda: problems.data_cleaning(HOLE, VALIDATION), "train has values that are not finite"),
        (lambda: problems.data_cleaning(REAL, VALIDATION), "integers, got float64"),
        (lambda: problems.data_cleaning(HIGH, VALIDATION, classes=4), "label 4; with classes=4"),
        (lambda: problems.softmax_ridge(LESS, VALIDATION), "train has the label -1"),
        (lambda: problems.data_cleaning(TRAIN, VALIDATION, penalty=0.0), r"penalty .*got 0\.0"),
        (lambda: problems.data_cleaning(TRAIN, VALIDATION, scale=-1.0), r"scale must .*got -1\.0"),
        (lambda: problems.softmax_ridge(TRAIN, VALIDATION, x0=np.inf), "penalty, must .*got inf"),
        (lambda: problems.logistic(TRAIN, VALIDATION, classes=1), "at least 2, got 1"),
        (lambda: problems.logistic(TRAIN, VALIDATION), "label 3; with classes=2"),
        (lambda: problems.ridge(HOLE, REAL), "train has values that are not finite"),
        (lambda: problems.ridge(*regression(), x0=np.nan), "penalties, must .*got nan"),
        (lambda: problems.hyper_network(TRAIN, VALIDATION, widths=()), r"widths must .*got \(\)"),
        (lambda: problems.hyper_network(TRAIN, VALIDATION, gamma=-1.0), r"gamma .*got -1\.0"),
        (
            lambda: problems.hyper_representation(*regression(), H0=np.eye(5), w0=np.ones(5)),
            r"6 features; got shapes \(5, 5\) and \(5,\)",
        ),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_dtypes():
    narrow = labelled(dtype=np.float32)
    for instance in (
        problems.data_cleaning(narrow, narrow),
        problems.softmax_ridge(TRAIN, TRAIN, dtype="float32"),
        problems.hyper_network(*regression(), classes=None, dtype="float32"),
        problems.ridge(*regression(), dtype="float32"),
    ):
        leaves = jax.tree.leaves((instance.problem, instance.x0, instance.y0))
        assert {leaf.dtype.name for leaf in leaves} <= {"float32", "int32"}
    pixels = Samples((100 * np.abs(TRAIN.X)).astype(np.uint8), TRAIN.labels)
    assert problems.data_cleaning(pixels, pixels).x0.dtype == jnp.float64
