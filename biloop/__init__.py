"""biloop: bilevel optimization in JAX, with loops of any length and an account of their cost.

min_x Φ(x) = f(x, y*(x))   subject to   y*(x) = argmin_y g(x, y)
"""

from biloop import data as data
from biloop import estimate as estimate
from biloop import problems as problems
from biloop import schedules as schedules
from biloop import schemes as schemes
from biloop import theory as theory
from biloop.comparison import Candidate, Comparison, compare
from biloop.compilation import Built
from biloop.inner import (
    Descent,
    GradientDescent,
    HeavyBall,
    InnerSolver,
    Nesterov,
    NewtonCG,
    Optax,
)
from biloop.linear import (
    CG,
    Chebyshev,
    Dense,
    Diagonal,
    Jacobi,
    LinearSolver,
    Lineax,
    Neumann,
    Preconditioner,
    Richardson,
    block_cg,
)
from biloop.loops.iteration import LoopInfo
from biloop.loops.step_size import BarzilaiBorwein
from biloop.methods import AID, ITD, Exact, Info, Method, Residuals, Response, response
from biloop.oracles import Cost
from biloop.outer import (
    Ball,
    Box,
    ConvexSet,
    GradientStep,
    OptaxStep,
    OuterStep,
    Projected,
    QuasiNewton,
)
from biloop.problem import Problem
from biloop.results import RunFailed, Status
from biloop.run.outcome import Run
from biloop.run.progress import Progress
from biloop.run.sharding import shard
from biloop.run.solve import solve
from biloop.run.trace import Trace
from biloop.schedules import Adaptive
from biloop.sweeps import Sweep, sweep

__version__ = "0.1.0"

__all__ = [
    # the problem
    "Problem",
    "shard",
    "Cost",
    # the N-loop
    "InnerSolver",
    "Descent",
    "LoopInfo",
    "GradientDescent",
    "NewtonCG",
    "Nesterov",
    "HeavyBall",
    "Optax",
    # the Q-loop
    "LinearSolver",
    "Richardson",
    "CG",
    "Chebyshev",
    "Neumann",
    "Dense",
    "Lineax",
    "Preconditioner",
    "Diagonal",
    "Jacobi",
    "block_cg",
    # the hypergradient
    "Method",
    "Info",
    "Residuals",
    "AID",
    "ITD",
    "Exact",
    "response",
    "Response",
    "schemes",
    "schedules",
    "Adaptive",
    "BarzilaiBorwein",
    # the paper's statements, and the numbers they need
    "theory",
    "estimate",
    "problems",
    "data",
    # the outer step
    "OuterStep",
    "GradientStep",
    "OptaxStep",
    "Built",
    "QuasiNewton",
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
    # many runs
    "sweep",
    "Sweep",
    "compare",
    "Candidate",
    "Comparison",
]
