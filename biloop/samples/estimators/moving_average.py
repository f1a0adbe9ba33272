"""An exponential moving average over the steps."""

import equinox as eqx

from biloop.samples.estimators.base import Estimator, Evaluations
from biloop.schedules import Schedule, as_weight, is_first, number_at
from biloop.vectors import add_scaled, scaled, where, zeros_like


class MovingAverage(Estimator):
    """d ← (1 − θ) d + θ new, from d = new: Chen, Xiao and Balasubramanian (2023), MA-SOBA.

    Biased by how far the point moves within 1/θ steps; the variance is θ/2 of that of a batch.

    Parameters
    ----------
    weight : number or schedule of k
        θ, at most 1, which is `Plain`.

    Examples
    --------
    >>> bl.schemes.ma_soba(batch=8, weight=0.2).estimators["x"]
    MovingAverage(weight=0.2)
    """

    weight: Schedule = eqx.field(converter=as_weight("weight"))

    def init(self, direction, blocks):
        return zeros_like(direction)

    def __call__(self, draw, state, k):
        new, theta = draw.new(), number_at(self.weight, k)
        d = where(is_first(k), new, add_scaled(scaled(1 - theta, state), theta, new))
        return d, d, Evaluations(1)
