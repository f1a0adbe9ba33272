"""A batch of a problem is a problem; what x has for each sample goes with the rows."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl

from ..helpers import relative_error
from .common import regression


@eqx.filter_jit
def gradients(problem, x, y):
    """∇_x g and ∇_y g."""
    return jax.grad(lambda x, y: problem.inner(x, y, *problem.inner_data), argnums=(0, 1))(x, y)


@eqx.filter_jit
def value(problem, x, y):
    return problem.inner(x, y, *problem.inner_data)


@functools.cache
def cleaning(per_sample=True, n=12):
    """A weight in x for each inner sample; the loss reads x as it comes, never x[i]."""
    rng = np.random.default_rng(0)
    X, t, V, u = (rng.normal(size=s) for s in ((n, 3), n, (8, 3), 8))

    def weights(x):
        return x if per_sample is True else x["weights"]

    def inner(x, y, X, t):
        scale = 1.0 if per_sample is True else x["scale"]
        return scale * jnp.mean(jax.nn.sigmoid(weights(x)) * (X @ y - t) ** 2) + 0.1 * y @ y

    def outer(x, y, V, u):
        return jnp.mean((V @ y - u) ** 2)

    w = jnp.asarray(rng.normal(size=n))
    x = w if per_sample is True else {"scale": jnp.asarray(1.5), "weights": w}
    problem = bl.Problem(inner, outer, (X, t), (V, u), per_sample=per_sample)
    return problem, x, jnp.asarray(rng.normal(size=3))


SELECTIONS = {"all of x": True, "some leaves": lambda x: x["weights"]}
selections = pytest.mark.parametrize("per_sample", SELECTIONS.values(), ids=SELECTIONS)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([3, 0, 3], [3, 0, 3]),
        (np.array([-1, 2]), [23, 2]),
        (jnp.array([1]), [1]),
        (slice(4, 9), range(4, 9)),
        (slice(None, None, -2), range(23, -1, -2)),
        (slice(-3, None), [21, 22, 23]),
        (None, range(24)),
    ],
)
def test_rows_of_a_batch(rows, expected):
    problem, _x, _y = regression()
    X, t = problem.inner_data
    batch = problem.batch(rows)
    np.testing.assert_array_equal(batch.inner_data[0], np.asarray(X)[list(expected)])
    np.testing.assert_array_equal(batch.inner_data[1], np.asarray(t)[list(expected)])
    assert batch.outer_data[0] is problem.outer_data[0]
    assert batch.inner_samples == len(expected)
    other = problem.batch(None, rows if not isinstance(rows, np.ndarray) else [0])
    assert other.inner_samples == 24
    assert other.outer_samples <= 20


def test_only_arrays_in_the_tuple_are_sampled():
    table = {"A": jnp.arange(12.0).reshape(4, 3)}
    problem = bl.Problem(lambda x, y, X, d: 0.0, lambda x, y: 0.0, (np.ones((6, 2)), table))
    batch = problem.batch([0, 1, 2])
    assert batch.inner_data[0].shape == (3, 2)
    assert batch.inner_data[1]["A"].shape == (4, 3)


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        ([0, 24], IndexError, "no row 24 in inner_data, which has 24"),
        ([-25], IndexError, "no row -25"),
        ([0.5], TypeError, "integers, a slice or None"),
        ([], ValueError, "none of the 24 samples of inner_data was given"),
        (3, TypeError, "of shape ()"),
        (np.ones(24, bool), TypeError, "bool"),
        (slice(5, 5), ValueError, "empty"),
    ],
)
def test_rows_that_are_none(rows, error, words):
    problem, _, _ = regression()
    with pytest.raises(error, match=words.replace("(", r"\(").replace(")", r"\)")):
        problem.batch(rows)


def test_rows_of_data_that_has_none():
    problem = bl.Problem(lambda x, y, d: 0.0, lambda x, y: 0.0, ({"A": np.ones(3)},))
    with pytest.raises(ValueError, match="no samples in inner_data"):
        problem.batch([0])
    assert problem.batch(None, None).inner_data[0]["A"].shape == (3,)


def test_the_mean_over_blocks_of_batch_gradients_is_the_gradient():
    problem, x, y = regression()
    y = y + 0.5
    blocks = np.arange(24).reshape(6, 4)
    each = [gradients(problem.batch(rows), x, y) for rows in blocks]
    mean = jax.tree.map(lambda *g: sum(g) / len(g), *each)
    assert relative_error(mean, gradients(problem, x, y)) < 1e-14


@selections
def test_weights_of_samples_are_gathered_and_scattered(per_sample):
    """Against the loss with the rows taken by hand, and by finite differences."""
    problem, x, y = cleaning(per_sample)
    rows = np.array([7, 2, 4])
    batch = problem.batch(rows)
    w = np.asarray(x if per_sample is True else x["weights"])
    scale = 1.0 if per_sample is True else 1.5
    X, t = (np.asarray(a)[rows] for a in problem.inner_data)
    residual = X @ y - t
    sigmoid = 1 / (1 + np.exp(-w[rows]))
    assert np.isclose(value(batch, x, y), scale * np.mean(sigmoid * residual**2) + 0.1 * y @ y)

    g_x, _ = gradients(batch, x, y)
    g_w = np.asarray(g_x if per_sample is True else g_x["weights"])
    expected = np.zeros(12)
    expected[rows] = scale * sigmoid * (1 - sigmoid) * residual**2 / 3
    np.testing.assert_allclose(g_w, expected, rtol=1e-12)
    assert np.count_nonzero(g_w) == 3  # the others are zero, exactly

    step = 1e-6
    for i in (7, 0):
        moved = [w + sign * step * np.eye(12)[i] for sign in (1, -1)]
        trees = moved if per_sample is True else [x | {"weights": jnp.asarray(m)} for m in moved]
        difference = (value(batch, trees[0], y) - value(batch, trees[1], y)) / (2 * step)
        assert np.isclose(g_w[i], difference, atol=1e-9)


@selections
def test_the_mean_over_blocks_holds_for_weights_too(per_sample):
    problem, x, y = cleaning(per_sample)
    each = [gradients(problem.batch(rows), x, y) for rows in np.arange(12).reshape(4, 3)]
    mean = jax.tree.map(lambda *g: sum(g) / len(g), *each)
    assert relative_error(mean, gradients(problem, x, y)) < 1e-14


@selections
def test_rows_of_rows(per_sample):
    """Also where the first batch takes rows of the other level, or all."""
    problem, x, y = cleaning(per_sample)
    expected = value(problem.batch([5, 9]), x, y)
    for twice in (
        problem.batch([3, 5, 7, 9]).batch([1, 3]),
        problem.batch(slice(1, None, 2)).batch(slice(2, 5, 2)),
        problem.batch(None, [0, 1]).batch([5, 9]),
        problem.batch([5, 9]).batch(None, [0]),
        problem.batch(bl.All()(jax.random.key(0), 0, 12)).batch([5, 9]),
    ):
        np.testing.assert_allclose(value(twice, x, y), expected, rtol=1e-14)


def test_batches_inside_jit():
    problem, x, y = cleaning()

    @eqx.filter_jit
    def gradient(problem, rows):
        return gradients(problem.batch(rows), x, y)

    rows = jnp.array([7, 2, -1])
    there = gradients(problem.batch([7, 2, 11]), x, y)
    assert relative_error(gradient(problem, rows), there) < 1e-14


def test_data_cleaning_on_batches_without_writing_rows():
    """A sampled run on weights goes down; B does not divide n on either level."""
    problem, x, y = cleaning()
    method = bl.schemes.soba((5, 3), 0.1, 0.1)
    run = bl.solve(problem, x, y, method, outer=1.0, steps=300, measure=150)
    assert run.x.shape == (12,)
    assert run.watched["value"][-1] < 0.9 * run.watched["value"][0]
    assert "2 of the 12 inner samples were never drawn" in run.message
    assert "2 of the 8 outer samples were never drawn" in run.message
    np.testing.assert_array_equal(run.x[10:], x[10:])  # nothing was learned of them


@pytest.mark.parametrize("which", [3, "weights", np.ones(2)])
def test_what_is_no_selection(which):
    with pytest.raises(TypeError, match="per_sample must be True or a function"):
        bl.Problem(lambda x, y: 0.0, lambda x, y: 0.0, per_sample=which)
