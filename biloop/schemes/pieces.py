"""The loops that schemes are made of, by the names that their arguments have there.

An N that is no number is refused as N, not as the `steps` that it becomes.
"""

from typing import Any

from biloop.inner import GradientDescent
from biloop.linear import CG, Neumann, RandomNeumann, Richardson
from biloop.loops.step_size import as_step_size
from biloop.schedules import as_steps
from biloop.schedules.arguments import as_length, positive


def descent(inner_step: Any, N: Any, tolerance: Any = None, name: str = "N") -> GradientDescent:
    """N steps of gradient descent."""
    size, steps = as_step_size(inner_step, "inner_step"), as_steps(1, name)(N)
    return GradientDescent(step_size=size, steps=steps, tolerance=tolerance)


def richardson(linear_step: Any, Q: Any) -> Richardson:
    """Q steps on the linear system."""
    return Richardson(as_step_size(linear_step, "linear_step"), as_steps(0, "Q")(Q))


def conjugate_gradients(Q: Any, tolerance: Any = None, name: str = "Q") -> CG:
    """Q steps of conjugate gradients."""
    return CG(as_steps(1, name)(Q), tolerance)


def neumann(linear_step: Any, Q: Any) -> Neumann:
    """Q + 1 terms of the Neumann series."""
    return Neumann(positive("linear_step")(linear_step), as_length("Q", 0)(Q) + 1)


def random_neumann(linear_step: Any, terms: Any) -> RandomNeumann:
    """One of the terms by chance."""
    return RandomNeumann(positive("linear_step")(linear_step), terms)
