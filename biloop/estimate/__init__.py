"""From a problem to the numbers that theory and loops need: constants and step sizes."""

from biloop.estimate.assumptions import constants
from biloop.estimate.steps import StepSizes, step_sizes
from biloop.estimate.values import Estimate, Value, Values
from biloop.linear.contraction import contraction
from biloop.linear.lanczos import Bracket, Extremes, extremes

__all__ = [
    "constants",
    "step_sizes",
    "contraction",
    "extremes",
    "Estimate",
    "Value",
    "Values",
    "StepSizes",
    "Extremes",
    "Bracket",
]
