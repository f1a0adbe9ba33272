"""Table 2: exponents of κ of the ITD schemes and of the lower bound."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from biloop import theory
from biloop.paper import costs
from biloop.paper.costs import ACCURACY, CRITERIA, Measured, accurate_loop, geometric_mean
from biloop.paper.exponents import Exponent
from biloop.paper.target import Options
from biloop.paper.work import Work
from biloop.problems import worst_case
from biloop.theory.tables import unit_constants

N_N_LOOP, NO_LOOP, LOWER_BOUND = "N-N-loop ITD", "No-loop ITD", "Lower bound"
QUOTED = ("ITD-BiO",)


@dataclass(frozen=True, eq=False)
class Found:
    """The exponents of the table, the costs of both loops, and where N = 1 stops at each κ."""

    exponents: tuple[Exponent, ...]
    n_n_loop: Measured
    no_loop: Measured
    floors: Mapping[str, np.ndarray]
    seeds: tuple[int, ...]


def run(options: Options, work: Work) -> Found:
    """Race the N-N-loop; let the No-loop run to where it stops."""
    n_n_loop = costs.measure(
        work, N_N_LOOP, lambda kappa: costs.itd(accurate_loop(kappa), 100_000), options
    )
    no_loop = costs.measure(work, NO_LOOP, lambda kappa: costs.itd(1, 10_000), options)
    floors = {
        # left is ‖∇Φ‖²/ε, and ε is a part of L (Φ(x_0) − min Φ).
        "quadratics": geometric_mean(no_loop.left) * ACCURACY,
        "worst case": np.array(
            [worst_case(1.0, 1.0 / kappa, 1.0).floor(1, 1.0) for kappa in n_n_loop.kappas]
        ),
    }
    return Found(
        exponents({N_N_LOOP: n_n_loop, NO_LOOP: no_loop}, floors),
        n_n_loop,
        no_loop,
        floors,
        costs.problem_seeds(options),
    )


def exponents(
    measured: Mapping[str, Measured], floors: Mapping[str, np.ndarray]
) -> tuple[Exponent, ...]:
    """One for each algorithm and quantity: printed, from the formulas, and measured."""
    flat = {(e.algorithm, e.quantity): e.fitted for e in theory.table2(rho=0.0)}
    kappas = measured[N_N_LOOP].kappas
    stops = {NO_LOOP: floors["quadratics"], LOWER_BOUND: floors["worst case"]}

    def found(algorithm: str, quantity: str) -> dict[str, float]:
        if quantity == "floor":
            return {"mean": theory.exponent(kappas, stops[algorithm].tolist())}
        if algorithm in measured and quantity in ("Gc", "MV"):
            return {c: measured[algorithm].exponent(c, quantity) for c in CRITERIA}
        return {}

    return tuple(
        Exponent(
            algorithm=e.algorithm,
            quantity=e.quantity,
            printed=e.printed,
            formula=e.fitted,
            formula_rho_0=None if e.algorithm in QUOTED else flat[e.algorithm, e.quantity],
            measured=found(e.algorithm, e.quantity),
            lower=e.algorithm == LOWER_BOUND,
        )
        for e in theory.table2()
        if e.quantity != "K"
    )


def floors_of_loop(kappa: float, eps: float) -> dict[str, dict[int, float]]:
    """The floor of Theorem 3 over ε with α = 1/(2L), by the length of the loop and its constant c.

    N = ⌈c κ ln κ⌉, as Table 2 prints, and N = ⌈c κ ln(κ/ε)⌉, as in Corollary 5; c = 1, 2, 3
    """

    def over_eps(N: float) -> float:
        return theory.floor_theorem3(unit_constants(kappa), math.ceil(N), 0.5) / eps

    lengths = {"κ ln κ": kappa * math.log(kappa), "κ ln(κ/ε)": kappa * math.log(kappa / eps)}
    return {name: {c: over_eps(c * N) for c in (1, 2, 3)} for name, N in lengths.items()}
