"""Random quadratics with a chosen condition number: everything in closed form, ρ = 0."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from numpy.typing import NDArray

from biloop.problem import Problem
from biloop.problems.matrices import definite, norm
from biloop.theory import Constants

Vector = NDArray[np.floating]
Matrix = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Quadratic:
    """g = ½yᵀAy − yᵀ(Bx + c),  f = ½(y − t)ᵀD(y − t) + ½xᵀEx.

    `constants` has L, μ and ρ = 0 exactly. ‖∇_y f(x, y*(x))‖ is not bounded over all x; its M is an
    upper bound over the ball ‖x‖ ≤ `radius`.
    """

    A: Matrix
    B: Matrix
    c: Vector
    D: Matrix
    t: Vector
    E: Matrix
    radius: float
    constants: Constants
    problem: Problem
    x0: Float[Array, " p"]
    y0: Float[Array, " q"]

    def minimiser(self, x: Vector) -> Vector:
        """y*(x) = A⁻¹(Bx + c)."""
        return np.linalg.solve(self.A, self.B @ np.asarray(x, np.float64) + self.c)

    def adjoint(self, x: Vector) -> Vector:
        """v*(x) = A⁻¹D(y*(x) − t)."""
        return np.linalg.solve(self.A, self.D @ (self.minimiser(x) - self.t))

    def value(self, x: Vector) -> float:
        """Φ(x) = f(x, y*(x))."""
        x = np.asarray(x, np.float64)
        r = self.minimiser(x) - self.t
        return float(0.5 * r @ self.D @ r + 0.5 * x @ self.E @ x)

    def hypergradient(self, x: Vector) -> Vector:
        """∇Φ(x) = Ex + Bᵀv*(x), as ∇_x∇_y g = −Bᵀ."""
        return self.E @ np.asarray(x, np.float64) + self.B.T @ self.adjoint(x)

    def solution(self) -> Vector:
        """The minimiser of Φ: (E + GᵀDG) x = GᵀD(t − A⁻¹c) with G = A⁻¹B."""
        G, y = np.linalg.solve(self.A, self.B), np.linalg.solve(self.A, self.c)
        return np.linalg.solve(self.E + G.T @ self.D @ G, G.T @ self.D @ (self.t - y))


def quadratic(
    kappa: float,
    *,
    L: float = 1.0,
    p: int = 4,
    q: int = 6,
    radius: float = 10.0,
    seed: int = 0,
    dtype: str | None = None,
) -> Quadratic:
    """A random quadratic with κ = L/μ for the joint L of Assumption 2; p = dim x, q = dim y.

    A has eigenvalues from μ to 0.9L + 0.1μ, spaced geometrically. B is scaled so that the joint
    Hessian K of g has norm exactly L:

        K = [[0, −Bᵀ], [−B, A]] ≼ L   ⟺   BBᵀ/L ≼ L − A   ⟺   ‖(L − A)^{−½}B‖² ≤ L

    (Schur complement), and K ≽ −L follows, as L + A ≽ L − A. With κ = 1 this leaves B = 0.

    Parameters
    ----------
    kappa : number
        κ, at least 1.
    L : number
        Of Assumption 2.
    p, q : int
        The dimensions of x and y.
    radius : number
        Of the ball of x for which `constants.M` holds.
    seed : int
        Of what is random.
    dtype : str, optional
        "float32" or "float64"; by default what JAX has.

    Returns
    -------
    Quadratic
        `problem`, `x0`, `y0`, `constants`, and y*(x), Φ, ∇Φ in closed form.

    Examples
    --------
    >>> found = bl.problems.quadratic(10.0, p=2, q=3)
    >>> print(f"{found.constants.L / found.constants.mu:.2f}", found.y0.shape)
    10.00 (3,)
    """
    if not 1 < kappa < np.inf:
        raise ValueError(f"kappa must be finite and greater than 1, got {kappa}.")
    if not 0 < L < np.inf:
        raise ValueError(f"L must be a finite number greater than 0, got {L}.")
    if p < 1 or q < 1:
        raise ValueError(f"p and q must be at least 1, got p={p}, q={q}.")
    if not radius >= 1:
        raise ValueError(f"radius must be at least 1, the norm of x0, got {radius}.")
    rng = np.random.default_rng(seed)
    mu = L / kappa

    U, spectrum = definite(rng, q, mu, 0.9 * L + 0.1 * mu)
    A = (U * spectrum) @ U.T
    B = rng.normal(size=(q, p))
    B *= np.sqrt(L) / norm((U / np.sqrt(L - spectrum)) @ U.T @ B)
    c, t = rng.normal(size=(2, q)) / np.sqrt(q)
    D, E = ((V * s) @ V.T for V, s in (definite(rng, n, 0.1 * L, L) for n in (q, p)))

    offset = D @ (np.linalg.solve(A, c) - t)
    M = norm(D @ np.linalg.solve(A, B)) * radius + float(np.linalg.norm(offset))
    x0 = rng.normal(size=p)
    arrays = {
        name: jnp.asarray(value, dtype or float)
        for name, value in {"A": A, "B": B, "c": c, "D": D, "t": t, "E": E}.items()
    }
    return Quadratic(
        A=A,
        B=B,
        c=c,
        D=D,
        t=t,
        E=E,
        radius=radius,
        constants=Constants(L, mu, 0.0, M),
        problem=Problem(_inner, _outer, inner_data=(arrays,), outer_data=(arrays,)),
        x0=jnp.asarray(x0 / np.linalg.norm(x0), dtype or float),
        y0=jnp.zeros(q, dtype or float),
    )


def _inner(x: Array, y: Array, d: PyTree) -> Array:
    return 0.5 * y @ (d["A"] @ y) - y @ (d["B"] @ x + d["c"])


def _outer(x: Array, y: Array, d: PyTree) -> Array:
    r = y - d["t"]
    return 0.5 * r @ (d["D"] @ r) + 0.5 * x @ (d["E"] @ x)
