"""The estimators: against plain fits, differences, scikit-learn's own checks, and each other."""

import pickle

import jax
import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.optimize import least_squares
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge, RidgeCV
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from biloop.sklearn import (
    AdaptiveElasticNetCV,
    AdaptiveLogisticCV,
    AdaptiveRidgeCV,
    GroupLogisticCV,
    GroupRidgeCV,
)

RNG = np.random.default_rng(0)
N, D = 61, 12
GROUPS = np.repeat(["signal", "noise"], [3, D - 3])
X = RNG.normal(size=(N, D)) + 1.0
T = X[:, :3] @ [2.0, -1.0, 1.0] + 2 * RNG.normal(size=N) + 5.0
OTHER = np.random.default_rng(1)  # of data on which it pays to tell features apart
WIDE = np.column_stack([X, OTHER.normal(size=(N, 20))])
CLEAR = X[:, :3] @ [2.0, -1.0, 1.0] + 0.7 * OTHER.normal(size=N)
LABELS = np.where(np.median(T) < T, "high", "low")
THREE = np.digitize(T, np.quantile(T, [0.3, 0.7]))
WEIGHTS = RNG.uniform(0.5, 2.0, N)

FAST = {
    "group ridge": GroupRidgeCV(GROUPS),
    "group logistic": GroupLogisticCV(GROUPS, shrinkage=0.5),
    "adaptive ridge": AdaptiveRidgeCV(shrinkage=1.0),
    "adaptive logistic": AdaptiveLogisticCV(shrinkage=2.0),
    "adaptive elastic net": AdaptiveElasticNetCV(),
}


def targets(model):
    return LABELS if "Logistic" in type(model).__name__ else T


@pytest.fixture(scope="module")
def fitted():
    return {name: clone(model).fit(X, targets(model)) for name, model in FAST.items()}


def scaled_ridge(alphas, X, t, weights=None):
    """Ridge with a penalty per feature by scikit-learn: features are scaled instead."""
    root = np.sqrt(alphas)
    model = Ridge(alpha=1.0).fit(X / root, t, weights)
    return model.coef_ / root, model.intercept_


FOLDS = KFold(5, shuffle=True, random_state=0)


def ridge_error(alphas, weights=None, t=T, cv=FOLDS, X=X):
    """The cross-validation error of fits by themselves."""
    errors, s = np.zeros(N), np.ones(N) if weights is None else weights
    for train, test in cv.split(X):
        coefficients, intercept = scaled_ridge(alphas, X[train], t[train], s[train])
        errors[test] = (X[test] @ coefficients + intercept - t[test]) ** 2
    return np.average(errors, weights=s)


def logistic_error(alphas, labels=LABELS, classes=("high", "low")):
    """The same for logistic regression: the cross entropy."""
    root, total = np.sqrt(alphas), 0.0
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, labels):
        model = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000)
        model.fit(X[train] / root, labels[train])
        scores = np.atleast_2d(model.decision_function(X[test] / root).T).T
        if scores.shape[1] == 1:
            scores = np.column_stack([np.zeros(len(test)), scores])
        own = scores[labels[test][:, None] == np.array(classes)]
        total += np.sum(logsumexp(scores, axis=1) - own)
    return total / N


# --- what is learned ----------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("cv", [5, FOLDS], ids=["drawn", "given"])
def test_ridge_is_cross_validated_and_refitted(cv, weights):
    """Where folds were drawn the common factor is judged by leaving one out."""
    model = GroupRidgeCV(GROUPS, cv=cv).fit(X, T, weights)
    judge = LeaveOneOut() if cv == 5 else FOLDS
    each = model.alphas_[np.searchsorted(model.groups_, GROUPS)]
    assert model.cv_loss_ < model.cv_loss_common_
    error = ridge_error(each, weights, cv=judge)
    np.testing.assert_allclose(model.cv_loss_, error, rtol=1e-8)
    common = ridge_error(np.full(D, model.alpha_), weights, cv=judge)
    np.testing.assert_allclose(model.cv_loss_common_, common, rtol=1e-8)
    coefficients, intercept = scaled_ridge(each, X, T, weights)
    np.testing.assert_allclose(model.coef_, coefficients, rtol=1e-8)
    np.testing.assert_allclose(model.intercept_, intercept, rtol=1e-8)
    np.testing.assert_allclose(model.predict(X), X @ coefficients + intercept, rtol=1e-8)


