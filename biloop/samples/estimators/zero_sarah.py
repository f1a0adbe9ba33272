"""ZeroSARAH: a recursion that never needs all samples, held in place by SAGA's table."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from biloop.samples import Pair
from biloop.samples.estimators.base import Estimator, Evaluations
from biloop.samples.estimators.saga import Saga, SagaState, saga_step
from biloop.schedules import Schedule, as_weight, is_first, number_at
from biloop.vectors import add_scaled, scaled, subtract, zeros_like


class ZeroSarahState(NamedTuple):
    """The last direction, and SAGA's own."""

    direction: Pair
    saga: SagaState


class ZeroSarah(Estimator):
    """d ← (1 − τ)(d − old + new) + τ · SAGA, τ = 1 in the first step: Li et al. (2021).

    Parameters
    ----------
    weight : number or schedule of k
        τ, at most 1.

    Examples
    --------
    >>> samples = bl.Samples(bl.Blocks(8), bl.Blocks(8))
    >>> bl.SingleLoop(samples, 0.1, 0.1, bl.ZeroSarah(0.1)).estimators
    {'yvx': ZeroSarah(weight=0.1)}
    """

    weight: Schedule = eqx.field(converter=as_weight("weight"))

    @property
    def looks_back(self):
        return True

    @property
    def needs_blocks(self):
        return True

    def init(self, direction, blocks, numbers=None):
        return ZeroSarahState(zeros_like(direction), Saga().init(direction, blocks, numbers))

    def __call__(self, draw, state, k):
        tau = number_at(self.weight, k)
        tau = jnp.where(is_first(k), jnp.ones_like(tau), tau)
        new = draw.new()
        anchor, saga = saga_step(draw.compact(), draw, state.saga)
        moved = add_scaled(state.direction, 1.0, subtract(new, draw.old()))
        d = add_scaled(scaled(1 - tau, moved), tau, anchor)
        return d, ZeroSarahState(d, saga), Evaluations(2)
