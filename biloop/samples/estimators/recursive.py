"""SARAH, SPIDER and PAGE: changes of batches added up, from a full evaluation now and then."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from biloop.samples.estimators.base import Estimator, Evaluations
from biloop.schedules import is_first
from biloop.schedules.arguments import as_count, chance
from biloop.vectors import add_scaled, subtract, zeros_like


class Recursive(Estimator):
    """d ← all if it is time, else d + new − old.

    Time is every `period` steps (SARAH of Nguyen et al. 2017, SPIDER of Fang et al. 2018) or comes
    with a `probability` in each step (PAGE of Li et al. 2021), and always in the first. In between
    a step pays twice.

    Parameters
    ----------
    period : int, optional
        All rows in every so many steps.
    probability : number, optional
        All rows with this probability in each step. One of the two has to be given.

    Examples
    --------
    >>> bl.schemes.srba(batch=8, period=20).estimators["yvx"]
    Recursive(period=20)
    >>> bl.schemes.spaba(batch=8, probability=0.1).estimators["yvx"]
    Recursive(probability=0.1)
    """

    period: int | None = eqx.field(
        default=None, static=True, converter=as_count("period", optional=True)
    )
    probability: Float[Array, ""] | None = eqx.field(default=None, converter=chance("probability"))

    def __check_init__(self):
        if (self.period is None) == (self.probability is None):
            raise ValueError(
                f"Recursive needs either a period or a probability; got period={self.period}, "
                f"probability={self.probability}."
            )

    @property
    def looks_back(self):
        return True

    @property
    def needs_all(self):
        return True

    def init(self, direction, blocks):
        return zeros_like(direction)

    def __call__(self, draw, state, k):
        change = lambda: add_scaled(state, 1.0, subtract(draw.new(), draw.old()))  # noqa: E731
        if draw.within is True:
            d = change()
            return d, d, Evaluations(2)
        if self.probability is None:
            time = jnp.asarray(k) % (self.period or 1) == 0
        else:
            time = is_first(k) | (jax.random.uniform(draw.key) < self.probability)
        full = (time & ~jnp.asarray(draw.within)).astype(jnp.int32)
        d = lax.cond(full == 1, draw.all, change)
        return d, d, Evaluations(2 * (1 - full), full)
