"""SAGA for linear models: a few numbers per sample, and the directions of the vectors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl

from ..helpers import relative_error
from .common import path, samples

CLASSES, FEATURES = 3, 5


def logits(x, y, X, t):
    return X @ y["W"] + y["b"][None, :]


def weighted(x, z, X, t):
    cross_entropy = jax.nn.logsumexp(z, axis=1) - jnp.sum(z * t, axis=1)
    return jnp.mean(jax.nn.sigmoid(x["weights"]) * cross_entropy)


def ridge(x, y):
    return 0.5 * sum(jnp.sum(jnp.exp(x["penalty"]) * leaf**2) for leaf in jax.tree.leaves(y))


def unweighted(x, z, X, t):
    return jnp.mean(jax.nn.logsumexp(z, axis=1) - jnp.sum(z * t, axis=1))


def small(x, y):
    return 0.01 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves((x, y)))


def cleaning(linear, n=24, m=20):
    rng = np.random.default_rng(0)
    data = [
        (rng.normal(size=(count, FEATURES)), np.eye(CLASSES)[rng.integers(0, CLASSES, count)])
        for count in (n, m)
    ]
    problem = bl.Problem(
        bl.Composite(logits, weighted, ridge, linear=linear),
        bl.Composite(logits, unweighted, small, linear=linear),
        *data,
        per_sample=lambda x: x["weights"],
    )
    x = {"weights": jnp.asarray(rng.normal(size=n)), "penalty": jnp.asarray(-1.0)}
    y = {"W": jnp.zeros((FEATURES, CLASSES)), "b": jnp.zeros(CLASSES)}
    return problem, x, y


def saga(batch, estimators=None):
    return bl.SingleLoop(samples(batch, key=2), 0.3, 0.3, estimators or bl.Saga())


def test_a_table_of_numbers_can_be_made_in_a_compiled_function():
    problem, x, y = cleaning(True)
    method = saga((4, 4))
    made = jax.jit(lambda x, y: method.init(problem, x, y))(x, y)
    assert jax.tree.map(jnp.shape, made) == jax.tree.map(jnp.shape, method.init(problem, x, y))


def test_the_table_has_a_few_numbers_for_each_sample():
    problem, x, y = cleaning(True)
    table = saga((1, 1)).init(problem, x, y).estimates[0].table.content
    inner, outer = (sum(leaf.size for leaf in jax.tree.leaves(side)) for side in table)
    assert inner == 24 * (2 * CLASSES + 1)  # of y and v, and the weight of the sample
    assert outer == 20 * CLASSES  # of v; f's loss does not know x
    dense = saga((1, 1)).init(*cleaning(False)).estimates[0].table.content
    assert sum(leaf.size for leaf in jax.tree.leaves(dense)) > 10 * (inner + outer)


@pytest.mark.parametrize("estimators", [None, {"y": bl.ZeroSarah(0.2), "vx": bl.Saga()}])
def test_with_all_rows_it_is_plain(estimators):
    problem, x, y = cleaning(True)
    everything = bl.Samples(bl.All(), bl.All())
    plain = path(bl.SingleLoop(everything, 0.3, 0.3), problem, x, y, 50, 0.5)
    kept = bl.SingleLoop(everything, 0.3, 0.3, estimators or bl.Saga())
    found = path(kept, problem, x, y, 50, 0.5)
    for ours, theirs in zip(found[:4], plain[:4], strict=True):
        assert relative_error(ours, theirs) < 1e-13


def test_directions_are_those_of_vectors_where_there_is_no_penalty():
    """A penalty is exact here, where SAGA of vectors remembers it with the block."""
    problem, x, y = cleaning(True)
    bare = [
        bl.Problem(
            bl.Composite(logits, weighted, linear=linear),
            bl.Composite(logits, unweighted, linear=linear),
            problem.inner_data, problem.outer_data, per_sample=problem.per_sample,
        )
        for linear in (True, False)
    ]  # fmt: skip
    ours, theirs = (path(saga((4, 5)), p, x, y, 40, 0.5) for p in bare)
    for a, b in zip(ours[:4], theirs[:4], strict=True):
        assert relative_error(a, b) < 1e-12


def test_it_goes_to_the_solution_of_all_rows():
    problem, x, y = cleaning(True)
    run = bl.solve(problem, x, y, saga((4, 5)), outer=1.0, steps=4000, measure=4000)
    first, last = run.watched["squared_norm"]
    assert last < 1e-12 * first


def test_outputs_that_are_not_linear_are_refused():
    problem, x, y = cleaning(True)
    for outputs in (
        lambda x, y, X, t: jnp.tanh(X @ y["W"]),
        lambda x, y, X, t: jnp.exp(x["penalty"]) * (X @ y["W"]),
    ):
        wrong = bl.Problem(
            bl.Composite(outputs, weighted, ridge, linear=True), problem.outer,
            problem.inner_data, problem.outer_data, per_sample=problem.per_sample,
        )  # fmt: skip
        with pytest.raises(ValueError, match="outputs of inner are said to be linear in y"):
            saga((4, 5)).init(wrong, x, y)
        bl.SingleLoop(samples(), 0.1, 0.1).init(wrong, x, y)  # which keeps no table
