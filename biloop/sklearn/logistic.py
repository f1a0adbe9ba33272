"""Logistic regression as a task: a model for each fold and one of all samples.

    Σ_{i outside of fold k} s_i ℓ_i(w, b) + ½ Σ_j α_j ‖w_j‖²

ℓ is the cross entropy of one score for two classes, of one score per class for more. Adding a
number to all scores changes nothing, so that intercepts are kept to those whose sum is 0.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import logsumexp

from biloop.problems.classification import cross_entropy
from biloop.problems.cross_validation import k_fold, weighted_mean
from biloop.sklearn import family
from biloop.sklearn.family import Best, Family, Folds, Matrix, Samples, Task, best
from biloop.sklearn.penalties import Penalties
from biloop.sklearn.shapes import filled_folds, filled_samples
from biloop.sklearn.tuning import Path, along, method_for

_DENSE = 200  # parameters of a model up to which its Hessian is factorised


class Model(NamedTuple):
    """Weights, a row per score, and the intercepts in a basis of those that sum to 0, or none."""

    w: Float[Array, "c d"]
    b: Float[Array, " e"]


class _Loss(eqx.Module):
    basis: Float[Array, "c e"]

    def __call__(self, model: Model, X: Array, labels: Array) -> Float[Array, " n"]:
        scores = X @ model.w.T + self.basis @ model.b
        if scores.shape[1] > 1:
            return cross_entropy(scores, labels)
        score = scores[:, 0]
        return jax.nn.softplus(score) - labels.astype(score.dtype) * score


class _Smoothed(eqx.Module):
    """The cross entropy against targets a little short of certainty (see `targets_of_labels`)."""

    basis: Float[Array, "c e"]
    targets: Float[Array, "classes c"]

    def __call__(self, model: Model, X: Array, labels: Array) -> Float[Array, " n"]:
        scores = X @ model.w.T + self.basis @ model.b
        expected = jnp.sum(self.targets[labels] * scores, axis=1)
        if scores.shape[1] > 1:
            return jax.nn.logsumexp(scores, axis=1) - expected
        return jax.nn.softplus(scores[:, 0]) - expected


class _Inner(eqx.Module):
    loss: _Loss
    penalties: Penalties
    idle: Float[Array, ""]  # the penalty of intercepts that are not there
    scale: Float[Array, ""]

    def __call__(self, x: Array, y: Model, X: Array, labels: Array, weights: Array) -> Array:
        squares = jnp.sum(y.w**2, axis=1)
        size = jnp.sum(self.penalties(x) * squares) + self.idle * jnp.sum(y.b**2)
        return weighted_mean(self.loss, y, X, labels, weights) + 0.5 * self.scale * size


def intercepts(scores: int, intercept: bool) -> Matrix:
    """A basis of the intercepts: all numbers for one score, those of sum 0 for more."""
    if not intercept:
        # A column of zeros in place of none: x and y have no empty leaves.
        return np.zeros((scores, 1))
    if scores == 1:
        return np.ones((1, 1))
    centred = np.eye(scores) - 1 / scores
    return np.linalg.svd(centred)[0][:, :-1]


def targets_of_labels(samples: Samples, certain: bool = False) -> Matrix:
    """The probabilities to expect of a sample of each class: 1 − 1/(n + 2) for its own.

    As if one sample more were of another class than it seems. Where folds can be separated the
    cross entropy has no minimum, and penalties look better the weaker they are; for two classes J.
    Platt, Probabilistic outputs for support vector machines (1999), smooths targets alike.
    """
    counts = np.bincount(samples.t.astype(int), samples.weights)
    classes = len(counts)
    own = np.full(classes, 1.0 if certain else 1 - 1 / (counts.sum() + 2))
    table = np.tile(((1 - own) / (classes - 1))[:, None], (1, classes))
    np.fill_diagonal(table, own)
    return table[:, 1:] if classes == 2 else table


class LogisticTask(Task):
    """Cross-validation of logistic regression; labels are 0, …, classes − 1.

    Ratios of penalties are tuned by the smoothed loss, a common factor is chosen by the cross
    entropy itself, as `LogisticRegressionCV` does: the grid bounds it.
    """

    def __init__(self, intercept: bool, samples: Samples, folds: Folds) -> None:
        self.samples, self.folds = samples, folds
        self._found: Path | None = None
        classes = int(samples.t.max()) + 1
        scores = 1 if classes == 2 else classes
        self.basis = intercepts(scores, intercept)
        pairs = [(np.flatnonzero(a), np.flatnonzero(b)) for a, b in filled_folds(folds)]
        more = filled_samples(samples)
        n, self.features = more.X.shape
        loss, basis = _Loss(jnp.asarray(self.basis)), jnp.asarray(self.basis)
        found = k_fold(
            loss,
            _nothing,
            more.X,
            more.t.astype(np.int32),
            w0=Model(jnp.zeros((scores, self.features)), jnp.zeros(basis.shape[1])),
            validation=_Smoothed(basis, jnp.asarray(targets_of_labels(samples))),
            folds=pairs,
            sample_weight=more.weights,
            refit=True,
            total=True,
        )
        self.problem, self.y0 = found.problem, found.y0
        self.inner = partial(
            _Inner, loss, idle=jnp.asarray(0.0 if intercept else 1.0), scale=jnp.asarray(1 / n)
        )
        parameters = scores * self.features + basis.shape[1]
        self.method = method_for(parameters, _DENSE, quadratic=False)

    def make(self, penalties):
        return eqx.tree_at(lambda p: p.inner, self.problem, self.inner(penalties))

    def unit(self, value):
        return 1 / float(self.samples.weights.sum())

    def squares(self, y):
        return np.sum(np.asarray(y.w) ** 2, axis=1)

    def common(self, alphas):
        return self._best(self._path(alphas), alphas, certain=True)

    def start(self, alphas):
        return self._best(self._path(alphas), alphas, certain=False)

    def judged(self, ratios, alphas, y):
        return self._best(along(self, ratios, alphas), alphas, certain=True)

    def _path(self, alphas: Matrix) -> Path:
        if self._found is None:
            self._found = along(self, np.ones((1, self.features)), alphas)
        return self._found

    def _best(self, found: Path, alphas: Matrix, certain: bool) -> Best:
        expected = targets_of_labels(self.samples, certain)[self.samples.t.astype(int)]
        judged = [rows > 0 for _, rows in self.folds.pairs]
        losses = [
            _losses(self._scores(found.ys, k, rows), expected[rows])
            for k, rows in enumerate(judged)
        ]
        losses = np.where(found.failed[:, None], np.nan, np.concatenate(losses, axis=1))
        shares = self.folds.shares(self.samples.weights)
        return best(alphas, found.y, losses, shares, self.floor)

    def _scores(self, ys: Model, k: int, rows: np.ndarray) -> Matrix:
        """Of a fold's model at each factor: factors × rows × scores."""
        w, b = (np.asarray(part[:, k]) for part in ys)
        X = self.samples.X[rows]
        return np.einsum("nd,mcd->mnc", X, w[:, :, : X.shape[1]]) + (b @ self.basis.T)[:, None]


