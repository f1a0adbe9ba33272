"""What comes into an estimator: samples, folds, groups and limits, or a sentence about them."""

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.utils.validation import _check_sample_weight, validate_data

from biloop.sklearn.family import Folds, Samples
from biloop.sklearn.tuning import Limits


def samples_of(estimator: Any, X: Any, y: Any, weights: Any, classify: bool) -> Samples:
    """The samples in double precision; labels stay as they are."""
    refuse_sparse(estimator, X)
    X, t = _validated(estimator, X, y, dtype=np.float64, y_numeric=not classify)
    s = _check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True)
    return Samples(X, t if classify else t.astype(np.float64), s)


def _validated(estimator: Any, X: Any, y: Any, **options: Any) -> tuple[Any, Any]:
    return validate_data(estimator, X, y, **options)  # pyright: ignore[reportReturnType]


def refuse_sparse(estimator: Any, X: Any) -> None:
    """Say it before scikit-learn does, with what to do."""
    if sparse.issparse(X):
        raise TypeError(
            f"{type(estimator).__name__} needs dense data, but X is a sparse {type(X).__name__}. "
            f"Use X.toarray() if it fits into memory."
        )


def folds_of(cv: Any, samples: Samples, random_state: Any, classify: bool) -> Folds:
    """Masks of the samples to fit to and to judge by. A number of folds is drawn at random."""
    X, t, _ = samples
    drawn = isinstance(cv, int | np.integer) and not isinstance(cv, bool)
    if drawn:
        if len(X) < 2 or cv < 2:
            raise ValueError(
                f"Cross-validation needs at least 2 folds and 2 samples, got cv={cv} and "
                f"n_samples = {len(X)}."
            )
        most = min(int(cv), len(X))
        kind = KFold
        if classify and np.unique(t, return_counts=True)[1].min() >= 2:
            kind, most = StratifiedKFold, min(most, np.unique(t, return_counts=True)[1].min())
        cv = kind(most, shuffle=True, random_state=random_state)
    given: Any = cv
    splitter: Any = check_cv(given, t, classifier=classify)
    pairs = splitter.split(X, t)
    found = [(_mask(a, len(X)), _mask(b, len(X))) for a, b in pairs]
    if len(found) < 2:
        raise ValueError(f"Cross-validation needs at least 2 folds, got {len(found)} from {cv!r}.")
    _check_folds(found, samples, classify)
    return Folds(found, drawn)


def _check_folds(
    pairs: list[tuple[np.ndarray, np.ndarray]], samples: Samples, classify: bool
) -> None:
    """There is something to fit to and to judge by."""
    for k, (fitted, _) in enumerate(pairs):
        used = samples.t[samples.weights * fitted > 0]
        if not len(used):
            raise ValueError(
                f"The model of fold {k} is fitted to no samples with a weight above 0."
            )
        if classify and len(np.unique(used)) < 2:
            raise ValueError(
                f"The model of fold {k} is fitted to samples of one class alone (number "
                f"{used[0]:g} in classes_). Let cv be a StratifiedKFold, or merge rare classes."
            )
    if not any(np.any(samples.weights * judged > 0) for _, judged in pairs):
        raise ValueError("No fold is judged by samples with a weight above 0.")


def _mask(rows: Any, n: int) -> np.ndarray:
    there = np.zeros(n)
    there[rows] = 1.0
    return there


def groups_of(groups: Any, features: int) -> tuple[np.ndarray, np.ndarray]:
    """The names of the groups, and the number of the group that each feature is in."""
    if groups is None:
        return np.zeros(1, int), np.zeros(features, np.int32)
    given = np.asarray(groups)
    if given.shape != (features,):
        raise ValueError(
            f"groups must name a group for each of the {features} features, got shape "
            f"{given.shape}."
        )
    if any(name is None or name != name for name in given.tolist()):
        raise ValueError(f"groups must name a group for each feature, got {given.tolist()!r}.")
    names, index = np.unique(given, return_inverse=True)
    return names, index.astype(np.int32)


def limits_of(estimator: Any) -> Limits:
    """How far penalties may be apart, and when a run ends."""
    ratio, most, tol = estimator.max_ratio, estimator.max_iter, estimator.tol
    if not (_is_number(ratio) and 1 < ratio < np.inf):
        raise ValueError(f"max_ratio must be a finite number above 1, got {ratio!r}.")
    if not (_is_number(most) and isinstance(most, int | np.integer) and most >= 1):
        raise ValueError(f"max_iter must be an integer of at least 1, got {most!r}.")
    if not (_is_number(tol) and 0 < tol < np.inf):
        raise ValueError(f"tol must be a finite number above 0, got {tol!r}.")
    return Limits(float(ratio), int(most), float(tol))


def alphas_of(alphas: Any) -> np.ndarray | None:
    """The common penalties to try, or None for those that suit the data."""
    if alphas is None:
        return None
    try:
        given = np.atleast_1d(np.asarray(alphas, np.float64))
    except (TypeError, ValueError):
        given = np.empty(0)
    if given.ndim != 1 or not len(given) or not np.all((given > 0) & (given < np.inf)):
        raise ValueError(f"alphas must be finite numbers above 0, got {alphas!r}.")
    return given


def shrinkage_of(shrinkage: Any) -> float:
    """How strong the prior is that penalties are alike."""
    if not (_is_number(shrinkage) and 0 <= shrinkage < np.inf):
        raise ValueError(f"shrinkage must be a finite number of at least 0, got {shrinkage!r}.")
    return float(shrinkage)


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float | np.number) and not isinstance(given, bool)
