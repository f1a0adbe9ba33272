"""Tables 1 and 2 of the paper as data: each printed exponent beside the one its formula gives."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from biloop.theory import lower_bound
from biloop.theory.complexity import SCHEMES, Complexity
from biloop.theory.constants import Constants, Start
from biloop.theory.itd import corollary6

KAPPAS: tuple[float, ...] = tuple(2.0**e for e in range(10, 17))
EPSILONS: tuple[float, ...] = tuple(10.0**-e for e in range(2, 9))


@dataclass(frozen=True)
class Entry:
    """One exponent of a table: quantity ~ variable^exponent.

    `variable` is "kappa" or "1/eps"; `printed` is None where the paper prints none; `fitted` is ∞
    where the quantity is infinite, which the paper writes N/A.
    """

    algorithm: str
    quantity: str
    variable: str
    printed: float | None
    fitted: float


def exponent(variable: Sequence[float], quantity: Sequence[float]) -> float:
    """Least-squares slope of ln quantity against ln variable; ∞ if some quantity is infinite."""
    if not all(math.isfinite(value) for value in quantity):
        return math.inf
    return float(np.polyfit(np.log(variable), np.log(quantity), 1)[0])


def unit_constants(kappa: float, rho: float = 1.0) -> Constants:
    """The family over which exponents are fitted: L = M = 1, μ = 1/κ and a fixed ρ."""
    return Constants(1.0, 1.0 / kappa, rho, 1.0)


def table1(
    rho: float = 1.0, eps: float = 1e-2, kappas: Sequence[float] = KAPPAS
) -> tuple[Entry, ...]:
    """Table 1: the AID schemes, BA and AID-BiO. K is printed in the proofs of Corollaries 1-4.

    Exponents of κ at a fixed ε, and of 1/ε at the smallest κ. Logarithms are not removed before
    fitting.
    """
    printed = {
        "BA": (None, 5.0, 5.0, 1.25),
        "AID-BiO": (None, 4.0, 4.0, 1.0),
        "N-Q-loop AID": (3.0, 4.0, 4.0, 1.0),
        "Q-loop AID": (5.0, 5.0, 6.0, 1.0),
        "N-loop AID": (4.0, 5.0, 4.0, 1.0),
        "No-loop AID": (6.0, 6.0, 6.0, 1.0),
    }
    entries: list[Entry] = []
    for algorithm, (K, gradients, products, in_eps) in printed.items():
        costs = _costs(algorithm, rho, eps, kappas)
        entries += _cost_entries(algorithm, kappas, costs, (K, gradients, products))
        c = unit_constants(kappas[0], rho)
        by_eps = [SCHEMES[algorithm](c, _START, each).gradients for each in EPSILONS]
        slope = exponent([1.0 / each for each in EPSILONS], by_eps)
        entries.append(Entry(algorithm, "Gc", "1/eps", in_eps, slope))
    return tuple(entries)


def table2(
    rho: float = 1.0, eps: float = 1e-2, kappas: Sequence[float] = KAPPAS
) -> tuple[Entry, ...]:
    """Table 2: the ITD schemes and the lower bound.

    "rate" is the coefficient of 1/K in the bound and "floor" what is left of it as K → ∞.
    """
    entries: list[Entry] = []
    for algorithm, in_kappa in (
        ("ITD-BiO", (None, 4.0, 4.0)),
        ("N-N-loop ITD", (3.0, 4.0, 4.0)),
        ("No-loop ITD", (None, None, None)),
    ):
        costs = _costs(algorithm, rho, eps, kappas)
        entries += _cost_entries(algorithm, kappas, costs, in_kappa)

    def fit(algorithm: str, quantity: str, printed: float, value: Callable[[float], float]) -> None:
        slope = exponent(kappas, [value(kappa) for kappa in kappas])
        entries.append(Entry(algorithm, quantity, "kappa", printed, slope))

    def rate(algorithm: str, kappa: float) -> float:
        certificate = SCHEMES[algorithm](unit_constants(kappa, rho), _START, eps).certificate
        assert certificate is not None
        return certificate.gap_term + certificate.start_term

    fit("N-N-loop ITD", "rate", 3.0, lambda kappa: rate("N-N-loop ITD", kappa))
    fit("No-loop ITD", "rate", 3.0, lambda kappa: rate("No-loop ITD", kappa))

    def no_loop_floor(kappa: float) -> float:
        return corollary6(unit_constants(kappa, rho), _START).floor

    def worst_case_floor(kappa: float) -> float:
        return lower_bound.floor(unit_constants(kappa), N=1, alpha=1.0)

    fit("No-loop ITD", "floor", 3.0, no_loop_floor)
    fit("Lower bound", "floor", 2.0, worst_case_floor)
    return tuple(entries)


_START = Start(gap=1.0, y_distance=1.0)


def _costs(algorithm: str, rho: float, eps: float, kappas: Sequence[float]) -> list[Complexity]:
    return [SCHEMES[algorithm](unit_constants(kappa, rho), _START, eps) for kappa in kappas]


def _cost_entries(
    algorithm: str,
    kappas: Sequence[float],
    costs: Sequence[Complexity],
    printed: tuple[float | None, float | None, float | None],
) -> list[Entry]:
    return [
        Entry(algorithm, "K", "kappa", printed[0], exponent(kappas, [c.K for c in costs])),
        Entry(algorithm, "Gc", "kappa", printed[1], exponent(kappas, [c.gradients for c in costs])),
        Entry(algorithm, "MV", "kappa", printed[2], exponent(kappas, [c.products for c in costs])),
    ]
