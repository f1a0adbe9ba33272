"""Theorem 4 in words: who stays above the floor, who stops on it, and who goes to zero."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from biloop.paper.claims import Claim, by_parts
from biloop.paper.lower_bound import LOOPS, Found
from biloop.schedules.arguments import short

VANISHED = 1e-12  # of what ‖∇Φ‖² was at the start
ABOVE, ON_IT = 1e-9, 1e-3  # relative to the floor
SLOPE = 0.15


def stays_above(curve: np.ndarray, floor: float) -> bool:
    """Whether no iterate is below the floor."""
    return bool(curve.min() > (1 - ABOVE) * floor)


def stops_at(curve: np.ndarray, floor: float) -> bool:
    """Whether no iterate is below the floor, and the last one is on it."""
    return stays_above(curve, floor) and bool(abs(curve[-1] / floor - 1) < ON_IT)


def vanishes(curve: np.ndarray) -> bool:
    """Whether the last of ‖∇Φ‖² is nothing beside the first."""
    return bool(curve[-1] < VANISHED * curve[0])


def claims(found: Found) -> tuple[Claim, ...]:
    """Theorem 4, and what sections 4 and 5 conclude from it."""
    return (_lower_bound(found), _necessary(found), _aid_and_itd(found))


def _least(curves: Mapping[int, np.ndarray], found: Found) -> float:
    return min(float(curve.min() / found.floor[n]) for n, curve in curves.items())


def _lower_bound(found: Found) -> Claim:
    above = all(stays_above(curve, found.floor[n]) for n, curve in found.itd.items())
    # Ω(κ²): growing faster would be as well.
    grows = found.slope >= 2 - SLOPE
    return Claim(
        "Theorem 4, Table 2",
        "ITD with N = O(1) is left with ‖∇Φ(x_K)‖² = Ω(κ²), for every K.",
        by_parts([above, grows]),
        f"On the paper's instance the least iterate is {_least(found.itd, found):.6f} of the floor "
        f"of its N, and where N = 1 stops grows like κ^{found.slope:.2f}. The start is x_0 = 1; "
        "from starts below the limit single iterates can dip under the floor.",
    )


def _necessary(found: Found) -> Claim:
    on_it = [stops_at(curve, found.floor[n]) for n, curve in found.itd.items()]
    ends = [float(found.itd[n][-1]) for n in LOOPS]
    falls = all(later < sooner for sooner, later in pairwise(ends))
    return Claim(
        "section 5",
        "The N-N-loop is necessary for a vanishing error of ITD.",
        by_parts([*on_it, falls]),
        f"On this instance {sum(on_it)} of {len(on_it)} N end on their floor. The error goes from "
        f"{short(ends[0])} (N = {LOOPS[0]}) to {short(ends[-1])} (N = {LOOPS[-1]}); the formula "
        f"has {short(found.floor[LOOPS[0]])} and {short(found.floor[LOOPS[-1]])}.",
    )


def _aid_and_itd(found: Found) -> Claim:
    gone = [vanishes(curve) for curve in found.warm.values()]
    itd = [stops_at(curve, found.floor[n]) for n, curve in found.itd.items()]
    zero = [stops_at(curve, found.floor[n]) for n, curve in found.zero.items()]
    return Claim(
        "Corollaries 2 and 6",
        "With loops of O(1) steps AID converges and ITD does not.",
        by_parts([all(gone), all(itd)]),
        f"With the warm start of v, AID goes to zero for {sum(gone)} of {len(gone)} (N, Q), and "
        f"ITD stops at its floor for {sum(itd)} of {len(itd)} N. With v_k^0 = 0, as Theorem 2 "
        f"assumes, AID stops at the floor of ITD with N replaced by Q for {sum(zero)} of "
        f"{len(zero)} Q.",
    )
