"""The hypergradient: h ≈ ∇Φ(x). One method per file."""

from biloop.hypergradient.aid import AID
from biloop.hypergradient.base import Hypergradient, HypergradientInfo, Warm
from biloop.hypergradient.exact import Exact
from biloop.hypergradient.itd import ITD
from biloop.hypergradient.response import Response, response

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
