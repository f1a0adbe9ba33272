"""The hypergradient: h ≈ ∇Φ(x). One family of methods per file."""

from biloop.methods.aid import AID, AIDState
from biloop.methods.base import Info, Method, Residuals
from biloop.methods.exact import Exact, ExactState
from biloop.methods.itd import ITD, ITDState
from biloop.methods.jacobian import Response, response

__all__ = [
    "AID",
    "AIDState",
    "Exact",
    "ExactState",
    "ITD",
    "ITDState",
    "Info",
    "Method",
    "Residuals",
    "Response",
    "response",
]