def _losses(scores: Matrix, targets: Matrix) -> Matrix:
    """The cross entropy of each sample, at each factor."""
    rest = np.zeros_like(scores[..., :1])  # the score of the first of two classes
    every = scores if scores.shape[2] > 1 else np.concatenate([rest, scores], axis=2)
    return logsumexp(every, axis=2) - np.sum(targets * scores, axis=2)


def _nothing(x: Array, w: Model) -> Array:
    return jnp.zeros(())


def refitted(intercept: bool, samples: Samples, _alphas: Matrix, y: Model) -> family.Model:
    """The weights and the intercepts of the last model, which was fitted to all samples."""
    w, b = (np.asarray(part[-1]) for part in y)
    return w[:, : samples.X.shape[1]], intercepts(len(w), intercept) @ b


def default_alphas(samples: Samples) -> Matrix:
    """Around the mean square of the features times a quarter, the most curvature of the loss."""
    X, _, s = samples
    scale = 0.25 * float(np.mean(s @ (X - s @ X / s.sum()) ** 2))
    return (scale if scale > 0 else 1.0) * np.logspace(-5.5, 2, 31)


def logistic_regression(intercept: bool) -> Family:
    """Cross entropy."""
    return Family(
        task=partial(LogisticTask, intercept),
        alphas=default_alphas,
        model=partial(refitted, intercept),
    )
