"""The hypergradient: h ≈ ∇Φ(x). One method per file."""

from biloop.methods.aid import AID
from biloop.methods.base import Hypergradient, HypergradientInfo, Warm
from biloop.methods.exact import Exact
from biloop.methods.itd import ITD
from biloop.methods.jacobian import Response, response

__all__ = [
    "AID",
    "ITD",
    "Exact",
    "Hypergradient",
    "HypergradientInfo",
    "Response",
    "Warm",
    "response",
]
