"""A penalty for each group of features, learned: how far it gets, and the penalties that it finds.

python examples/group_ridge.py --figure group_ridge.png
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.linear_model import RidgeCV

from biloop.sklearn import GroupRidgeCV

NAMES = np.array(["strong", "medium", "weak", "faint", "noise"])
SIZES = np.array([1.0, 0.5, 0.2, 0.05, 0.0])  # of the coefficients in each group


def draw(seed: int, samples: int, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, len(w)))
    return X, X @ w + 3 * rng.normal(size=samples)


def compare(seed: int = 0, features: int = 20) -> tuple[GroupRidgeCV, dict[str, float]]:
    """The fitted model, and the test errors of it, of ridge regression, and of the truth."""
    groups = np.repeat(NAMES, features)
    w = np.random.default_rng(seed).normal(size=len(groups)) * np.repeat(SIZES, features)
    train, test = draw(seed + 1, 150, w), draw(seed + 2, 5000, w)
    common = RidgeCV(np.logspace(-3, 5, 41)).fit(*train)
    model = GroupRidgeCV(groups).fit(*train)

    def error(prediction: np.ndarray) -> float:
        return float(np.mean((prediction - test[1]) ** 2))

    return model, {
        "RidgeCV, one penalty": error(common.predict(test[0])),
        "GroupRidgeCV, five penalties": error(model.predict(test[0])),
        "the true coefficients": error(test[0] @ w),
    }


def plot(model: GroupRidgeCV, errors: dict[str, float], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    order = [list(model.groups_).index(name) for name in NAMES]
    left.bar(NAMES, model.alphas_[order], color="#3b6ea5")
    left.axhline(model.alpha_, color="black", linewidth=1, linestyle="--")
    left.annotate("best common", (0, model.alpha_), (-0.4, 1.15 * model.alpha_), fontsize=9)
    left.set(yscale="log", title="penalty of each group", ylabel="α")
    bars = right.barh(list(errors), list(errors.values()), color=["#999999", "#3b6ea5", "#cccccc"])
    right.bar_label(bars, fmt="%.1f", padding=3)
    right.set(title="squared error on test data", xlim=(0, 1.15 * max(errors.values())))
    right.invert_yaxis()
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    model, errors = compare()
    for name, value in errors.items():
        print(f"{name:30} test error {value:.2f}")
    for name, alpha in zip(model.groups_, model.alphas_, strict=True):
        print(f"{name:8} penalty {alpha:.3g}")
    if given.figure:
        plot(model, errors, given.figure)


if __name__ == "__main__":
    main()
