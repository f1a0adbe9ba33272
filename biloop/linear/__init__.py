"""The Q-loop: v ≈ H⁻¹b. One method per file."""

from biloop.linear.base import LinearInfo, LinearSolver
from biloop.linear.cg import CG
from biloop.linear.dense import Dense
from biloop.linear.lineax import Lineax
from biloop.linear.neumann import Neumann
from biloop.linear.richardson import Richardson

__all__ = ["CG", "Dense", "LinearInfo", "LinearSolver", "Lineax", "Neumann", "Richardson"]
