"""Table 2 in words."""

from collections.abc import Mapping

import numpy as np

from biloop import theory
from biloop.paper.claims import Claim, by_parts, of_a_bound
from biloop.paper.exponents import CLOSE
from biloop.paper.table2 import N_N_LOOP, QUOTED, Found, floors_of_loop
from biloop.schedules.arguments import short

KAPPA, EPS = 2.0**12, 0.01  # where the constant in the length of the loop is looked at


def claims(found: Found) -> tuple[Claim, ...]:
    """The exponents, the length of the loop, the costs as bounds, and what N = 1 leaves."""
    return (
        _exponents(found),
        loop(floors_of_loop(KAPPA, EPS)),
        _upper_bounds(found),
        _no_loop(found),
    )


def _exponents(found: Found) -> Claim:
    proved = [e for e in found.exponents if e.printed is not None and e.algorithm not in QUOTED]
    close = [each.apart <= CLOSE for each in proved]
    return Claim(
        "Table 2",
        "Exponents of κ: rate κ³, Gc and MV κ⁴ with the N-N-loop; floors Ω(κ²) and O(κ³) with "
        "N = Θ(1).",
        by_parts(close),
        f"The formulas give {sum(close)} of {len(close)} of them; the largest difference is "
        f"{max(each.apart for each in proved):.2f}.",
    )


def loop(floors: Mapping[str, Mapping[int, float]]) -> Claim:
    """What `floors_of_loop` says of the N that Table 2 prints."""
    held = [min(each.values()) <= 1 for each in floors.values()]
    cells = "; ".join(
        f"for N = c {name} it is "
        + ", ".join(f"{short(ratio, 4)} ε (c = {c})" for c, ratio in each.items())
        for name, each in floors.items()
    )
    return Claim(
        "Table 2, introduction",
        "N = Θ(κ ln κ) with the N-N-loop.",
        by_parts(held),
        "Section 2.2 and Corollary 5 have Θ(κ ln(κ/ε)) instead. The floor of Theorem 3 must come "
        f"down to ε; at κ = {short(KAPPA, 4)} and ε = {EPS:g}, {cells}. With κ ln κ it does not "
        "depend on ε at all.",
    )


def _upper_bounds(found: Found) -> Claim:
    cells = [each for each in found.exponents if each.algorithm == N_N_LOOP and each.measured]
    excess = [np.inf if each.excess is None else each.excess for each in cells]
    measured = ", ".join(
        f"{each.quantity} {max(each.measured.values()):.2f} ({each.bound:.2f})" for each in cells
    )
    return Claim(
        "Table 2",
        "The costs of the N-N-loop are upper bounds.",
        of_a_bound(max(excess), CLOSE),
        "Largest exponents measured on quadratics, in brackets the formula for their ρ = 0: "
        f"{measured}. A difference of {CLOSE:g} is left to logarithms.",
    )


def _no_loop(found: Found) -> Claim:
    stops = np.isinf(found.no_loop.gradients["first"])
    floor = found.floors["quadratics"]
    slope = theory.exponent(found.no_loop.kappas, floor.tolist())
    return Claim(
        "Table 2",
        "With N = Θ(1), ITD does not reach ε.",
        by_parts(stops.ravel().tolist(), none="not seen here"),
        f"On {int(stops.sum())} of {stops.size} quadratics the No-loop stops above ε. "
        f"What is left is {short(floor[0])} to {short(floor[-1])} L (Φ(x_0) − min Φ), growing like "
        f"κ^{slope:.1f}: below the worst case, as random problems may be.",
    )
