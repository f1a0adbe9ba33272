"""Logistic regression whose penalties are tuned one by one, as scikit-learn's estimators."""

from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from biloop.sklearn.attributes import record
from biloop.sklearn.fitting import by_group, by_pilot, fit
from biloop.sklearn.inputs import (
    alphas_of,
    folds_of,
    groups_of,
    limits_of,
    refuse_sparse,
    samples_of,
    shrinkage_of,
)
from biloop.sklearn.logistic import logistic_regression


class _LogisticCV(ClassifierMixin, BaseEstimator):
    """What both have in common: how they are fitted, by groups or not, and how they predict."""

    def _fit(self, X: Any, y: Any, sample_weight: Any, grouped: bool) -> None:
        limits, alphas = limits_of(self), alphas_of(self.alphas)  # pyright: ignore[reportAttributeAccessIssue]
        shrinkage = shrinkage_of(self.shrinkage)  # pyright: ignore[reportAttributeAccessIssue]
        samples = samples_of(self, X, y, sample_weight, classify=True)
        check_classification_targets(samples.t)
        self.classes_, labels = np.unique(samples.t, return_inverse=True)
        present = np.unique(samples.t[samples.weights > 0])
        if len(present) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples with a weight of at least 2 classes, got 1 "
                f"class: {present}."
            )
        samples = samples._replace(t=labels.astype(np.float64))
        folds = folds_of(self.cv, samples, self.random_state, classify=True)  # pyright: ignore[reportAttributeAccessIssue]
        family = logistic_regression(bool(self.fit_intercept))  # pyright: ignore[reportAttributeAccessIssue]
        kind, index = by_pilot, np.arange(samples.X.shape[1])
        if grouped:
            self.groups_, index = groups_of(self.groups, samples.X.shape[1])  # pyright: ignore[reportAttributeAccessIssue]
            kind = partial(by_group, index)
        fitted = fit(family, samples, folds, kind, limits, alphas, shrinkage)
        record(self, fitted, index)
        self.coef_, self.intercept_ = fitted.model

    def decision_function(self, X: Any) -> np.ndarray:
        """The scores: one per sample for two classes, one per class for more."""
        check_is_fitted(self)
        refuse_sparse(self, X)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        scores = X @ self.coef_.T + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return softmax(scores, axis=1)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of the probabilities."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[best]


class GroupLogisticCV(_LogisticCV):
    """Logistic regression with a penalty for each group of features, tuned by cross-validation.

    min_w Σ_i ℓ_i(w, b) + ½ Σ_j α_{group of j} ‖w_j‖²      (α = 1/C of scikit-learn)

    ℓ is the cross entropy, for two classes or more. The ratios of penalties are tuned by
    hypergradients of the cross entropy in cross-validation against targets 1/(n + 2) short of
    certainty: where folds can be separated, weaker penalties would look better without end. Their
    common factor is the one of a grid with the smallest cross entropy, as `LogisticRegressionCV`
    chooses it; they are taken where they are better than the best common penalty by more than the
    standard error of the difference and what tuning wins from noise.

    Parameters
    ----------
    groups : array of length n_features, optional
        The name of the group of each feature. By default all are in one.
    alphas : numbers, optional
        The common penalties to start from the best of; by default around the scale of the data.
    shrinkage : number
        How much penalties are drawn together: 1 / variance of their logarithms in a prior.
    max_ratio : number
        No penalty is so many times the best common one, or less than its inverse share of it.
    cv : int, splitter or pairs of rows
        The folds; a number of them is drawn with `random_state`, with equal shares of the classes.
    fit_intercept : bool
        Whether there are constants without penalty.
    max_iter, tol : int, number
        The most outer steps; the end is where the relative change of the loss by one unit of the
        logarithm of a penalty is at most `tol`.
    random_state : int, RandomState or None
        For the folds.

    Attributes
    ----------
    classes_
        The labels.
    alphas_
        The penalty of each group, in the order of `groups_`.
    alpha_
        The best common penalty.
    coef_, intercept_
        The model, fitted to all samples; one row for two classes.
    cv_loss_, cv_loss_common_
        The loss of cross-validation, here and there.
    groups_
        The names of the groups.
    n_iter_, n_features_in_, feature_names_in_
        The outer steps that were made; what was seen of the features.

    Examples
    --------
    >>> from biloop.sklearn import GroupLogisticCV
    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> GroupLogisticCV(groups=["a", "a", "b", "b"]).fit(X, X[:, 0] > 0).groups_.tolist()
    ['a', 'b']
    """

    def __init__(
        self,
        groups=None,
        *,
        alphas=None,
        shrinkage=3.0,
        max_ratio=1e4,
        cv=5,
        fit_intercept=True,
        max_iter=100,
        tol=1e-4,
        random_state=0,
    ):
        self.groups = groups
        self.alphas = alphas
        self.shrinkage = shrinkage
        self.max_ratio = max_ratio
        self.cv = cv
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "GroupLogisticCV":
        """Tune the penalties and fit to all samples."""
        self._fit(X, y, sample_weight, grouped=True)
        return self


class AdaptiveLogisticCV(_LogisticCV):
    """Logistic regression with a penalty for each feature: the smaller its coefficient, the larger.

    min_w Σ_i ℓ_i(w, b) + ½ Σ_j α_j ‖w_j‖²

    α_j is that of `AdaptiveRidgeCV`, and ℓ that of `GroupLogisticCV`.

    Parameters
    ----------
    alphas, shrinkage, max_ratio, cv, fit_intercept, max_iter, tol, random_state
        As in `GroupLogisticCV`.

    Attributes
    ----------
    alphas_
        The penalty of each feature.
    classes_, alpha_, coef_, intercept_, cv_loss_, cv_loss_common_, n_iter_
        As in `GroupLogisticCV`.

    Examples
    --------
    >>> from biloop.sklearn import AdaptiveLogisticCV
    >>> X = np.random.default_rng(0).normal(size=(50, 20))
    >>> AdaptiveLogisticCV().fit(X, X[:, 0] > 0).alphas_.shape
    (20,)
    """

    def __init__(
        self,
        *,
        alphas=None,
        shrinkage=3.0,
        max_ratio=1e4,
        cv=5,
        fit_intercept=True,
        max_iter=100,
        tol=1e-4,
        random_state=0,
    ):
        self.alphas = alphas
        self.shrinkage = shrinkage
        self.max_ratio = max_ratio
        self.cv = cv
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "AdaptiveLogisticCV":
        """Tune the penalties and fit to all samples."""
        self._fit(X, y, sample_weight, grouped=False)
        return self
