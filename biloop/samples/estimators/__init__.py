"""A mean over all samples from few of them."""

from biloop.samples.estimators.base import Compact, Draw, Estimator, Evaluations
from biloop.samples.estimators.moving_average import MovingAverage
from biloop.samples.estimators.plain import Plain
from biloop.samples.estimators.recursive import Recursive
from biloop.samples.estimators.saga import Saga
from biloop.samples.estimators.storm import Storm
from biloop.samples.estimators.zero_sarah import ZeroSarah

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
