"""Ridge regression whose penalties are tuned one by one, as scikit-learn's estimators."""

from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from biloop.sklearn.attributes import record
from biloop.sklearn.elastic_net import elastic_net
from biloop.sklearn.fitting import Fitted, by_group, by_pilot, fit
from biloop.sklearn.inputs import (
    alphas_of,
    folds_of,
    groups_of,
    limits_of,
    refuse_sparse,
    samples_of,
    shrinkage_of,
)
from biloop.sklearn.penalties import ByPilotMixed
from biloop.sklearn.ridge import ridge_regression


class _LinearCV(RegressorMixin, BaseEstimator):
    """What they have in common: how they are fitted, by groups or not, and how they predict."""

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        grouped=False,
        regression=ridge_regression,
        kind: Any = by_pilot,
    ) -> Fitted:
        limits, alphas = limits_of(self), alphas_of(self.alphas)  # pyright: ignore[reportAttributeAccessIssue]
        shrinkage = shrinkage_of(self.shrinkage)  # pyright: ignore[reportAttributeAccessIssue]
        samples = samples_of(self, X, y, sample_weight, classify=False)
        folds = folds_of(self.cv, samples, self.random_state, classify=False)  # pyright: ignore[reportAttributeAccessIssue]
        family = regression(bool(self.fit_intercept))  # pyright: ignore[reportAttributeAccessIssue]
        index = np.arange(samples.X.shape[1])
        if grouped:
            self.groups_, index = groups_of(self.groups, samples.X.shape[1])  # pyright: ignore[reportAttributeAccessIssue]
            kind = partial(by_group, index)
        fitted = fit(family, samples, folds, kind, limits, alphas, shrinkage)
        record(self, fitted, index)
        self.coef_, self.intercept_ = fitted.model
        return fitted

    def predict(self, X: Any) -> np.ndarray:
        """The expected targets."""
        check_is_fitted(self)
        refuse_sparse(self, X)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return X @ self.coef_ + self.intercept_


class GroupRidgeCV(_LinearCV):
    """Ridge regression with a penalty for each group of features, tuned by cross-validation.

    min_w Σ_i (w·a_i + b − t_i)² + Σ_j α_{group of j} w_j²

    All penalties are tuned at once by hypergradients of the K-fold cross-validation error, from the
    best common penalty. They are taken where they are better than that by more than the standard
    error of the difference and what tuning wins from noise. Use it where it is known which features
    belong together: kinds of measurements, embeddings beside counts, candidates for noise.

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
        The folds; a number of them is drawn with `random_state`. Then a common factor of all
        penalties is chosen, and judged, by leaving one sample out, as `RidgeCV` does.
    fit_intercept : bool
        Whether there is a constant without penalty.
    max_iter, tol : int, number
        The most outer steps; the end is where the relative change of the error by one unit of the
        logarithm of a penalty is at most `tol`.
    random_state : int, RandomState or None
        For the folds.

    Attributes
    ----------
    alphas_
        The penalty of each group, in the order of `groups_`.
    alpha_
        The best common penalty.
    coef_, intercept_
        The model, fitted to all samples.
    cv_loss_, cv_loss_common_
        The mean squared error of what judged them, here and there.
    groups_
        The names of the groups.
    n_iter_, n_features_in_, feature_names_in_
        The outer steps that were made; what was seen of the features.

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
        shrinkage=1.0,
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
        self._fit(X, y, sample_weight, grouped=True)
        return self


class AdaptiveRidgeCV(_LinearCV):
    """Ridge regression with a penalty for each feature: the smaller its coefficient, the larger.

    min_w Σ_i (w·a_i + b − t_i)² + Σ_j α_j w_j²,   α_j = α ((u_j + δ) / (1 + δ))^−γ

    u_j is the square of the coefficient of a first fit with the best common penalty, relative to
    the mean of them. α, γ ≥ 0 and δ are tuned by hypergradients of the K-fold cross-validation
    error, with a first fit in every fold. A penalty for each feature of its own would overfit the
    folds; three numbers do not. The folds judge them, too; where they do not win, the result is
    that of the best common penalty. Use it where many features may be irrelevant.

    Parameters
    ----------
    alphas, max_ratio, cv, fit_intercept, max_iter, tol, random_state
        As in `GroupRidgeCV`.
    shrinkage : number
        How much penalties are drawn together: 1 / variance of γ in a prior.

    Attributes
    ----------
    alphas_
        The penalty of each feature.
    alpha_, coef_, intercept_, cv_loss_, cv_loss_common_, n_iter_
        As in `GroupRidgeCV`.

    Examples
    --------
    >>> from biloop.sklearn import AdaptiveRidgeCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 20))
    >>> model = AdaptiveRidgeCV().fit(X, X[:, 0] + rng.normal(size=50))
    >>> bool(model.alphas_[0] < model.alphas_[1:].min())
    True
    """

    def __init__(
        self,
        *,
        alphas=None,
        shrinkage=1.0,
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
        """Tune the penalties, then fit to all samples."""
        self._fit(X, y, sample_weight)
        return self


class AdaptiveElasticNetCV(_LinearCV):
    """The elastic net with a penalty for each feature: the smaller its coefficient, the larger.

    min_w 1/(2n) Σ_i (w·a_i + b − t_i)² + Σ_j α_j (ρ|w_j| + ½(1 − ρ) w_j²)

    α_j is that of `AdaptiveRidgeCV`, from a first fit with ρ = ½ and the best common penalty. α, γ,
    δ and ρ are tuned by hypergradients of the K-fold cross-validation error, through the proximal
    map: H. Zou and H. Zhang, On the adaptive elastic-net with a diverging number of parameters
    (2009). Use it where features are to be left out: coefficients are exactly zero. The error has
    a kink wherever a coefficient becomes zero; a fit that ends at one spends `max_iter` steps.

    Parameters
    ----------
    alphas, shrinkage, max_ratio, cv, fit_intercept, max_iter, tol, random_state
        As in `AdaptiveRidgeCV`.

    Attributes
    ----------
    l1_ratio_
        ρ, the share of the penalty that is on |w|.
    alphas_, alpha_, coef_, intercept_, cv_loss_, cv_loss_common_, n_iter_
        As in `AdaptiveRidgeCV`.

    Examples
    --------
    >>> from biloop.sklearn import AdaptiveElasticNetCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 20))
    >>> model = AdaptiveElasticNetCV().fit(X, X[:, 0] + 0.1 * rng.normal(size=50))
    >>> bool(model.coef_[0] > 0.9)
    True
    """

    def __init__(
        self,
        *,
        alphas=None,
        shrinkage=1.0,
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "AdaptiveElasticNetCV":
        """Tune the penalties, then fit to all samples."""
        kind = partial(by_pilot, kind=ByPilotMixed)
        fitted = self._fit(X, y, sample_weight, regression=elastic_net, kind=kind)
        self.l1_ratio_ = fitted.lasso_share
        return self
