"""From samples to penalties, in the order in which all estimators do it."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from biloop.compilation import double_precision
from biloop.sklearn.family import Family, Folds, Matrix, Model, Samples, Task
from biloop.sklearn.penalties import ByGroup, ByPilot, ByPilotMixed, Penalties, relative_squares
from biloop.sklearn.shapes import features, filled
from biloop.sklearn.tuning import Best, Limits, Tuned, best_common, tune

Kind = Callable[[Task, Best, float, int], Penalties]
"""Penalties around the best common one, no farther from it than a ratio, for so many features."""


class Fitted(NamedTuple):
    """The best common penalty, where the run ended, the penalties of features, and the model."""

    best: Best
    tuned: Tuned
    alphas: Matrix
    lasso_share: float
    model: Model


def by_group(groups: np.ndarray, task: Task, best: Best, ratio: float, _d: int) -> ByGroup:
    """A penalty for each group."""
    count = int(groups.max()) + 1
    there = filled(np.ones(count), features(count))
    index = filled(groups, task.features)
    return ByGroup(*map(jnp.asarray, (np.log(best.alpha), np.log(ratio), index, there)))


def by_pilot(
    task: Task, best: Best, ratio: float, d: int, kind: type[ByPilot | ByPilotMixed] = ByPilot
) -> Penalties:
    """A penalty for each feature."""
    squares = relative_squares(task.squares(best.y), d)
    return kind(*map(jnp.asarray, (np.log(best.alpha), np.log(ratio), squares)))


def fit(
    family: Family,
    samples: Samples,
    folds: Folds,
    kind: Kind,
    limits: Limits,
    alphas: np.ndarray | None,
    shrinkage: float,
) -> Fitted:
    """The best common penalty, then those of a kind around it, then the model of all samples."""
    d = samples.X.shape[1]
    with double_precision(), jax.numpy_rank_promotion("allow"):
        task = family.task(samples, folds)
        best = best_common(task, family.alphas(samples) if alphas is None else alphas)
        penalties = kind(task, best, limits.max_ratio, d)
        tuned = tune(task, best, penalties, limits, shrinkage)
        each, share = np.full(d, best.alpha), 0.5
        if tuned.x is not None:  # the last row is that of the model of all samples
            x = jnp.asarray(tuned.x)
            each, share = np.asarray(penalties(x))[-1, :d], float(penalties.lasso_share(x))
        model = family.model(samples, each, tuned.y)
    return Fitted(best, tuned, each, share, model)
