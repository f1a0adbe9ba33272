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
    FISTA,
    Anderson,
    Descent,
    FixedPoint,
    GradientDescent,
    HeavyBall,
    InnerSolver,
    Nesterov,
    NewtonCG,
    Optax,
    ProximalGradient,
)
from biloop.inner.solution_maps import SolutionMap, argmin, equilibrium, implicit
from biloop.linear import (
    CG,
    GMRES,
    Chebyshev,
    Dense,
    Diagonal,
    Jacobi,
    LinearSolver,
    Lineax,
    Neumann,
    NormalEquations,
    Preconditioner,
    RandomNeumann,
    Richardson,
    block_cg,
)
from biloop.loops.iteration import LoopInfo
from biloop.loops.results import RunFailed, Status
from biloop.loops.step_size import BarzilaiBorwein
from biloop.methods import (
    AID,
    ITD,
    Autodiff,
    Barrier,
    ClosedForm,
    Damped,
    Differences,
    Evolution,
    Exact,
    GaussNewton,
    Growing,
    Info,
    Matrices,
    Method,
    OneStep,
    Penalty,
    Residuals,
    Response,
    SampledAID,
    SingleLoop,
    Tasks,
    response,
)
from biloop.oracles import Cost, SampleCount
from biloop.outer import (
    Ball,
    Box,
    ConvexSet,
    GradientStep,
    OptaxStep,
    OuterStep,
    Projected,
    QuasiNewton,
    ScheduledStep,
)
from biloop.problem import Composite, Problem, Stream
from biloop.problem import prox as prox
from biloop.run.measurements import Measurement
from biloop.run.outcome import Best, Run
from biloop.run.progress import Progress
from biloop.run.sharding import shard
from biloop.run.solve import solve
from biloop.run.trace import Trace
from biloop.samples import All, Blocks, Sampler, Samples, Uniform
from biloop.samples.estimators import (
    Estimator,
    MovingAverage,
    Plain,
    Recursive,
    Saga,
    Storm,
    ZeroSarah,
)
from biloop.schedules import Adaptive
from biloop.sweeps import Sweep, sweep

__version__ = "0.2.0"

__all__ = [
    # the problem
    "Problem",
    "Composite",
    "Stream",
    "shard",
    "Cost",
    "prox",
    # y*(x) as a function
    "argmin",
    "equilibrium",
    "implicit",
    "SolutionMap",
    "SampleCount",
    # which rows a step sees, and what it makes of them
    "Samples",
    "Sampler",
    "All",
    "Blocks",
    "Uniform",
    "Estimator",
    "Plain",
    "MovingAverage",
    "Storm",
    "Recursive",
    "Saga",
    "ZeroSarah",
    # the N-loop
    "InnerSolver",
    "Descent",
    "LoopInfo",
    "GradientDescent",
    "NewtonCG",
    "Nesterov",
    "HeavyBall",
    "ProximalGradient",
    "FISTA",
    "FixedPoint",
    "Anderson",
    "Optax",
    # the Q-loop
    "LinearSolver",
    "Richardson",
    "CG",
    "Chebyshev",
    "Neumann",
    "GMRES",
    "NormalEquations",
    "Dense",
    "Lineax",
    "RandomNeumann",
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
    "SingleLoop",
    "SampledAID",
    "Growing",
    "Penalty",
    "Barrier",
    "Evolution",
    "Matrices",
    "Tasks",
    "ClosedForm",
    "OneStep",
    "Autodiff",
    "Damped",
    "GaussNewton",
    "Differences",
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
    "ScheduledStep",
    "Built",
    "QuasiNewton",
    "Projected",
    "ConvexSet",
    "Box",
    "Ball",
    # the run
    "solve",
    "Run",
    "Best",
    "Progress",
    "Trace",
    "Measurement",
    "Status",
    "RunFailed",
    # many runs
    "sweep",
    "Sweep",
    "compare",
    "Candidate",
    "Comparison",
]
