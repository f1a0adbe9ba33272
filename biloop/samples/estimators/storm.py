"""STORM: a moving average corrected by the change of the batch."""

import equinox as eqx
import jax.numpy as jnp

from biloop.samples.estimators.base import Estimator, Evaluations
from biloop.schedules import Schedule, as_weight, is_first, number_at
from biloop.vectors import add_scaled, subtract, zeros_like


class Storm(Estimator):
    """d ← new + (1 − η)(d − old), η = 1 in the first step: Cutkosky and Orabona (2019).

    `old` is the same batch at the last point, so that a step pays twice.

    Parameters
    ----------
    weight : number or schedule of k
        η, at most 1; `(1.0, -2/3)` is (k + 1)^(−2/3).

    Examples
    --------
    >>> bl.schemes.fsla(batch=8, weight=0.2).estimator
    Storm(weight=0.2)
    """

    weight: Schedule = eqx.field(converter=as_weight("weight"))

    @property
    def looks_back(self):
        return True

    def init(self, direction, blocks):
        return zeros_like(direction)

    def __call__(self, draw, state, k):
        eta = number_at(self.weight, k)
        eta = jnp.where(is_first(k), jnp.ones_like(eta), eta)
        d = add_scaled(draw.new(), 1 - eta, subtract(state, draw.old()))
        return d, d, Evaluations(2)
