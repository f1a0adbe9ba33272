"""What the schemes of Tables 1 and 2 cost on quadratics of growing κ, measured."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array

from biloop.methods import Method
from biloop.paper.race import Finish, field, race
from biloop.paper.target import Options
from biloop.paper.work import Arrays, Work
from biloop.schedules import Constant
from biloop.schemes import ba, n_n_loop, n_q_loop
from biloop.theory import exponent
from biloop.theory.complexity import ba_inner_steps

ACCURACY = 1e-4
KAPPAS = (4.0, 8.0, 16.0, 32.0, 64.0)
QUICK_KAPPAS = (4.0, 8.0, 16.0)
BETAS = tuple(2.0 ** (3 - i / 2) for i in range(31))  # 8 down to 2⁻¹²
ETAS = tuple(2.0**-i for i in range(9))  # only for the schemes with Q = 1; otherwise η = 1/L
CRITERIA = ("mean", "first")


@dataclass(frozen=True)
class Scheme:
    """A scheme at one κ: its method as a function of η, and what its outer steps cost."""

    N: int | None
    Q: int | None
    method: Callable[[Array], Method]
    etas: Sequence[float]
    cost: Callable[[float], tuple[float, float]]
    """Gradients and products of K outer steps, as the paper counts them; K may be ∞."""
    most: int
    """Outer steps after which the search is given up."""


@dataclass(frozen=True, eq=False)
class Measured:
    """Gradients and products to ε by criterion, of shape (κ, seeds); ∞ where ε was not reached."""

    kappas: tuple[float, ...]
    gradients: dict[str, np.ndarray]
    products: dict[str, np.ndarray]
    left: np.ndarray

    def typical(self, criterion: str, quantity: str) -> np.ndarray:
        """The geometric mean over the seeds for each κ: of Gc, of MV, or the sum of both."""
        means = {
            name: geometric_mean(values[criterion])
            for name, values in (("Gc", self.gradients), ("MV", self.products))
        }
        return means["Gc"] + means["MV"] if quantity == "Gc+MV" else means[quantity]

    def exponent(self, criterion: str, quantity: str) -> float:
        """The power of κ; ∞ where ε was not reached."""
        return exponent(self.kappas, self.typical(criterion, quantity).tolist())


def geometric_mean(values: np.ndarray) -> np.ndarray:
    """The mean over the last axis of what differs by factors."""
    return np.exp(np.mean(np.log(values), axis=-1))


def aid(N: int, Q: int) -> Scheme:
    """AID with warm starts (Algorithm 1)."""
    return Scheme(
        N,
        Q,
        Partial(_aid, jnp.asarray(N), jnp.asarray(Q)),
        ETAS if Q == 1 else (1.0,),
        lambda K: (K * (N + 2), K * (Q + 1)),
        most=100_000,
    )


def ba_scheme(Q: int, most: int) -> Scheme:
    """BA: N_k = ⌈(k+1)^¼/2⌉, y warm-started, v from zero."""
    return Scheme(
        None,
        Q,
        Partial(_ba, Q),
        (1.0,),
        lambda K: (_ba_gradients(K), K * (Q + 1)),
        most,
    )


def itd(N: int, most: int) -> Scheme:
    """ITD with warm-started y (Algorithm 2)."""
    return Scheme(N, None, Partial(_itd, N), (1.0,), lambda K: (K * (N + 2), K * 2 * N), most)


def accurate_loop(kappa: float) -> int:
    """⌈κ ln(κ/ε)⌉ with the relative accuracy for ε: what a loop that starts from zero needs."""
    return math.ceil(kappa * math.log(kappa / ACCURACY))


def measure(work: Work, name: str, scheme: Callable[[float], Scheme], options: Options) -> Measured:
    """Race a scheme at every κ: one unit of work."""
    kappas = QUICK_KAPPAS if options.quick else KAPPAS
    seeds = problem_seeds(options)
    schemes = {kappa: scheme(kappa) for kappa in kappas}
    settings = {
        "kappas": kappas,
        "seeds": seeds,
        "accuracy": ACCURACY,
        "betas": BETAS,
        "loops": [(each.N, each.Q, each.etas, each.most) for each in schemes.values()],
    }

    def compute() -> Arrays:
        ends = [
            race(field(kappa, seeds, ACCURACY), each.method, each.etas, BETAS, each.most)
            for kappa, each in schemes.items()
        ]
        return {name: np.stack([getattr(end, name) for end in ends]) for name in Finish._fields}

    found = work.unit(name, settings, compute)
    costs = {
        criterion: np.array(
            [
                [scheme.cost(K) for K in row]
                for scheme, row in zip(schemes.values(), found[criterion], strict=True)
            ],
            float,
        )
        for criterion in CRITERIA
    }
    return Measured(
        tuple(kappas),
        {criterion: cost[..., 0] for criterion, cost in costs.items()},
        {criterion: cost[..., 1] for criterion, cost in costs.items()},
        found["left"],
    )


def problem_seeds(options: Options) -> tuple[int, ...]:
    """Random problems are cheap: a quick run takes three of them."""
    return (0, 1, 2) if options.quick and options.seeds is None else options.chosen_seeds()


def _aid(N: Array, Q: Array, eta: Any) -> Method:
    return n_q_loop(Constant(N), Constant(Q), inner_step=1.0, linear_step=eta)


def _ba_gradients(K: float) -> float:
    return ba_inner_steps(int(K)) + 2 * K if math.isfinite(K) else K


def _ba(Q: int, eta: Any) -> Method:
    return ba(Q, inner_step=1.0, linear_step=eta)


def _itd(N: int, eta: Array) -> Method:
    return n_n_loop(N, inner_step=1.0)
