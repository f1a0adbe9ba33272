"""What the tuning of penalties has to know of a kind of linear model."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PyTree
from numpy.typing import NDArray

from biloop.methods import Method
from biloop.problem import Problem
from biloop.sklearn.penalties import Penalties

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


class Task(NamedTuple):
    """Cross-validation to be tuned: the problem for given penalties, and what is known of it.

    y holds a model for each fold, and last one that is fitted to all samples and judged by none.
    `squares` are those of its coefficients by feature. `method` finds hypergradients, and wants to
    be called `rounds` times at each penalty of a grid. `unit` is the change of f by one unit of the
    logarithm of a likelihood: priors are in it. Values of f below `floor` are rounding, and none is
    better than another. Arrays are filled up to `features`.
    """

    make: Callable[[Penalties], Problem]
    y0: PyTree
    features: int
    squares: Callable[[PyTree], Matrix]
    method: Method
    rounds: int
    unit: Callable[[float], float]
    floor: float


class Family(NamedTuple):
    """A kind of linear model.

    `task` is its cross-validation, `alphas` the common penalties to try, and `model` the one that
    is fitted to all samples with given penalties (for which y holds the models).
    """

    task: Callable[[Samples, Folds], Task]
    alphas: Callable[[Samples], Matrix]
    model: Callable[[Samples, Matrix, Any], Model]
