"""A mean over all samples from few of them."""

from biloop.estimators.base import Compact, Draw, Estimator, Evaluations
from biloop.estimators.moving_average import MovingAverage
from biloop.estimators.plain import Plain
from biloop.estimators.recursive import Recursive
from biloop.estimators.saga import Saga
from biloop.estimators.storm import Storm
from biloop.estimators.zero_sarah import ZeroSarah

__all__ = [
    "Estimator",
    "Compact",
    "Draw",
    "Evaluations",
    "Plain",
    "MovingAverage",
    "Storm",
    "Recursive",
    "Saga",
    "ZeroSarah",
]
