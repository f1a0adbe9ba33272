"""The N-loop: y ≈ y*(x), by N steps on g(x, ·) from the y of the last outer step."""

from biloop.inner.base import Descent, DescentState, InnerSolver, Local
from biloop.inner.fixed_point import Anderson, FixedPoint
from biloop.inner.gradient_descent import GradientDescent, HeavyBall, Nesterov
from biloop.inner.newton_cg import NewtonCG
from biloop.inner.optax_descent import Optax
from biloop.inner.proximal import FISTA, ProximalGradient

__all__ = [
    "FISTA",
    "Anderson",
    "Descent",
    "DescentState",
    "FixedPoint",
    "GradientDescent",
    "HeavyBall",
    "InnerSolver",
    "Local",
    "Nesterov",
    "NewtonCG",
    "Optax",
    "ProximalGradient",
]
