"""The estimators beside scikit-learn's, himalaya's and Optuna: test errors over random splits.

    python benchmarks/estimators.py --splits 20 --write docs/estimators.md

Each number is the mean over the splits of the test error relative to RidgeCV (squared error) or
LogisticRegressionCV (log loss), ± its standard error; then the median time of a fit, the first
one (which compiles) left out. himalaya and Optuna take part where they are installed.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.linear_model import ElasticNetCV, LassoCV, LogisticRegressionCV, Ridge, RidgeCV
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.preprocessing import StandardScaler

from biloop.sklearn import AdaptiveLogisticCV, AdaptiveRidgeCV, GroupLogisticCV, GroupRidgeCV

START, END = "<!-- table -->", "<!-- end of the table -->"
ALPHAS = np.logspace(-3, 5, 41)
FOLDS = KFold(5, shuffle=True, random_state=0)
CLASS_FOLDS = StratifiedKFold(5, shuffle=True, random_state=0)


class Data(NamedTuple):
    """Samples of which the first `train` are for training, and the groups of the features."""

    X: np.ndarray
    t: np.ndarray
    train: int
    groups: np.ndarray


# --- data ---------------------------------------------------------------------------------------


def five_groups(rng: np.random.Generator) -> Data:
    scales = np.repeat([1.0, 0.5, 0.2, 0.05, 0.0], 20)
    return _linear(rng, rng.normal(size=100) * scales, 150, 3.0, np.repeat(np.arange(5), 20))


def sparse_truth(rng: np.random.Generator) -> Data:
    w = np.r_[2 * rng.normal(size=6), np.zeros(54)]
    return _linear(rng, w, 100, 3.0, np.arange(60) // 12)


def dense_truth(rng: np.random.Generator) -> Data:
    return _linear(rng, rng.normal(size=60), 100, 5.0, np.arange(60) // 12)


def _linear(rng: np.random.Generator, w: np.ndarray, train: int, noise: float, groups: Any) -> Data:
    X = rng.normal(size=(train + 2000, len(w)))
    return Data(X, X @ w + noise * rng.normal(size=len(X)), train, groups)


def diabetes(rng: np.random.Generator, noise: int = 0) -> Data:
    X, t = load_diabetes(return_X_y=True, scaled=False)
    kinds = np.r_[0, 0, 1, 1, np.full(6, 2)]  # who, body, blood
    return _drawn(rng, X, t, 300, kinds, noise)


def diabetes_and_noise(rng: np.random.Generator) -> Data:
    return diabetes(rng, noise=60)


def breast_cancer(rng: np.random.Generator, noise: int = 0) -> Data:
    X, t = load_breast_cancer(return_X_y=True)
    return _drawn(rng, X, t, 285, np.arange(30) // 10, noise)  # mean, error, worst


def breast_cancer_and_noise(rng: np.random.Generator) -> Data:
    return breast_cancer(rng, noise=60)


def wine(rng: np.random.Generator) -> Data:
    X, t = load_wine(return_X_y=True)
    return _drawn(rng, X, t, 100, np.zeros(13, int), 0)


def three_or_eight(rng: np.random.Generator) -> Data:
    X, t = load_digits(return_X_y=True)
    chosen = np.isin(t, [3, 8])
    return _drawn(rng, X[chosen], t[chosen], 180, np.arange(64) // 8, 0)  # rows of the image


def _drawn(
    rng: np.random.Generator, X: np.ndarray, t: np.ndarray, train: int, kinds: Any, noise: int
) -> Data:
    """Samples in random order, with columns of noise in a group of their own."""
    X = np.column_stack([X, rng.normal(size=(len(X), noise))])
    kinds = np.r_[kinds, np.full(noise, max(kinds) + 1)]
    order = rng.permutation(len(X))
    return Data(X[order], t[order], train, kinds)


REGRESSION = {
    "5 groups, 150 × 100": five_groups,
    "diabetes": diabetes,
    "diabetes + 60 noise features": diabetes_and_noise,
    "sparse truth, 100 × 60": sparse_truth,
    "dense truth, 100 × 60": dense_truth,
}
CLASSIFICATION = {
    "breast_cancer": breast_cancer,
    "breast_cancer + 60 noise features": breast_cancer_and_noise,
    "wine": wine,
    "digits, 3 or 8": three_or_eight,
}


# --- models -------------------------------------------------------------------------------------


def himalaya_ridge(groups: np.ndarray) -> Any:
    from himalaya.ridge import GroupRidgeCV as Theirs

    options = {"n_iter": 100, "alphas": ALPHAS, "progress_bar": False}
    return Theirs(
        groups=groups, solver_params=options, cv=FOLDS, fit_intercept=True, random_state=0
    )


class OptunaRidge:
    """A penalty per group, in 100 trials by Optuna."""

    def __init__(self, groups: np.ndarray) -> None:
        self.groups = groups

    def fit(self, X: np.ndarray, t: np.ndarray) -> "OptunaRidge":
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        count = self.groups.max() + 1

        def roots(trial: Any) -> np.ndarray:
            logs = [trial.suggest_float(f"g{g}", -3.0, 6.0) for g in range(count)]
            return np.sqrt(10.0 ** np.array(logs))[self.groups]

        def error(trial: Any) -> float:
            scaled = X / roots(trial)
            score = "neg_mean_squared_error"
            return -np.mean(cross_val_score(Ridge(alpha=1.0), scaled, t, cv=FOLDS, scoring=score))

        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
        study.optimize(error, n_trials=100)
        self.roots = roots(study.best_trial)
        self.model = Ridge(alpha=1.0).fit(X / self.roots, t)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model.predict(X / self.roots)


Make = Callable[[np.ndarray], Any]


def regressors() -> dict[str, Make]:
    found: dict[str, Make] = {
        "RidgeCV": lambda groups: RidgeCV(ALPHAS),
        "LassoCV": lambda groups: LassoCV(cv=FOLDS),
        "ElasticNetCV": lambda groups: ElasticNetCV(l1_ratio=[0.1, 0.5, 0.9], cv=FOLDS),
        "GroupRidgeCV": lambda groups: GroupRidgeCV(groups),
        "AdaptiveRidgeCV": lambda groups: AdaptiveRidgeCV(),
    }
    if find_spec("himalaya"):
        found["himalaya GroupRidgeCV"] = himalaya_ridge
    if find_spec("optuna"):
        found["Optuna, 100 trials"] = OptunaRidge
    return found


def classifiers() -> dict[str, Make]:
    def theirs(**options: Any) -> Any:
        return LogisticRegressionCV(
            Cs=np.logspace(-4, 4, 17), cv=CLASS_FOLDS, scoring="neg_log_loss", **options
        )

    return {
        "LogisticRegressionCV": lambda groups: theirs(max_iter=5000),
        "GroupLogisticCV": lambda groups: GroupLogisticCV(groups),
        "AdaptiveLogisticCV": lambda groups: AdaptiveLogisticCV(),
    }


# --- measuring ----------------------------------------------------------------------------------


class Result(NamedTuple):
    """Test errors and times of a model, by split."""

    errors: list[float]
    seconds: list[float]


def measure(draw: Callable, models: dict[str, Make], classify: bool, splits: int) -> dict:
    results = {name: Result([], []) for name in models}
    for seed in range(splits):
        data = draw(np.random.default_rng(seed))
        X, n = StandardScaler().fit(data.X[: data.train]).transform(data.X), data.train
        for name, make in models.items():
            model = make(data.groups)
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(X[:n], data.t[:n])
            results[name].seconds.append(time.perf_counter() - start)
            if classify:
                error = log_loss(data.t[n:], model.predict_proba(X[n:]), labels=np.unique(data.t))
            else:
                error = mean_squared_error(data.t[n:], model.predict(X[n:]))
            results[name].errors.append(float(error))
    return results


def table(sets: dict[str, Callable], models: dict[str, Make], classify: bool, splits: int) -> str:
    lines = ["| | " + " | ".join(models) + " |", "|---" * (1 + len(models)) + "|"]
    for title, draw in sets.items():
        results = measure(draw, models, classify, splits)
        base = np.array(next(iter(results.values())).errors)
        cells = []
        for errors, seconds in results.values():
            ratios = np.array(errors) / base
            spread = np.std(ratios, ddof=1) / np.sqrt(splits) if splits > 1 else np.nan
            cells.append(f"{ratios.mean():.3f} ± {spread:.3f}, {np.median(seconds[1:]):.3g} s")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--write", type=Path, help="the document whose table is replaced")
    given = parser.parse_args()
    found = "\n\n".join(
        [
            table(REGRESSION, regressors(), False, given.splits),
            table(CLASSIFICATION, classifiers(), True, given.splits),
        ]
    )
    print(found)
    if given.write:
        text = given.write.read_text(encoding="utf-8")
        before, rest = text.split(START)
        _, after = rest.split(END)
        command = f"`python benchmarks/estimators.py --splits {given.splits}`"
        note = f"Test error relative to the first column and time of a fit, {given.splits} splits:"
        new = f"{before}{START}\n{note} {command}\n\n{found}\n{END}{after}"
        given.write.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
