"""K-fold cross-validation as one problem, against K fits of ridge regression by themselves."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import Ridge

import biloop as bl

from .helpers import stepped

RNG = np.random.default_rng(0)
X = RNG.normal(size=(23, 4))  # three folds of 8, 8 and 7
T = X @ [1.0, -1.0, 0.0, 0.5] + RNG.normal(size=23)
ALPHA = np.array([0.3, 2.0, 5.0, 0.1])
WEIGHTS = RNG.uniform(0.2, 3.0, 23) * (np.arange(23) % 6 > 0)


def loss(w, X, t):
    return (X @ w - t) ** 2


def penalty(x, w):
    return jnp.exp(x) @ w**2


def by_hand(folds, weights, alpha=ALPHA, scale=lambda total: 1.0):
    """The weighted mean of held-out errors of K fits, and the fits."""
    error, fits = 0.0, []
    for fold in range(folds.max() + 1):
        train, held = folds != fold, folds == fold
        root = np.sqrt(alpha * scale(weights[train].sum()))
        model = Ridge(alpha=1.0, fit_intercept=False)
        w = model.fit(X[train] / root, T[train], weights[train]).coef_ / root
        error += np.sum(weights[held] * (X[held] @ w - T[held]) ** 2)
        fits.append(w)
    return error / weights.sum(), np.array(fits)


def at(found, x):
    """f and the models at x, by the reference."""
    method = bl.Exact()
    _, state, info = stepped(method, found.problem, x, found.y0)
    return info.value, state.y


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("total", [False, True])
def test_the_problem_is_cross_validation(weights, total):
    found = bl.problems.k_fold(
        loss, penalty, X, T, w0=jnp.zeros(4), folds=3, sample_weight=weights, total=total
    )
    assert sorted(found.held_out.sum(axis=0)) == [7, 8, 8]
    assert (found.held_out.sum(axis=1) == 1).all()
    value, models = at(found, jnp.log(ALPHA))
    plain = np.ones(23) if weights is None else weights
    error, fits = by_hand(found.held_out.argmax(axis=1), plain, scale=lambda s: 1.0 if total else s)
    np.testing.assert_allclose(value, error, rtol=1e-9)
    np.testing.assert_allclose(models, fits, rtol=1e-8)


def test_one_more_model_is_fitted_to_all_and_changes_nothing_else():
    folds = np.arange(23) % 2
    plain = bl.problems.k_fold(loss, penalty, X, T, w0=jnp.zeros(4), folds=folds, total=True)
    more = bl.problems.k_fold(
        loss, penalty, X, T, w0=jnp.zeros(4), folds=folds, total=True, refit=True
    )
    (a, models), (b, with_last) = (at(found, jnp.log(ALPHA)) for found in (plain, more))
    np.testing.assert_allclose(a, b, rtol=1e-12)
    np.testing.assert_allclose(with_last[:2], models, rtol=1e-9)
    root = np.sqrt(ALPHA)
    whole = Ridge(alpha=1.0, fit_intercept=False).fit(X / root, T).coef_ / root
    np.testing.assert_allclose(with_last[2], whole, rtol=1e-8)


def test_a_sample_without_weight_is_not_there():
    weights = (np.arange(23) < 20).astype(float)
    folds = np.arange(23) % 3
    spoiled = np.where(weights == 0, 1e3, T)
    out = bl.problems.k_fold(
        loss, penalty, X, spoiled, w0=jnp.zeros(4), folds=folds, sample_weight=weights
    )
    short = bl.problems.k_fold(loss, penalty, X[:20], T[:20], w0=jnp.zeros(4), folds=folds[:20])
    np.testing.assert_allclose(at(out, jnp.zeros(4))[0], at(short, jnp.zeros(4))[0], rtol=1e-10)


def test_pairs_of_rows_are_folds_as_well():
    folds = np.arange(23) % 3
    pairs = [(np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in range(3)]
    by_pair, by_name = (
        at(bl.problems.k_fold(loss, penalty, X, T, w0=jnp.zeros(4), folds=given), jnp.zeros(4))
        for given in (pairs, folds)
    )
    np.testing.assert_array_equal(by_pair[0], by_name[0])
    np.testing.assert_array_equal(by_pair[1], by_name[1])
    # Of which only the first two are judged: the mean over their samples.
    value, models = at(
        bl.problems.k_fold(loss, penalty, X, T, w0=jnp.zeros(4), folds=pairs[:2]), jnp.zeros(4)
    )
    errors = np.concatenate(
        [(X[b] @ w - T[b]) ** 2 for (_, b), w in zip(pairs[:2], models, strict=True)]
    )
    np.testing.assert_allclose(value, errors.mean(), rtol=1e-10)


def test_it_is_solved_by_default():
    found = bl.problems.k_fold(loss, penalty, X, T, w0=jnp.zeros(4), folds=5)
    run = bl.solve(found.problem, jnp.zeros(4), found.y0)
    scale = lambda s: s  # noqa: E731
    error, _ = by_hand(found.held_out.argmax(axis=1), np.ones(23), np.exp(np.asarray(run.x)), scale)
    start, _ = by_hand(found.held_out.argmax(axis=1), np.ones(23), np.ones(4), scale)
    np.testing.assert_allclose(run.value, error, rtol=1e-4)  # it ends at 10⁻⁴ of ‖h‖
    assert error < start


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"folds": 1}, "folds must be between 2 and the number of samples 23, got 1"),
        ({"folds": 2.5}, "folds must be an integer, or one for each sample, got 2.5"),
        ({"folds": np.ones(23, int)}, r"for each of the 23 samples.*folds \[1\]"),
        ({"folds": np.arange(22) % 2}, r"shape \(22,\)"),
        ({"sample_weight": -np.ones(23)}, "sample_weight must be a finite number of at least 0"),
        (
            {"folds": np.arange(23) % 2, "sample_weight": np.arange(23) % 2},
            "No sample with a weight is outside of fold 1",
        ),
    ],
)
def test_what_is_no_fold_is_refused(options, complaint):
    with pytest.raises((TypeError, ValueError), match=complaint):
        bl.problems.k_fold(loss, penalty, X, T, w0=jnp.zeros(4), **options)


def test_a_loss_that_is_a_mean_is_refused():
    with pytest.raises(ValueError, match=r"the loss of each sample, of shape \(23,\), got \(\)"):
        bl.problems.k_fold(lambda w, X, t: jnp.mean(loss(w, X, t)), penalty, X, T, w0=jnp.zeros(4))
