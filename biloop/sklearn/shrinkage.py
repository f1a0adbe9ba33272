"""How much the penalties of features are drawn together, by nested cross-validation.

Every fold in turn is left out; on the others the penalties are tuned for each strength by
cross-validation over them, from strong to weak, and judged by the fold that was left out. The
common penalty, infinite strength, is one of the candidates.
"""

from typing import NamedTuple

import numpy as np

from biloop.sklearn.family import Family, Folds, Samples
from biloop.sklearn.tuning import Common, Limits, Task, Tuned, as_tuned, best_common, tune

_DOUBT = 1.0  # standard errors that weaker shrinkage must be better by


class Judged(NamedTuple):
    """The held-out loss of each strength, a row per fold; the first is that of the common one."""

    strengths: np.ndarray
    losses: np.ndarray
    weights: np.ndarray  # of the folds

    @property
    def means(self) -> np.ndarray:
        """Over all samples."""
        return np.average(self.losses, axis=0, weights=self.weights)

    def chosen(self) -> int:
        """The strongest that is not worse than the best one by more than what is noise."""
        best = int(np.argmin(self.means))
        folds = len(self.losses)
        for candidate in range(best):
            worse = self.losses[:, candidate] - self.losses[:, best]
            error = np.std(worse, ddof=1) / np.sqrt(folds)
            if np.average(worse, weights=self.weights) <= _DOUBT * error:
                return candidate
        return best


def judged_strengths(
    family: Family,
    samples: Samples,
    folds: Folds,
    groups: np.ndarray,
    alphas: np.ndarray,
    limits: Limits,
    strengths: np.ndarray,
) -> Judged:
    """Nested cross-validation."""
    losses, weights = [], []
    for left_out, (fitted, judged) in enumerate(folds):
        others = [folds[k] for k in range(len(folds)) if k != left_out]
        inner = [(fitted * a, fitted * b) for a, b in others]
        train = samples._replace(weights=samples.weights * fitted)
        test = samples._replace(weights=samples.weights * judged)
        task = family.task(train, inner, groups)
        common = best_common(task, alphas)
        path = [as_tuned(common, groups), *shrinking(task, common, limits, strengths)]
        models = [family.model(train, tuned.alphas[groups], tuned.y) for tuned in path]
        losses.append([family.loss(model, test, train) for model in models])
        weights.append(test.weights.sum())
    return Judged(np.array([np.inf, *strengths]), np.array(losses), np.array(weights))


def shrinking(task: Task, common: Common, limits: Limits, strengths: np.ndarray) -> list[Tuned]:
    """The penalties for each strength, from strong to weak, each from where the last ended."""
    found: list[Tuned] = []
    for strength in strengths:
        found.append(tune(task, common, limits, strength, found[-1] if found else None))
    return found
