"""The Q-loop: v ≈ H⁻¹b. One method per file."""

from biloop.linear.base import LinearSolver
from biloop.linear.block import block_cg
from biloop.linear.cg import CG
from biloop.linear.chebyshev import Chebyshev
from biloop.linear.dense import Dense
from biloop.linear.lineax import Lineax
from biloop.linear.neumann import Neumann
from biloop.linear.preconditioning import Diagonal, Jacobi, Preconditioner
from biloop.linear.richardson import Richardson

__all__ = [
    "CG",
    "Chebyshev",
    "Dense",
    "Diagonal",
    "Jacobi",
    "LinearSolver",
    "Lineax",
    "Neumann",
    "Preconditioner",
    "Richardson",
    "block_cg",
]