@pytest.mark.parametrize(
    ("labels", "classes"), [(LABELS, ("high", "low")), (THREE, (0, 1, 2))], ids=["two", "three"]
)
def test_logistic_is_cross_validated_and_refitted(labels, classes):
    model = GroupLogisticCV(GROUPS, shrinkage=0.5).fit(X, labels)
    assert tuple(model.classes_) == classes
    each = model.alphas_[np.searchsorted(model.groups_, GROUPS)]
    np.testing.assert_allclose(model.cv_loss_, logistic_error(each, labels, classes), rtol=1e-6)
    root = np.sqrt(each)
    plain = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(X / root, labels)
    np.testing.assert_allclose(model.coef_, plain.coef_ / root, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        model.predict_proba(X), plain.predict_proba(X / root), rtol=1e-4, atol=1e-7
    )
    assert (model.predict(X) == plain.predict(X / root)).all()


def test_the_penalties_are_a_minimum_of_cross_validation():
    """No small change of a penalty is better, and the weaker signals have the larger one."""
    groups = np.repeat(["signal", "weak"], [3, 29])
    t = CLEAR + 0.05 * WIDE[:, 3:] @ np.sign(np.arange(29) - 14.5)
    model = GroupRidgeCV(groups, shrinkage=0.0, tol=1e-6, cv=FOLDS).fit(WIDE, t)
    strong, weak = model.alphas_
    assert strong < weak < 1e3 * model.alpha_

    def error(a, b):
        each = np.where(groups == "weak", weak * np.exp(a), strong * np.exp(b))
        return ridge_error(each, t=t, X=WIDE)

    assert error(0, 0) < min(error(0.05, 0), error(-0.05, 0), error(0, 0.05), error(0, -0.05))


@pytest.mark.parametrize("name", FAST)
def test_it_is_never_worse_than_the_common_penalty(name, fitted):
    model = fitted[name]
    assert model.cv_loss_ <= model.cv_loss_common_
    assert (model.alphas_ <= 1e4 * model.alpha_ * 1.001).all()
    assert (model.alphas_ >= 1e-4 * model.alpha_ / 1.001).all()


def test_shrinkage_draws_penalties_together():
    spread = [
        np.std(np.log(AdaptiveRidgeCV(shrinkage=strength).fit(WIDE, CLEAR).alphas_))
        for strength in (0.5, 5.0, 5000.0)
    ]
    assert spread[0] > spread[1] > spread[2]
    assert spread[2] < 0.05


def test_small_coefficients_are_penalised_more():
    """The penalties are those of the formula, of the first fit with the common one."""
    model = AdaptiveRidgeCV(cv=FOLDS).fit(WIDE, CLEAR)
    first = Ridge(alpha=model.alpha_).fit(WIDE, CLEAR).coef_ ** 2
    order = np.argsort(first)
    assert (np.diff(model.alphas_[order]) <= 0).all()
    assert model.alphas_[:3].max() < model.alphas_[3:].min()
    noise = np.random.default_rng(1).normal(size=N)
    without = AdaptiveRidgeCV(shrinkage=0.0).fit(X, noise)  # nothing to find: scikit-learn's
    np.testing.assert_allclose(without.alphas_, without.alpha_)
    plain = RidgeCV(np.logspace(-6, 3, 37) * np.mean(np.sum((X - X.mean(axis=0)) ** 2, axis=0)))
    np.testing.assert_allclose(
        without.alpha_, plain.fit(X, noise).alpha_
    )  # that of leaving one out


def adaptive_error(scale, gamma, delta, alpha):
    """The cross-validation error with a first fit in every fold, by itself."""
    errors = np.zeros(N)
    for train, test in FOLDS.split(X):
        u = Ridge(alpha=alpha).fit(WIDE[train], CLEAR[train]).coef_ ** 2
        each = scale * ((u / u.mean() + delta) / (1 + delta)) ** -gamma
        coefficients, intercept = scaled_ridge(each, WIDE[train], CLEAR[train])
        errors[test] = (WIDE[test] @ coefficients + intercept - CLEAR[test]) ** 2
    return errors.mean()


