"""How much tuned penalties must win before estimators take them: errors for several such rules.

    python -m benchmarks.estimator_rule --splits 20

Tuned penalties are taken where they win so many standard errors more than tuning wins from noise
(`biloop.sklearn.tuning.surpasses` has 1). Each split is fitted twice, with the tuned penalties and
with the common one, from which all rules follow. Numbers are test errors relative to RidgeCV, ±
their standard error, and in how many splits tuned penalties were taken.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.metrics import mean_squared_error
from sklearn.preprocessing import StandardScaler

from benchmarks.estimator_data import REGRESSION, Draw
from benchmarks.estimators import ALPHAS, Make, mean, regressors
from biloop.sklearn.family import Best

RULES = (0.0, 1.0, 1.5, 2.0, 3.0)
MODELS = ("GroupRidgeCV", "AdaptiveRidgeCV")


@contextmanager
def decided(take: bool) -> Iterator[list[float]]:
    """Within it tuned penalties are taken, or not; what they would win, in standard errors."""
    won = []

    def surpasses(tuned: Best, common: Best, optimism: float) -> bool:
        gained, shares = common.losses - tuned.losses, common.shares
        mean = np.average(gained, weights=shares)
        variance = np.average((gained - mean) ** 2, weights=shares)
        won.append(float((mean - optimism) / np.sqrt(variance / shares.sum())))
        return take

    with patch("biloop.sklearn.fitting.surpasses", surpasses):
        yield won


def measured(draw: Draw, make: Make, splits: int) -> np.ndarray:
    """What tuned penalties win, and the errors with and without them; a row for each split."""
    rows = []
    for seed in range(splits):
        data = draw(np.random.default_rng(seed))
        X, t, n = StandardScaler().fit(data.X[: data.train]).transform(data.X), data.t, data.train

        def error(model, X=X, t=t, n=n):
            return mean_squared_error(t[n:], model.fit(X[:n], t[:n]).predict(X[n:]))

        base, errors = error(RidgeCV(ALPHAS)), []
        for take in (True, False):
            with decided(take) as won:
                errors.append(error(make(data.groups)) / base)
        rows.append([won[0] if won else -np.inf, *errors])  # nothing was found: nothing to decide
    return np.array(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--data", nargs="+", default=[""], help="parts of titles of data sets")
    given = parser.parse_args()
    print("| | | " + " | ".join(f"{rule:g}" for rule in RULES) + " |")
    print("|---" * (2 + len(RULES)) + "|")
    for title, draw in REGRESSION.items():
        if not any(part in title for part in given.data):
            continue
        for name in MODELS:
            won, tuned, common = measured(draw, regressors()[name], given.splits).T
            cells = []
            for rule in RULES:
                taken = won > rule
                cells.append(f"{mean(np.where(taken, tuned, common))} ({taken.sum()})")
            print(f"| {title} | {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
