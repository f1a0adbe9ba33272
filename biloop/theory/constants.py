"""The four numbers every statement of the paper is made of, and what a run starts from."""

import math
from dataclasses import dataclass

from biloop.theory.checks import nonnegative, positive


@dataclass(frozen=True)
class Constants:
    """Constants of a bilevel problem (Assumptions 1-4).

    g(x, ·) is μ-strongly convex                              (Assumption 1)
    ∇f and ∇g are L-Lipschitz in z = (x, y) jointly           (Assumption 2)
    ∇_x∇_y g and ∇²_y g are ρ-Lipschitz in z                  (Assumption 3)
    ‖∇_y f(x, y*(x))‖ ≤ M for every x                         (Assumption 4)
    """

    L: float
    mu: float
    rho: float
    M: float

    def __post_init__(self) -> None:
        for name in ("L", "mu"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        for name in ("rho", "M"):
            object.__setattr__(self, name, nonnegative(name, getattr(self, name)))
        if self.mu > self.L:
            raise ValueError(f"mu must be at most L, got mu = {self.mu!r} > L = {self.L!r}")

    @property
    def kappa(self) -> float:
        """Condition number of the inner problem, κ = L/μ."""
        return self.L / self.mu

    @property
    def curvature_ratio(self) -> float:
        """ρM/(Lμ): how much the change of the Hessian adds to the change of the gradient.

        The paper's factor 1 + ρ²M²/(L²μ²) is 1 + curvature_ratio².
        """
        return self.rho * self.M / (self.L * self.mu)

    @property
    def L_Phi(self) -> float:
        """Smoothness of Φ, with the term ρM/μ where the paper prints ρM²/μ. Every bound uses it.

        L_Φ = L + (2L² + ρM)/μ + (2ρLM + L³)/μ² + ρL²M/μ³ = (1 + κ)² (L + ρM/μ)

        Lemma 2 of Ji, Yang and Liang, quoted by Theorems 1-3. Per unit of x the point (x, y*(x))
        moves by at most 1 + κ, so that ∇Φ = ∇_x f − J v* changes by at most L(1+κ) through ∇_x f,
        ρ(1+κ) M/μ through J, and L (L/μ + ρM/μ²)(1+κ) through v*.
        """
        return (1.0 + self.kappa) ** 2 * (self.L + self.rho * self.M / self.mu)

    @property
    def L_Phi_printed(self) -> float:
        """Smoothness of Φ as Theorem 1 prints it: `L_Phi` + ρM(M−1)/μ.

        L_Φ = L + (2L² + ρM²)/μ + (2ρLM + L³)/μ² + ρL²M/μ³

        Theorem 1. Its units do not agree, but it bounds the smoothness for M < 1 too, because it
        is never below `L_Phi_sharp`.
        """
        L, mu, rho, M = self.L, self.mu, self.rho, self.M
        return (
            L
            + (2.0 * L**2 + rho * M**2) / mu
            + (2.0 * rho * L * M + L**3) / mu**2
            + rho * L**2 * M / mu**3
        )

    @property
    def L_Phi_sharp(self) -> float:
        """The least of the three, from the same derivation with the Euclidean length of the path.

        (1 + κ) √(1 + κ²) (L + ρM/μ)

        Not in the paper: (x, y*(x)) moves by √(1 + κ²) per unit of x, not 1 + κ. No bound uses it.
        """
        return (
            (1.0 + self.kappa)
            * math.hypot(1.0, self.kappa)
            * (self.L + self.rho * self.M / self.mu)
        )


@dataclass(frozen=True)
class Start:
    """What the bounds need to know about the first iterate. Upper bounds do as well as the values.

    gap          Δ_Φ = Φ(x_0) − min Φ
    y_distance   ‖y_0 − y*(x_0)‖, which is the paper's ‖y_0*‖ for y_0 = 0
    v_norm       ‖v_0‖, used by Theorem 1 alone, whose statement has v_0 = 0
    """

    gap: float
    y_distance: float
    v_norm: float = 0.0

    def __post_init__(self) -> None:
        for name in ("gap", "y_distance", "v_norm"):
            object.__setattr__(self, name, nonnegative(name, getattr(self, name)))