def test_the_formula_of_adaptive_penalties_is_at_a_minimum():
    """No small change of its three numbers is better, the prior counted."""
    model = AdaptiveRidgeCV(shrinkage=0.5, tol=1e-6, cv=FOLDS).fit(WIDE, CLEAR)
    u = Ridge(alpha=model.alpha_).fit(WIDE, CLEAR).coef_ ** 2

    def logs(numbers):
        log_scale, gamma, log_delta = numbers
        delta = np.exp(log_delta)
        return log_scale - gamma * np.log((u / u.mean() + delta) / (1 + delta))

    found = least_squares(lambda p: logs(p) - np.log(model.alphas_), [0.0, 1.0, -1.0], xtol=1e-15)
    assert found.cost < 1e-16
    log_scale, gamma, log_delta = found.x

    def error(a=0.0, b=0.0, c=0.0):
        delta = np.exp(log_delta + c)
        return adaptive_error(np.exp(log_scale + a), gamma + b, delta, model.alpha_)

    def with_prior(a=0.0, b=0.0, c=0.0):
        apart = (gamma + b) ** 2 + (log_delta + c - np.log(0.3)) ** 2
        return error(a, b, c) + 0.5 * 0.5 * (2 * model.cv_loss_common_ / N) * apart

    np.testing.assert_allclose(model.cv_loss_, error(), rtol=1e-6)
    for step in (-0.01, 0.01):
        assert with_prior() < min(with_prior(a=step), with_prior(b=step), with_prior(c=step))


def test_the_elastic_net_satisfies_its_optimality_conditions(fitted):
    """0 is in the subdifferential of 1/(2n) ‖…‖² + Σ α_j (ρ|w_j| + ½(1 − ρ) w_j²)."""
    model = fitted["adaptive elastic net"]
    w, rho = model.coef_, model.l1_ratio_
    slope = -(X - X.mean(axis=0)).T @ (T - model.predict(X)) / N
    slope += model.alphas_ * (1 - rho) * w
    zero = w == 0
    assert 0 < zero.sum() < D
    assert (np.abs(slope[zero]) <= model.alphas_[zero] * rho * (1 + 1e-6)).all()
    expected = -model.alphas_ * rho * np.sign(w)
    np.testing.assert_allclose(slope[~zero], expected[~zero], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.mean(T - model.predict(X)), 0, atol=1e-10)


def test_a_common_elastic_net_is_that_of_scikit_learn():
    model = AdaptiveElasticNetCV(alphas=[0.3], shrinkage=1e6).fit(X, T, WEIGHTS)
    a = float(model.alphas_.mean())  # tuned, but the same for all
    np.testing.assert_allclose(model.alphas_, a, rtol=1e-4)
    exact = {"l1_ratio": 0.5, "tol": 1e-12, "max_iter": 100_000}
    plain = ElasticNet(alpha=a, **exact).fit(X, T, WEIGHTS)
    assert model.l1_ratio_ == pytest.approx(0.5, abs=1e-4)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-3, atol=1e-4)
    errors = np.zeros(N)
    for train, test in FOLDS.split(X):
        fold = ElasticNet(alpha=a * WEIGHTS.sum() / WEIGHTS[train].sum(), **exact)
        fold.fit(X[train], T[train], WEIGHTS[train])
        errors[test] = (fold.predict(X[test]) - T[test]) ** 2
    np.testing.assert_allclose(model.cv_loss_, np.average(errors, weights=WEIGHTS), rtol=1e-4)


def test_one_group_is_ridge_regression():
    model = GroupRidgeCV(alphas=[3.0], max_ratio=1.0 + 1e-9).fit(X, T)
    plain = Ridge(alpha=3.0).fit(X, T)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-6)


def test_without_an_intercept():
    ridge = GroupRidgeCV(GROUPS, fit_intercept=False).fit(X, T)
    logistic = GroupLogisticCV(GROUPS, shrinkage=0.5, fit_intercept=False).fit(X, LABELS)
    assert ridge.intercept_ == 0
    assert (logistic.intercept_ == 0).all()


# --- among scikit-learn's -----------------------------------------------------------------------


def test_double_precision_inside_leaves_the_setting_alone(fitted):
    model = FAST["group ridge"]
    with jax.enable_x64(False):
        single = clone(model).fit(X, T)
        assert jax.numpy.zeros(1).dtype == np.float32
    np.testing.assert_allclose(single.coef_, fitted["group ridge"].coef_, rtol=1e-10)


@pytest.mark.parametrize("name", FAST)
def test_it_travels(name, fitted):
    model = fitted[name]
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X), model.predict(X))
    again = clone(model).fit(X, targets(model))
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_in_a_pipeline_a_search_and_threads():
    pipe = make_pipeline(StandardScaler(), GroupRidgeCV(GROUPS))
    search = GridSearchCV(pipe, {"groupridgecv__shrinkage": [0.1, 1.0]}, cv=3).fit(X, T)
    assert search.best_estimator_.score(X, T) > 0.5
    fits = joblib.Parallel(n_jobs=2, backend="threading")(
        joblib.delayed(lambda seed: GroupRidgeCV(GROUPS, random_state=seed).fit(X, T).coef_)(seed)
        for seed in (0, 0)
    )
    np.testing.assert_array_equal(*fits)


