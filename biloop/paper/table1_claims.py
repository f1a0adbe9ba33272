"""Table 1 in words: what the formulas and the measured costs say of sections 1 and 4.

Section 4.2 compares bounds on the worst case. The formulas decide that comparison; a handful of
random quadratics does not, and is reported beside it.
"""

from collections.abc import Sequence

from biloop.paper.claims import Claim, by_parts, of_a_bound
from biloop.paper.costs import CRITERIA
from biloop.paper.exponents import CLOSE
from biloop.paper.table1 import QUOTED, Found

FOUR = ("N-Q-loop AID", "N-loop AID", "Q-loop AID", "No-loop AID")
WITH_N_LOOP = FOUR[:2]
Pair = tuple[str, str, tuple[str, ...]]
# With a loop, without it, and what Table 1 has fewer of.
N_LOOP: tuple[Pair, ...] = (
    ("N-loop AID", "No-loop AID", ("Gc", "MV")),
    ("N-Q-loop AID", "Q-loop AID", ("Gc", "MV")),
)
Q_LOOP: tuple[Pair, ...] = (
    ("Q-loop AID", "No-loop AID", ("Gc",)),
    ("N-Q-loop AID", "N-loop AID", ("Gc",)),
)


def claims(found: Found) -> tuple[Claim, ...]:
    """The exponents, the four schemes compared, and BA."""
    return (
        _exponents(found),
        _upper_bounds(found),
        _n_loop(found),
        _q_loop(found),
        _fewest(found),
        _total(found),
        _ba(found),
    )


def _exponents(found: Found) -> Claim:
    proved = [each for each in found.exponents if each.algorithm not in QUOTED]
    apart = max(each.apart for each in proved)
    close = [each.apart <= CLOSE for each in proved]
    logarithms = ", which is what the hidden logarithms add" if all(close) else ""
    return Claim(
        "Table 1",
        "Exponents of κ in Gc(ε) and MV(ε) of the four schemes.",
        by_parts(close),
        f"The formulas of Corollaries 1-4 give {sum(close)} of {len(close)} of them; the largest "
        f"difference is {apart:.2f}{logarithms}.",
    )


def _upper_bounds(found: Found) -> Claim:
    judged = [(each.excess, each) for each in found.exponents if each.excess is not None]
    excess, nearest = max(judged, key=lambda pair: pair[0])
    worst = max(nearest.measured.values())
    return Claim(
        "Table 1",
        "The costs are upper bounds.",
        of_a_bound(excess, CLOSE),
        "Quadratics have ρ = 0, for which the corollaries give smaller exponents than Table 1 "
        f"prints. Of those measured, {nearest.quantity} of {nearest.algorithm} comes nearest: "
        f"{worst:.2f}, where the formula gives {nearest.bound:.2f}. A difference of {CLOSE:g} is "
        "left to logarithms.",
    )


def _less(found: Found, pairs: Sequence[Pair]) -> list[bool]:
    """Whether the exponent from the formulas is smaller with the loop, by more than logarithms."""
    return [
        found.formula(less, quantity) + CLOSE < found.formula(more, quantity)
        for less, more, quantities in pairs
        for quantity in quantities
    ]


def _on_quadratics(found: Found, pairs: Sequence[Pair]) -> str:
    held = [
        found.ratio(less, more, criterion, quantity) < 1
        for less, more, quantities in pairs
        for quantity in quantities
        for criterion in CRITERIA
    ]
    return (
        f"Beside it: of the costs measured on quadratics at κ = {found.kappas[-1]:g}, step sizes "
        f"tuned, {sum(held)} of {len(held)} have this order. They need not: the order of worst "
        "cases is not that of every problem."
    )


def _n_loop(found: Found) -> Claim:
    held = _less(found, N_LOOP)
    return Claim(
        "section 4.2",
        "The N-loop improves both complexities (No-loop to N-loop, Q-loop to N-Q-loop).",
        by_parts(held),
        f"{sum(held)} of {len(held)} exponents from the formulas fall. "
        + _on_quadratics(found, N_LOOP),
    )


def _q_loop(found: Found) -> Claim:
    fewer = _less(found, Q_LOOP)
    same = [
        abs(found.formula(less, "MV") - found.formula(more, "MV")) <= CLOSE
        for less, more, _ in Q_LOOP
    ]
    return Claim(
        "section 4.2",
        "The Q-loop improves the gradient complexity and leaves that of the products "
        "(No-loop to Q-loop, N-loop to N-Q-loop).",
        by_parts([*fewer, *same]),
        f"By the formulas {sum(fewer)} of {len(fewer)} exponents of Gc fall and {sum(same)} of "
        f"{len(same)} of MV stay. " + _on_quadratics(found, Q_LOOP),
    )


def _fewest(found: Found) -> Claim:
    def exponents(quantity: str, names: Sequence[str]) -> list[float]:
        return [found.formula(name, quantity) for name in names]

    products = max(exponents("MV", WITH_N_LOOP)) + CLOSE < min(exponents("MV", FOUR[2:]))
    gradients = found.formula(FOUR[0], "Gc") + CLOSE < min(exponents("Gc", FOUR[1:]))
    cells = [
        f"{name} κ^{found.formula(name, 'Gc'):.1f} and κ^{found.formula(name, 'MV'):.1f}"
        for name in FOUR
    ]
    return Claim(
        "section 4.2",
        "N-Q-loop and N-loop have the best complexity in products, the N-Q-loop in gradients.",
        by_parts([products, gradients]),
        f"Gradients and products from the formulas: {', '.join(cells)}.",
    )


def _total(found: Found) -> Claim:
    cheapest = {
        criterion: min(FOUR, key=lambda n, c=criterion: found.measured[n].typical(c, "Gc+MV")[-1])
        for criterion in CRITERIA
    }
    held = [name in WITH_N_LOOP for name in cheapest.values()]
    remark = (
        ""
        if all(held)
        else " The theorems bound the worst case, with step sizes far smaller than the tuned ones, "
        "and are not contradicted."
    )
    return Claim(
        "section 4.2, on quadratics",
        "This suggests that a large N can help to reduce the total cost.",
        by_parts(held, none="not seen here"),
        f"The least Gc + MV at κ = {found.kappas[-1]:g} has the {cheapest['mean']} by the running "
        f"mean and the {cheapest['first']} by the first hit.{remark}",
    )


def _ba(found: Found) -> Claim:
    missed = [kappa in found.ba_misses for kappa in found.kappas]
    return Claim(
        "Table 1",
        "BA with Q = Θ(κ ln κ).",
        by_parts([not each for each in missed], none="only in part"),
        "With v from zero, Q must grow with ln(1/ε): with constant one, Q = ⌈κ ln κ⌉ stops above ε "
        f"at {sum(missed)} of {len(missed)} κ, Q = ⌈κ ln(κ/ε)⌉ at none."
        if any(missed)
        else "Q = ⌈κ ln κ⌉ reached ε everywhere.",
    )
