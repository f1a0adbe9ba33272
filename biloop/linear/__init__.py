"""The Q-loop: v ≈ H⁻¹b. One method per file."""

from biloop.linear.base import LinearSolver
from biloop.linear.block import block_cg
from biloop.linear.cg import CG
from biloop.linear.chebyshev import Chebyshev
from biloop.linear.dense import Dense
from biloop.linear.gmres import GMRES
from biloop.linear.lineax import Lineax
from biloop.linear.neumann import Neumann
from biloop.linear.normal_equations import NormalEquations
from biloop.linear.preconditioning import Diagonal, Jacobi, Preconditioner
from biloop.linear.random_neumann import RandomNeumann
from biloop.linear.richardson import Richardson
from biloop.linear.stepped import Stepped

__all__ = [
    "CG",
    "GMRES",
    "Chebyshev",
    "Dense",
    "Diagonal",
    "Jacobi",
    "LinearSolver",
    "Lineax",
    "Neumann",
    "NormalEquations",
    "Preconditioner",
    "RandomNeumann",
    "Richardson",
    "Stepped",
    "block_cg",
]
