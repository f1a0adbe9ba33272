"""A nonconvex outer objective with known constants: a robust loss on top of a quadratic."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from biloop.problem import Problem
from biloop.problems.inputs import Matrix, Vector
from biloop.problems.quadratics import quadratic
from biloop.theory import Constants

# The largest value of |ψ'| = 2r / (1 + r²)², where r² = 1/3.
SLOPE = 3 * np.sqrt(3) / 8


@dataclass(frozen=True, eq=False)
class RobustQuadratic:
    """g = ½yᵀAy − yᵀ(Bx + c),  f = m Σ_j ψ(y_j − t_j) + ½γ‖x‖²,  ψ(r) = r² / (1 + r²).

    ψ (Geman and McClure) is flat far from its minimum, so Φ is not convex. ψ″ lies in [−½, 2] and
    |ψ'| ≤ 3√3/8, so with m = L/2 and γ = L/10 all constants hold everywhere: L is that of g, ρ = 0,
    and M = m √q 3√3/8 is attained.
    """

    A: Matrix
    B: Matrix
    c: Vector
    t: Vector
    m: float
    gamma: float
    constants: Constants
    problem: Problem
    x0: Float[Array, " p"]
    y0: Float[Array, " q"]

    def minimiser(self, x: Vector) -> Vector:
        """y*(x) = A⁻¹(Bx + c)."""
        return np.linalg.solve(self.A, self.B @ np.asarray(x, np.float64) + self.c)

    def adjoint(self, x: Vector) -> Vector:
        """v*(x) = m A⁻¹ ψ'(y*(x) − t)."""
        r = self.minimiser(x) - self.t
        return np.linalg.solve(self.A, self.m * 2 * r / (1 + r**2) ** 2)

    def value(self, x: Vector) -> float:
        """Φ(x) = f(x, y*(x))."""
        r, x = self.minimiser(x) - self.t, np.asarray(x, np.float64)
        return float(self.m * np.sum(r**2 / (1 + r**2)) + 0.5 * self.gamma * x @ x)

    def hypergradient(self, x: Vector) -> Vector:
        """∇Φ(x) = γx + Bᵀv*(x), as ∇_x∇_y g = −Bᵀ."""
        return self.gamma * np.asarray(x, np.float64) + self.B.T @ self.adjoint(x)


def robust_quadratic(
    kappa: float,
    *,
    L: float = 1.0,
    p: int = 4,
    q: int = 6,
    seed: int = 0,
    dtype: str | None = None,
) -> RobustQuadratic:
    """A random instance with κ = L/μ; g is that of `quadratic` with the same arguments.

    Parameters
    ----------
    kappa, L, p, q, seed, dtype
        As for `quadratic`.

    Returns
    -------
    RobustQuadratic
        `problem`, `x0`, `y0` and `constants`, which hold everywhere.

    Examples
    --------
    >>> bl.problems.robust_quadratic(10.0, p=2).constants.rho
    0.0
    """
    base = quadratic(kappa, L=L, p=p, q=q, seed=seed, dtype=dtype)
    m, gamma = L / 2, L / 10
    rng = np.random.default_rng(seed)
    # Targets of a reachable y and noise, so that some residuals lie on either side of 1/√3.
    t = base.minimiser(rng.normal(size=p)) + rng.normal(size=q)
    outer = {"t": t, "m": m, "gamma": gamma}
    arrays = {name: jnp.asarray(value, dtype or float) for name, value in outer.items()}
    return RobustQuadratic(
        A=base.A,
        B=base.B,
        c=base.c,
        t=t,
        m=m,
        gamma=gamma,
        constants=Constants(L, L / kappa, 0.0, m * np.sqrt(q) * SLOPE),
        problem=Problem(base.problem.inner, _outer, base.problem.inner_data, (arrays,)),
        x0=base.x0,
        y0=base.y0,
    )


def _outer(x: Array, y: Array, d: PyTree) -> Array:
    r = (y - d["t"]) ** 2
    return d["m"] * jnp.sum(r / (1 + r)) + 0.5 * d["gamma"] * jnp.sum(x**2)
