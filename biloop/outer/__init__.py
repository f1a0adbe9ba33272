"""The outer step: x ← step(x, h)."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import optax

from biloop.compilation import Built
from biloop.outer.base import GradientStep, OptaxStep, OuterStep, ScheduledStep
from biloop.outer.entrywise import Entrywise, Staged
from biloop.outer.quasi_newton import QuasiNewton
from biloop.outer.sets import Ball, Box, ConvexSet
from biloop.problem import same_space
from biloop.schedules import Schedule
from biloop.vectors import add_scaled, norm, scaled, subtract

_SHORT = 1e-3  # of x


class Projected(OuterStep):
    """x ← Π(step(x, h)): any outer step followed by a projection, e.g. `Projected(0.1, Box(0, 1))`.

    This is the remark after Assumption 4: on a bounded set ∇_y f(x, y*(x)) is bounded.

    Parameters
    ----------
    inner_step : number, "auto", optax transformation or OuterStep
        The step before the projection.
    onto : ConvexSet
        `Box` or `Ball`.

    Examples
    --------
    >>> run = bl.solve(problem, x0, y0, outer=bl.Projected(0.1, bl.Box(-1.0, 3.0)), steps=5)
    >>> bool(-1 <= run.x <= 3)
    True
    """

    inner_step: OuterStep = eqx.field(converter=lambda step: as_outer_step(step))
    onto: ConvexSet

    def __check_init__(self):
        if not isinstance(self.onto, ConvexSet):
            raise TypeError(f"Projected needs a set such as Box or Ball, got {self.onto!r}.")

    def init(self, x):
        same_space(self.onto.project(x), x, "the projection of x", "x")
        return self.inner_step.init(x)

    def step(self, x, h, value, state):
        # A step that learns curvatures must not count on what the projection takes away.
        along = self.slope(x, h) if self.finds_its_size else h
        x, state, accepted = self.inner_step.step(x, along, value, state)
        return self.onto.project(x), state, accepted

    def accepted(self, state):
        return self.inner_step.accepted(state)

    def slope(self, x, h):
        """(x − Π(x − th)) / t for a small t: at the border of the set, what does not lead out."""
        size, length = norm(h), norm(x)
        reach = _SHORT * jnp.where(length > 0, length, jnp.ones_like(length))
        t = jnp.where(size > 0, reach / jnp.where(size > 0, size, 1.0), jnp.ones_like(size))
        return scaled(1 / t, subtract(x, self.onto.project(add_scaled(x, -t, h))))

    def begun(self, state, length):
        return self.inner_step.begun(state, length)

    def on_batches(self, step):
        return Projected(self.inner_step.on_batches(step), self.onto)

    @property
    def is_projected(self):
        return True

    @property
    def finds_its_size(self):
        return self.inner_step.finds_its_size


def as_outer_step(outer: Any) -> OuterStep:
    """A number or a schedule is gradient descent, "auto" finds its own step, others stay."""
    if isinstance(outer, OuterStep):
        return outer
    if isinstance(outer, str) and outer == "auto":
        return QuasiNewton()
    if isinstance(outer, optax.GradientTransformation | Built):
        return OptaxStep(outer)
    if isinstance(outer, Schedule | tuple):
        return ScheduledStep(outer)
    try:
        return GradientStep(outer)
    except TypeError:
        raise TypeError(
            f'outer must be a step size, a schedule of k, "auto", an optax transformation or an '
            f"OuterStep, got {outer!r}."
        ) from None


__all__ = [
    "OuterStep",
    "GradientStep",
    "OptaxStep",
    "ScheduledStep",
    "QuasiNewton",
    "Entrywise",
    "Staged",
    "ConvexSet",
    "Box",
    "Ball",
    "Projected",
    "as_outer_step",
]
