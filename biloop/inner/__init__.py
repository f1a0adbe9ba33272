"""The N-loop: y ≈ y*(x), by N steps on g(x, ·) from the y of the last outer step."""

from biloop.inner.base import Descent, DescentState, InnerSolver
from biloop.inner.gradient_descent import GradientDescent, HeavyBall, Nesterov
from biloop.inner.newton_cg import NewtonCG
from biloop.inner.optax_descent import Optax

__all__ = [
    "Descent",
    "DescentState",
    "GradientDescent",
    "HeavyBall",
    "InnerSolver",
    "Nesterov",
    "NewtonCG",
    "Optax",
]
