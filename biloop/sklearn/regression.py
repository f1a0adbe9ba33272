"""Ridge regression whose penalties are tuned one by one, as scikit-learn's estimators."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from biloop.sklearn.attributes import record
from biloop.sklearn.fitting import fit
from biloop.sklearn.inputs import (
    alphas_of,
    folds_of,
    groups_of,
    limits_of,
    refuse_sparse,
    samples_of,
    shrinkage_of,
)
from biloop.sklearn.ridge import ridge_regression


class _RidgeCV(RegressorMixin, BaseEstimator):
    """What both have in common: how they are fitted, given the groups, and how they predict."""

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> "_RidgeCV":
        limits, alphas = limits_of(self), alphas_of(self.alphas)  # pyright: ignore[reportAttributeAccessIssue]
        shrinkage = shrinkage_of(self.shrinkage)  # pyright: ignore[reportAttributeAccessIssue]
        samples = samples_of(self, X, y, sample_weight, classify=False)
        folds = folds_of(self.cv, samples, self.random_state, classify=False)  # pyright: ignore[reportAttributeAccessIssue]
        self.groups_, index = groups_of(groups(samples.X.shape[1]), samples.X.shape[1])
        family = ridge_regression(bool(self.fit_intercept))  # pyright: ignore[reportAttributeAccessIssue]
        fitted = fit(family, samples, folds, index, limits, alphas, shrinkage)
        record(self, fitted)
        self.coef_, self.intercept_ = fitted.model
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The expected targets."""
        check_is_fitted(self)
        refuse_sparse(self, X)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return X @ self.coef_ + self.intercept_


class GroupRidgeCV(_RidgeCV):
    """Ridge regression with a penalty for each group of features, tuned by cross-validation.

    min_w Σ_i (w·a_i + b − t_i)² + Σ_j α_{group of j} w_j²

    All penalties are tuned at once by hypergradients of the K-fold cross-validation error, from the
    best common penalty, which it is never worse than there. Use it where it is known which features
    belong together: kinds of measurements, embeddings beside counts, candidates for noise.

    Parameters
    ----------
    groups : array of length n_features, optional
        The name of the group of each feature. By default all are in one.
    alphas : numbers, optional
        The common penalties to start from the best of; by default around the scale of the data.
    shrinkage : number or "cv"
        How much penalties are drawn together: 1 / variance of their logarithms in a prior. "cv"
        chooses it by nested cross-validation, which takes about ten times as long.
    max_ratio : number
        No penalty is so many times the best common one, or less than its inverse share of it.
    cv : int, splitter or pairs of rows
        The folds; a number of them is drawn with `random_state`.
    fit_intercept : bool
        Whether there is a constant without penalty.
    max_iter, tol : int, number
        The most outer steps; the end is where the relative change of the error by one unit of the
        logarithm of a penalty is at most `tol`.
    random_state : int, RandomState or None
        For the folds.

    Attributes
    ----------
    alphas_ : the penalty of each group, in the order of `groups_`
    alpha_ : the best common penalty
    coef_, intercept_ : the model, fitted to all samples
    cv_loss_, cv_loss_common_ : the mean squared error of cross-validation, here and there
    shrinkage_, n_iter_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from biloop.sklearn import GroupRidgeCV
    >>> model = GroupRidgeCV(groups=[0, 0, 1, 1]).fit(np.eye(4).repeat(5, 0), np.arange(20.0))
    >>> model.alphas_.shape
    (2,)
    """

    def __init__(
        self,
        groups=None,
        *,
        alphas=None,
        shrinkage=0.25,
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "GroupRidgeCV":
        """Tune the penalties, then fit to all samples."""
        self._fit(X, y, sample_weight, lambda features: self.groups)
        return self


class AdaptiveRidgeCV(_RidgeCV):
    """Ridge regression with a penalty for each feature, drawn together as much as is good.

    The penalties of `GroupRidgeCV` with a group for each feature. So many hyperparameters overfit
    the folds; a prior on the logarithms of the penalties draws them to a common one, and nested
    cross-validation chooses how strong it is: as strong as its losses allow up to a standard error.

    Parameters
    ----------
    alphas, max_ratio, cv, fit_intercept, max_iter, tol, random_state
        As in `GroupRidgeCV`.
    shrinkage : number or "cv"
        How much penalties are drawn together: 1 / variance of their logarithms in a prior.

    Attributes
    ----------
    alphas_ : the penalty of each feature
    shrinkage_ : the strength that was chosen, infinite for a common penalty
    alpha_, coef_, intercept_, cv_loss_, cv_loss_common_, n_iter_
        As in `GroupRidgeCV`.
    """

    def __init__(
        self,
        *,
        alphas=None,
        shrinkage="cv",
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "AdaptiveRidgeCV":
        """Choose the shrinkage, tune the penalties, then fit to all samples."""
        self._fit(X, y, sample_weight, np.arange)
        return self