def test_names_of_features():
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(D)])
    model = GroupRidgeCV(GROUPS).fit(frame, T)
    assert list(model.feature_names_in_) == list(frame.columns)
    assert model.n_features_in_ == D
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[frame.columns[::-1]])


def test_the_second_fit_of_nearly_the_same_shape_compiles_nothing(fitted):
    """A row, a feature, a group or a fold less is filled up to the same arrays."""
    other = RNG.normal(size=X.shape)[1:, 1:]
    for name, model in FAST.items():
        fresh = clone(model)
        fresh.set_params(random_state=7, cv=4)
        if "groups" in fresh.get_params():
            fresh.set_params(groups=GROUPS[1:])
        compilations = []

        def count(event, *_, **__):
            if event == "/jax/core/compile/backend_compile_duration":
                compilations.append(event)  # noqa: B023

        jax.monitoring.register_event_duration_secs_listener(count)
        try:
            fresh.fit(other, targets(model)[1:])
        finally:
            jax.monitoring.unregister_event_duration_listener(count)
        assert not compilations, name


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"groups": [0, 1]}, r"a group for each of the 12 features, got shape \(2,\)"),
        ({"shrinkage": "cv"}, "shrinkage must be a finite number of at least 0, got 'cv'"),
        ({"shrinkage": -1}, "shrinkage must be a finite number of at least 0, got -1"),
        ({"max_ratio": 0.5}, "max_ratio must be a finite number above 1, got 0.5"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1, got 0"),
        ({"tol": 0.0}, "tol must be a finite number above 0"),
        ({"alphas": [0.0, 1.0]}, "alphas must be finite numbers above 0"),
        ({"cv": 1}, "at least 2 folds"),
        ({"groups": ["a", None] * (D // 2)}, r"a group for each feature, got \['a', None"),
        ({"groups": [0.0, np.nan] * (D // 2)}, "a group for each feature"),
        ({"max_ratio": "10"}, "max_ratio must be a finite number above 1, got '10'"),
        ({"max_iter": True}, "max_iter must be an integer of at least 1, got True"),
        ({"tol": "auto"}, "tol must be a finite number above 0, got 'auto'"),
        ({"alphas": "auto"}, "alphas must be finite numbers above 0, got 'auto'"),
        ({"alphas": []}, r"alphas must be finite numbers above 0, got \[\]"),
        ({"cv": [(range(9), []), (range(9), [])]}, "No fold is judged by samples"),
        ({"cv": [([], range(9)), (range(9), range(9))]}, "fold 0 is fitted to no samples"),
    ],
)
def test_what_does_not_fit_is_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        GroupRidgeCV(**options).fit(X, T)


def test_a_fold_without_weights_or_with_one_class_is_refused():
    alone = np.eye(len(X))[0]
    with pytest.raises(ValueError, match=r"fold \d is fitted to no samples with a weight"):
        GroupRidgeCV().fit(X, T, sample_weight=alone)
    labels = np.arange(len(X)) < len(X) // 2
    with pytest.raises(ValueError, match="needs samples with a weight of at least 2 classes"):
        GroupLogisticCV().fit(X, labels, sample_weight=1.0 * labels)
    with pytest.raises(ValueError, match=r"fold 0 is fitted to samples of one class alone"):
        GroupLogisticCV(cv=KFold(2)).fit(X, labels)


def test_sparse_data_are_refused_in_a_sentence(fitted):
    for name, model in fitted.items():
        with pytest.raises(TypeError, match=r"needs dense data.*toarray"):
            clone(FAST[name]).fit(sparse.csr_array(X), targets(model))
        with pytest.raises(TypeError, match="needs dense data"):
            model.predict(sparse.csr_array(X))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "model",
    [
        GroupRidgeCV(),
        AdaptiveRidgeCV(),
        GroupLogisticCV(),
        AdaptiveLogisticCV(),
        AdaptiveElasticNetCV(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_checks_of_scikit_learn(model):
    jax.clear_caches()  # a process may hold only so many programs, and these are hundreds
    results = check_estimator(model, on_skip=None, on_fail=None)
    failed = [r["check_name"] for r in results if r["status"] == "failed"]
    assert not failed
