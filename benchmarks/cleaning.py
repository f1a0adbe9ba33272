"""What learned weights of samples are worth beside simple cures, on digits with wrong labels.

    python benchmarks/cleaning.py --seeds 5 --write docs/problems.md

Every cure gives weights to 1000 training samples, of which 40 % have wrong labels; a few trusted
samples are right. A model is then fitted anew to both, always in the same way, and judged on 397
samples that nobody has seen. Learned weights end where half of the trusted samples, which they are
not fitted to, are labelled best. Needs scikit-learn, and cleanlab for its row.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

import biloop as bl
from biloop.data import Samples, digits, split

START, END = "<!-- cleaning -->", "<!-- end of cleaning -->"
STEPS = 30


class Case(NamedTuple):
    """Samples with wrong labels, trusted ones, and those to judge by."""

    train: Samples
    trusted: Samples
    test: Samples


def uniform(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (labels + rng.integers(1, 10, len(labels))) % 10


def one_direction(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (labels + 1) % 10


def case(seed: int, noise: Callable, trusted: int) -> Case:
    train, some, test = split(digits(), (1000, trusted, 397), seed=seed)
    rng = np.random.default_rng(seed)
    wrong = rng.permutation(1000)[:400]
    labels = np.array(train.labels)
    labels[wrong] = noise(labels[wrong], rng)
    return Case(Samples(train.X, labels), some, test)


def fitted(samples: Samples, weights: np.ndarray | None = None) -> LogisticRegression:
    return LogisticRegression(C=1.0, max_iter=2000).fit(samples.X, samples.labels, weights)


# --- cures: a weight for each training sample ---------------------------------------------------


def as_they_are(c: Case) -> np.ndarray:
    return np.ones(1000)


def trusted_alone(c: Case) -> np.ndarray:
    return np.zeros(1000)


def plain_filter(c: Case) -> np.ndarray:
    """Keep what a model of the trusted samples labels the same way."""
    return 1.0 * (fitted(c.trusted).predict(c.train.X) == c.train.labels)


def cleanlab(c: Case) -> np.ndarray:
    from cleanlab.filter import find_label_issues

    model = LogisticRegression(C=1.0, max_iter=2000)
    guesses = cross_val_predict(model, c.train.X, c.train.labels, cv=5, method="predict_proba")
    return 1.0 - find_label_issues(c.train.labels, guesses, n_jobs=1)


def learned(c: Case, early: bool = True) -> np.ndarray:
    half = len(c.trusted.labels) // 2
    fit, watch = (
        Samples(c.trusted.X[i], c.trusted.labels[i]) for i in (slice(half), slice(half, None))
    )
    cleaning = bl.problems.data_cleaning(c.train, fit if early else c.trusted)
    start = cleaning.problem, cleaning.x0, cleaning.y0
    if not early:
        return cleaning.weights(bl.solve(*start, steps=STEPS).x)
    run = bl.solve(
        *start, steps=STEPS, watch=lambda x, y: cleaning.loss(y, watch), watch_every=1, patience=5
    )
    assert run.best is not None
    return cleaning.weights(run.best.x)


CURES: dict[str, Callable[[Case], np.ndarray]] = {
    "all samples as they are": as_they_are,
    "the trusted samples alone": trusted_alone,
    "plain filter": plain_filter,
    "cleanlab": cleanlab,
    "learned weights, 30 steps": lambda c: learned(c, early=False),
    "learned weights, stopped early": learned,
}
CASES = {
    "uniform, 100 trusted": (uniform, 100),
    "uniform, 300 trusted": (uniform, 300),
    "one direction, 100 trusted": (one_direction, 100),
    "one direction, 300 trusted": (one_direction, 300),
}


def accuracy(c: Case, weights: np.ndarray) -> float:
    both = Samples(
        np.concatenate([c.train.X, c.trusted.X]), np.concatenate([c.train.labels, c.trusted.labels])
    )
    model = fitted(both, np.concatenate([weights, np.ones(len(c.trusted.labels))]))
    return float(model.score(c.test.X, c.test.labels))


def table(seeds: int) -> str:
    lines = ["| | " + " | ".join(CASES) + " |", "|---" * (1 + len(CASES)) + "|"]
    for name, cure in CURES.items():
        cells = []
        for noise, trusted in CASES.values():
            found = [case(seed, noise, trusted) for seed in range(seeds)]
            scores = 100 * np.array([accuracy(c, cure(c)) for c in found])
            cells.append(f"{scores.mean():.1f} ± {scores.std(ddof=1) / np.sqrt(seeds):.1f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--write", type=Path, help="the document whose table is replaced")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", False)
    found = table(given.seeds)
    if given.write:
        text = given.write.read_text(encoding="utf-8")
        before, rest = text.split(START)
        _, after = rest.split(END)
        note = f"Accuracy on test data in percent, {given.seeds} seeds, ± standard error:"
        note += f" `python benchmarks/cleaning.py --seeds {given.seeds}`"
        new = f"{before}{START}\n{note}\n\n{found}\n{END}{after}"
        given.write.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
