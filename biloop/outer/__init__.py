"""The outer step: x ← step(x, h)."""

from typing import Any

import equinox as eqx
import optax

from biloop.compilation import Built
from biloop.outer.base import GradientStep, OptaxStep, OuterStep
from biloop.outer.quasi_newton import QuasiNewton
from biloop.outer.sets import Ball, Box, ConvexSet
from biloop.problem import same_space


class Projected(OuterStep):
    """x ← Π(step(x, h)): any outer step followed by a projection, e.g. `Projected(0.1, Box(0, 1))`.

    This is the remark after Assumption 4: on a bounded set ∇_y f(x, y*(x)) is bounded.
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
        x, state, accepted = self.inner_step.step(x, h, value, state)
        return self.onto.project(x), state, accepted

    @property
    def finds_its_size(self):
        return self.inner_step.finds_its_size


def as_outer_step(outer: Any) -> OuterStep:
    """A number is gradient descent, "auto" finds its own step, optax and OuterStep stay."""
    if isinstance(outer, OuterStep):
        return outer
    if isinstance(outer, str) and outer == "auto":
        return QuasiNewton()
    if isinstance(outer, optax.GradientTransformation | Built):
        return OptaxStep(outer)
    try:
        return GradientStep(outer)
    except TypeError:
        raise TypeError(
            f'outer must be a step size, "auto", an optax transformation or an OuterStep, '
            f"got {outer!r}."
        ) from None


__all__ = [
    "OuterStep",
    "GradientStep",
    "OptaxStep",
    "QuasiNewton",
    "ConvexSet",
    "Box",
    "Ball",
    "Projected",
    "as_outer_step",
]
