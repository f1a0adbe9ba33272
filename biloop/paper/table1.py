"""Table 1: exponents of κ of the AID schemes, from the formulas and measured on quadratics."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from biloop import theory
from biloop.paper import costs
from biloop.paper.costs import CRITERIA, Measured, Scheme, accurate_loop
from biloop.paper.exponents import Exponent
from biloop.paper.target import Options
from biloop.paper.work import Work
from biloop.schemes import loop_size

BA, PRINTED_BA = "BA", "BA, Q as printed"
QUOTED = (BA, "AID-BiO")
SCHEMES: Mapping[str, Callable[[float], Scheme]] = {
    "N-Q-loop AID": lambda kappa: costs.aid(loop_size(kappa), loop_size(kappa)),
    "Q-loop AID": lambda kappa: costs.aid(1, loop_size(kappa)),
    "N-loop AID": lambda kappa: costs.aid(loop_size(kappa), 1),
    "No-loop AID": lambda kappa: costs.aid(1, 1),
    BA: lambda kappa: costs.ba_scheme(accurate_loop(kappa), 100_000),
}


@dataclass(frozen=True, eq=False)
class Found:
    """The exponents of the table, and the costs behind the measured ones."""

    exponents: tuple[Exponent, ...]
    measured: Mapping[str, Measured]
    printed_ba: Measured
    """BA with the Q of Table 1."""
    seeds: tuple[int, ...]

    @property
    def kappas(self) -> tuple[float, ...]:
        """The κ of the quadratics."""
        return self.printed_ba.kappas

    def formula(self, algorithm: str, quantity: str) -> float:
        """The exponent that the paper's formulas give, ρ > 0."""
        cells = {(each.algorithm, each.quantity): each.formula for each in self.exponents}
        return cells[algorithm, quantity]

    def ratio(self, less: str, more: str, criterion: str, quantity: str) -> float:
        """A measured cost at the largest κ over another."""
        top, bottom = (self.measured[n].typical(criterion, quantity)[-1] for n in (less, more))
        return float(top / bottom)

    @property
    def ba_misses(self) -> tuple[float, ...]:
        """The κ at which BA with the printed Q did not bring the running mean to ε."""
        steps = zip(self.kappas, self.printed_ba.gradients["mean"], strict=True)
        return tuple(kappa for kappa, K in steps if np.isinf(K).any())


def run(options: Options, work: Work) -> Found:
    """Race every scheme, and BA with the Q of Table 1."""
    measured = {name: costs.measure(work, name, each, options) for name, each in SCHEMES.items()}
    printed_ba = costs.measure(
        work, PRINTED_BA, lambda kappa: costs.ba_scheme(loop_size(kappa), 2_000), options
    )
    return Found(exponents(measured), measured, printed_ba, costs.problem_seeds(options))


def exponents(measured: Mapping[str, Measured]) -> tuple[Exponent, ...]:
    """One for each algorithm and quantity: printed, from the formulas, and measured."""
    curved, flat = (
        {(e.algorithm, e.quantity): e for e in theory.table1(rho=rho) if e.variable == "kappa"}
        for rho in (1.0, 0.0)
    )
    return tuple(
        Exponent(
            algorithm=algorithm,
            quantity=quantity,
            printed=entry.printed,
            formula=entry.fitted,
            formula_rho_0=None if algorithm in QUOTED else flat[algorithm, quantity].fitted,
            measured={c: measured[algorithm].exponent(c, quantity) for c in CRITERIA}
            if algorithm in measured
            else {},
        )
        for (algorithm, quantity), entry in curved.items()
        if quantity != "K"
    )
