"""From samples to penalties, in the order in which all estimators do it."""

from typing import NamedTuple

import numpy as np

from biloop.sklearn.family import Family, Folds, Model, Samples
from biloop.sklearn.shrinkage import Judged, judged_strengths, shrinking
from biloop.sklearn.tuning import (
    Common,
    Limits,
    Tuned,
    as_tuned,
    best_common,
    double_precision,
    tune,
)

STRENGTHS = np.array([8.0, 2.0, 0.5, 0.125])
"""Of shrinkage, to choose from: in logarithms of a penalty, a standard deviation of 0.35 to 2.8."""


class Fitted(NamedTuple):
    """The best common penalty, those of the groups, the model, and how shrinkage was chosen."""

    common: Common
    tuned: Tuned
    model: Model
    shrinkage: float
    judged: Judged | None


def fit(
    family: Family,
    samples: Samples,
    folds: Folds,
    groups: np.ndarray,
    limits: Limits,
    alphas: np.ndarray | None,
    shrinkage: float | str,
) -> Fitted:
    """The best common penalty, then one for each group with the shrinkage that was asked for."""
    with double_precision():
        grid = family.alphas(samples) if alphas is None else alphas
        task = family.task(samples, folds, groups)
        common = best_common(task, grid)
        if shrinkage == "cv":
            judged = judged_strengths(family, samples, folds, groups, grid, limits, STRENGTHS)
            chosen = judged.chosen()
            path = shrinking(task, common, limits, STRENGTHS[:chosen])
            tuned, strength = (path or [as_tuned(common, groups)])[-1], judged.strengths[chosen]
        else:
            judged, strength = None, float(shrinkage)
            tuned = tune(task, common, limits, strength)
        model = family.model(samples, tuned.alphas[groups], tuned.y)
    return Fitted(common, tuned, model, float(strength), judged)
