"""From samples to penalties, in the order in which all estimators do it."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from biloop.compilation import compiled, double_precision
from biloop.sklearn.family import Best, Family, Folds, Matrix, Model, Samples, Task
from biloop.sklearn.penalties import ByGroup, ByPilot, ByPilotMixed, Penalties, relative_squares
from biloop.sklearn.shapes import features, filled
from biloop.sklearn.tuning import Limits, surpasses, tune

Kind = Callable[[Task, Best, float, int], Penalties]
"""Penalties around the best common one, no farther from it than a ratio, for so many features."""


class Fitted(NamedTuple):
    """The best common penalty, losses, outer steps, the penalties of features, and the model."""

    common: Best
    cv_loss: float
    cv_loss_common: float
    steps: int
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


@compiled
def _at(penalties: Penalties, x: Array) -> tuple[Array, Array]:
    """The penalties of the features, and how much of them is on |w|."""
    return penalties(x), penalties.lasso_share(x)


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
        alphas = np.sort(family.alphas(samples) if alphas is None else alphas)[::-1]
        common, start = task.common(alphas), task.start(alphas)
        penalties = kind(task, start, limits.max_ratio, d)
        tuned = tune(task, start, penalties, limits, shrinkage)
        each, share, y, rival = np.full(d, common.alpha), 0.5, common.y, common
        loss = common.value
        if tuned.x is not None:
            each_model, mixed = jax.device_get(_at(penalties, jnp.asarray(tuned.x)))
            ratios = each_model[:, :d] / start.alpha
            found, rival = task.judged(ratios, alphas, tuned.y), task.rival(ratios, common, start)
            loss = rival.value
            # Tuning p numbers to noise wins p/2 of a log-likelihood on the mean.
            optimism = 0.5 * penalties.freedom * task.unit(rival.value)
            if surpasses(found, rival, optimism):  # the last row is the model of all samples
                each, y, loss = ratios[-1] * found.alpha, found.y, found.value
                share = float(mixed)
        model = family.model(samples, each, y)
    return Fitted(common, loss, rival.value, tuned.steps, each, share, model)
