"""What the tuning of penalties has to know of a kind of linear model."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PyTree
from numpy.typing import NDArray

from biloop.methods import Method
from biloop.problem import Problem
from biloop.sklearn.penalties import Penalties

Matrix = NDArray[np.float64]
Model = tuple[Matrix, Any]
"""Coefficients and intercepts."""


class Samples(NamedTuple):
    """A row of X, a target or a label, and a weight for each sample."""

    X: Matrix
    t: Matrix
    weights: Matrix


class Folds(NamedTuple):
    """For each model of cross-validation the masks of the samples it is fitted to and judged by.

    Folds that were `drawn` say that samples are alike: any of them may be left out alone.
    """

    pairs: list[tuple[Matrix, Matrix]]
    drawn: bool

    def shares(self, weights: Matrix) -> Matrix:
        """How much each judged sample counts, fold after fold; the sum is that of all weights."""
        each = np.concatenate([weights[judged > 0] for _, judged in self.pairs])
        anywhere = np.any([judged > 0 for _, judged in self.pairs], axis=0)
        return each * (weights[anywhere].sum() / each.sum())


class Best(NamedTuple):
    """The best common factor of given penalties, the models there, and what samples lose there.

    Only samples that a model was not fitted to are judged by it.
    """

    alpha: float
    y: PyTree
    losses: Matrix
    shares: Matrix

    @property
    def value(self) -> float:
        """The mean loss."""
        return float(np.average(self.losses, weights=self.shares))


def best(
    alphas: Matrix, ys: Callable[[int], PyTree], losses: Matrix, shares: Matrix, floor: float
) -> Best:
    """Of factors in falling order, with a row of losses each, the first with the smallest mean."""
    used = shares > 0
    values = np.where(np.isnan(losses[:, used]), np.inf, losses[:, used]) @ shares[used]
    if not np.isfinite(values).any():
        raise ValueError(f"No common penalty between {alphas[-1]} and {alphas[0]} can be fitted.")
    first = int(np.flatnonzero(values <= max(values.min(), floor * shares.sum()))[0])
    return Best(float(alphas[first]), ys(first), losses[first, used], shares[used])


class Task(ABC):
    """Cross-validation to be tuned: the problem for given penalties, and what is known of it.

    y holds a model for each fold, and last one that is fitted to all samples and judged by none.
    `method` finds hypergradients. `unit` is the change of f by one unit of the logarithm of a
    likelihood: priors are in it. Values of f below `floor` are rounding, and none is better than
    another. Arrays are filled up to `features`.
    """

    y0: PyTree
    features: int
    method: Method
    floor: float = 0.0

    @abstractmethod
    def make(self, penalties: Penalties) -> Problem:
        """The problem for these penalties."""

    @abstractmethod
    def unit(self, value: float) -> float:
        """By how much f changes with one unit of a log-likelihood, where f is `value`."""

    @abstractmethod
    def squares(self, y: PyTree) -> Matrix:
        """Those of the coefficients by feature, a row for each model."""

    @abstractmethod
    def common(self, alphas: Matrix) -> Best:
        """The best common penalty, as scikit-learn's own estimators choose it."""

    @abstractmethod
    def start(self, alphas: Matrix) -> Best:
        """The best common penalty by f itself: where tuning starts."""

    @abstractmethod
    def judged(self, ratios: Matrix, alphas: Matrix, y: PyTree) -> Best:
        """The best factor of tuned penalties.

        The penalties of features are `ratios` times the factor: one row, or a row for each model of
        y, which holds the models where they were tuned.
        """

    def rival(self, ratios: Matrix, common: Best, start: Best) -> Best:
        """Which of the common penalties was judged as these ratios are."""
        return common


class Family(NamedTuple):
    """A kind of linear model.

    `task` is its cross-validation, `alphas` the common penalties to try, and `model` the one that
    is fitted to all samples with given penalties (for which y holds the models).
    """

    task: Callable[[Samples, Folds], Task]
    alphas: Callable[[Samples], Matrix]
    model: Callable[[Samples, Matrix, Any], Model]
