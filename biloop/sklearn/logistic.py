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

from biloop.problem import Problem
from biloop.problems.classification import cross_entropy
from biloop.problems.cross_validation import k_fold, weighted_mean
from biloop.sklearn import family
from biloop.sklearn.family import Family, Folds, Matrix, Samples, Task
from biloop.sklearn.penalties import Penalties
from biloop.sklearn.shapes import filled_folds, filled_samples
from biloop.sklearn.tuning import method_for

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


def targets_of_labels(samples: Samples) -> Matrix:
    """The probabilities to expect of a sample of each class: 1 − 1/(n + 2) for its own.

    As if one sample more were of another class than it seems. Where folds can be separated the
    cross entropy has no minimum, and penalties look better the weaker they are; for two classes J.
    Platt, Probabilistic outputs for support vector machines (1999), smooths targets alike.
    """
    counts = np.bincount(samples.t.astype(int), samples.weights)
    classes = len(counts)
    own = np.full(classes, 1 - 1 / (counts.sum() + 2))
    table = np.tile(((1 - own) / (classes - 1))[:, None], (1, classes))
    np.fill_diagonal(table, own)
    return table[:, 1:] if classes == 2 else table


def logistic_task(intercept: bool, samples: Samples, folds: Folds) -> Task:
    """Cross-validation over pairs of masks, (fitted, judged); labels are 0, …, classes − 1."""
    classes = int(samples.t.max()) + 1
    scores = 1 if classes == 2 else classes
    basis = intercepts(scores, intercept)
    pairs = [(np.flatnonzero(a), np.flatnonzero(b)) for a, b in filled_folds(folds)]
    more = filled_samples(samples)
    n, d = more.X.shape
    loss = _Loss(jnp.asarray(basis))
    found = k_fold(
        loss,
        _nothing,
        more.X,
        more.t.astype(np.int32),
        w0=Model(jnp.zeros((scores, d)), jnp.zeros(basis.shape[1])),
        validation=_Smoothed(jnp.asarray(basis), jnp.asarray(targets_of_labels(samples))),
        folds=pairs,
        sample_weight=more.weights,
        refit=True,
        total=True,
    )
    idle = jnp.asarray(0.0 if intercept else 1.0)
    total = float(samples.weights.sum())
    method, rounds = method_for(scores * d + basis.shape[1], _DENSE, quadratic=False)
    return Task(
        make=lambda penalties: Problem(
            _Inner(loss, penalties, idle, jnp.asarray(1 / n)),
            found.problem.outer,
            found.problem.inner_data,
            found.problem.outer_data,
        ),
        y0=found.y0,
        features=d,
        squares=lambda y: np.sum(np.asarray(y.w) ** 2, axis=1),
        method=method,
        rounds=rounds,
        unit=lambda value: 1 / total,
        floor=0.0,
    )


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
    return (scale if scale > 0 else 1.0) * np.logspace(-3.5, 2, 23)


def logistic_regression(intercept: bool) -> Family:
    """Cross entropy."""
    return Family(
        task=partial(logistic_task, intercept),
        alphas=default_alphas,
        model=partial(refitted, intercept),
    )
