"""biloop: bilevel optimization in JAX, with loops of any length and an account of their cost.

min_x Φ(x) = f(x, y*(x))   subject to   y*(x) = argmin_y g(x, y)
"""

from biloop import data as data
from biloop import estimate as estimate
from biloop import problems as problems
from biloop import schedules as schedules
from biloop import schemes as schemes
from biloop import theory as theory
from biloop.hypergradient import AID, ITD, Exact, Hypergradient, HypergradientInfo, Warm
from biloop.inner import (
    GradientDescent,
    HeavyBall,
    InnerInfo,
    InnerSolver,
    Nesterov,
    Optax,
)
from biloop.linear import CG, Dense, LinearInfo, LinearSolver, Lineax, Neumann, Richardson
from biloop.oracles import Cost
from biloop.outer import Ball, Box, ConvexSet, GradientStep, OptaxStep, OuterStep, Projected
from biloop.problem import Problem
from biloop.progress import Progress
from biloop.results import RunFailed, Status
from biloop.solve import Run, solve
from biloop.trace import Trace

__version__ = "0.1.0"

__all__ = [
    # the problem
    "Problem",
    "Cost",
    # the N-loop
    "InnerSolver",
    "InnerInfo",
    "GradientDescent",
    "Nesterov",
    "HeavyBall",
    "Optax",
    # the Q-loop
    "LinearSolver",
    "LinearInfo",
    "Richardson",
    "CG",
    "Neumann",
    "Dense",
    "Lineax",
    # the hypergradient
    "Hypergradient",
    "HypergradientInfo",
    "Warm",
    "AID",
    "ITD",
    "Exact",
    "schemes",
    "schedules",
    # the paper's statements, and the numbers they need
    "theory",
    "estimate",
    "problems",
    "data",
    # the outer step
    "OuterStep",
    "GradientStep",
    "OptaxStep",
    "Projected",
    "ConvexSet",
    "Box",
    "Ball",
    # the run
    "solve",
    "Run",
    "Progress",
    "Trace",
    "Status",
    "RunFailed",
]
