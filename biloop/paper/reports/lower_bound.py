"""Theorem 4 for readers: every run beside its floor."""

from typing import Any

import numpy as np

from biloop.paper.lower_bound import KAPPA, KAPPAS, LOOPS, OUTER_STEPS, STEP, Found
from biloop.paper.lower_bound_claims import claims, stops_at, vanishes
from biloop.paper.reports.lower_bound_plot import draw_lower_bound
from biloop.paper.section import Picture, Table
from biloop.paper.target import Outcome
from biloop.schedules.arguments import short

PICTURE = Picture(
    "reproduction_lower_bound",
    "‖∇Φ(x_k)‖² on the worst case of Theorem 4. Left: ITD stops at the floor of its N. "
    "Right: AID stops at the same floors if every Q-loop starts from v = 0, and goes to zero "
    "for all N and Q if v is warm-started as in Algorithm 1.",
)


def report(found: Found) -> Outcome:
    """All of it."""
    records = _records(found)
    results = {"floor_exponent": found.slope, "floors": found.limits, "kappas": KAPPAS}
    drawing = draw_lower_bound(found.itd, found.zero, found.warm, found.floor)
    return Outcome(
        method=_method(found),
        claims=claims(found),
        tables=(_table(found),),
        drawings=((PICTURE, drawing),),
        results=results | {"rows": records},
        records=records,
        seeds=(),
    )


def _method(found: Found) -> tuple[str, ...]:
    return (
        "g = ½yᵀZy − Lxᵀy + 1ᵀy, f = ½xᵀZx + M1ᵀy, Z = diag(L, μ), from x_0 = 1, y_0 = 0, with "
        f"L = M = 1, μ = 1/{KAPPA:g} and α = η = β = {STEP:g}/L. ∇Φ is in closed form, and so "
        "is the floor L²M²‖(I−αZ)^N Z⁻¹1‖². "
        f"With N = 1 and κ = {short(KAPPAS[0])} to {short(KAPPAS[-1])} the measured floor "
        f"grows like κ^{found.slope:.2f}; Table 2 prints Ω(κ²).",
    )


def _table(found: Found) -> Table:
    rows = []
    for n in LOOPS:
        floor = found.floor[n]
        curves = {"ITD, N": found.itd[n], "AID, v from zero, Q": found.zero[n]}
        for name, curve in curves.items():
            parts = f"{curve.min() / floor:.6f}", f"{curve[-1] / floor:.6f}"
            verdict = "agrees" if stops_at(curve, floor) else "differs"
            row = f"{name} = {n}", short(floor, 4), short(curve[-1], 4), *parts, verdict
            rows.append(row)
    for (N, Q), curve in found.warm.items():
        words = "vanishes" if vanishes(curve) else "does not vanish"
        rows.append((f"AID, v warm, N = {N}, Q = {Q}", "0", short(curve[-1], 2), "–", "–", words))
    return Table(
        f"‖∇Φ(x_k)‖² on the instance of Theorem 4, κ = {KAPPA:g}, k < {OUTER_STEPS}",
        ("method", "floor (formula)", "last", "least / floor", "last / floor", "verdict"),
        tuple(rows),
    )


def _records(found: Found) -> list[dict[str, Any]]:
    def record(method: str, N: int, Q: int, floor: float, curve: np.ndarray) -> dict[str, Any]:
        ends = {"last": float(curve[-1]), "least": float(curve.min())}
        return {"method": method, "N": N, "Q": Q, "floor": floor, **ends}

    rows = []
    for n in LOOPS:
        rows.append(record("ITD", n, n, found.floor[n], found.itd[n]))
        rows.append(record("AID, v from zero", 1, n, found.floor[n], found.zero[n]))
    warm = [record("AID, v warm", N, Q, 0.0, curve) for (N, Q), curve in found.warm.items()]
    return rows + warm
