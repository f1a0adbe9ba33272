"""The hypergradient: h ≈ ∇Φ(x). One family of methods per file."""

from biloop.methods.aid import AID, AIDState
from biloop.methods.barrier import Barrier, BarrierState
from biloop.methods.base import Info, Method, Residuals
from biloop.methods.closed_form import ClosedForm, ClosedFormState
from biloop.methods.derivatives import Autodiff, Damped, Derivatives, Differences, GaussNewton
from biloop.methods.evolution import Evolution, EvolutionState
from biloop.methods.exact import Exact, ExactState
from biloop.methods.growing import Growing, GrowingState
from biloop.methods.itd import ITD, ITDState
from biloop.methods.jacobian import Response, response
from biloop.methods.matrices import Matrices, MatricesState
from biloop.methods.momentum import Momentum, MomentumState
from biloop.methods.one_step import OneStep, OneStepState
from biloop.methods.penalty import Penalty, PenaltyState
from biloop.methods.sampled_aid import SampledAID, SampledAIDState
from biloop.methods.single_loop import SingleLoop, SingleLoopState
from biloop.methods.tasks import Tasks, TasksState

__all__ = [
    "AID",
    "AIDState",
    "Autodiff",
    "Barrier",
    "BarrierState",
    "ClosedForm",
    "ClosedFormState",
    "Damped",
    "Derivatives",
    "Differences",
    "Evolution",
    "EvolutionState",
    "Exact",
    "ExactState",
    "GaussNewton",
    "Growing",
    "GrowingState",
    "ITD",
    "ITDState",
    "Info",
    "Matrices",
    "MatricesState",
    "Method",
    "Momentum",
    "MomentumState",
    "OneStep",
    "OneStepState",
    "Penalty",
    "PenaltyState",
    "Residuals",
    "Response",
    "SampledAID",
    "SampledAIDState",
    "SingleLoop",
    "SingleLoopState",
    "Tasks",
    "TasksState",
    "response",
]
