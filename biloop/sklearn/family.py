"""What the tuning of penalties has to know of a kind of linear model."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biloop.sklearn.tuning import Task

Matrix = NDArray[np.float64]
Folds = list[tuple[np.ndarray, np.ndarray]]
"""For each model of cross-validation the masks of the samples it is fitted to and judged by."""
Model = tuple[Matrix, Any]
"""Coefficients and intercepts."""


class Samples(NamedTuple):
    """A row of X, a target or a label, and a weight for each sample."""

    X: Matrix
    t: Matrix
    weights: Matrix


class Family(NamedTuple):
    """A kind of linear model.

    `task` is its cross-validation, `alphas` the common penalties to try, `model` the one that is
    fitted to all samples with given penalties (for which y holds the models of the folds), and
    `loss` the mean loss of a model on samples, as those it was fitted to suggest to measure it.
    """

    task: Callable[[Samples, Folds, np.ndarray], Task]
    alphas: Callable[[Samples], Matrix]
    model: Callable[[Samples, Matrix, Any], Model]
    loss: Callable[[Model, Samples, Samples], float]
