"""Table 2 for readers: how it was measured, exponents, and where N = 1 stops."""

import math
from dataclasses import asdict
from typing import Any

from biloop.paper.costs import ACCURACY, CRITERIA
from biloop.paper.reports.floor_plot import draw_floors
from biloop.paper.section import Picture, Table
from biloop.paper.table2 import N_N_LOOP, NO_LOOP, Found
from biloop.paper.table2_claims import claims
from biloop.paper.target import Outcome

PICTURE = Picture(
    "reproduction_table2",
    "Left: what the N-N-loop costs until ε on random quadratics, β tuned. Right: what is left of "
    "‖∇Φ‖² with N = 1, however long the run: on quadratics in units of L (Φ(x_0) − min Φ), and on "
    "the worst case of Theorem 4; the grey lines have the slopes of the bounds.",
)


def report(found: Found) -> Outcome:
    """All of it."""
    kappas, floors = found.n_n_loop.kappas, found.floors
    curves = {c: {q: found.n_n_loop.typical(c, q) for q in ("Gc", "MV")} for c in CRITERIA}
    exponents = [asdict(each) for each in found.exponents]
    return Outcome(
        method=_method(found),
        claims=claims(found),
        tables=(_table(found),),
        drawings=((PICTURE, draw_floors(kappas, curves, floors)),),
        results={"exponents": exponents, "kappas": kappas, "floors": floors},
        records=_records(found),
        seeds=found.seeds,
    )


def _method(found: Found) -> tuple[str, ...]:
    return (
        "**Formulas.** Corollaries 5 and 6 and Theorem 4 (`biloop.theory`), fitted as for Table 1. "
        '"rate" is the coefficient of 1/K in the bound, "floor" what is left of it as K → ∞.',
        "**Measured.** The quadratics of Table 1 "
        f"(κ = {', '.join(f'{k:g}' for k in found.n_n_loop.kappas)}; "
        f"{len(found.seeds)} of each), α = 1/L, y warm-started as in Algorithm 2, β tuned, "
        f"ε = {ACCURACY:g} L (Φ(x_0) − min Φ). The N-N-loop has N = ⌈κ ln(κ/ε)⌉ with this relative "
        "ε: with N = ⌈κ ln κ⌉ the error of the N-loop does not depend on ε. The No-loop has N = 1.",
    )


def _table(found: Found) -> Table:
    def cell(value: float | None) -> str:
        if value is None:
            return "–"
        return "N/A" if math.isinf(value) else f"{value:.2f}"

    rows = []
    for each in found.exponents:
        printed = "N/A" if each.printed is None else f"{each.printed:g}"
        measured = [cell(each.measured.get(criterion)) for criterion in CRITERIA]
        formulas = cell(each.formula), cell(each.formula_rho_0)
        rows.append((each.algorithm, each.quantity, printed, *formulas, *measured, each.judged))
    head = ("algorithm", "quantity", "printed", "formula, ρ = 1", "formula, ρ = 0")
    more = ("measured (costs: running mean)", "measured, first hit", "verdict")
    return Table("Exponents of κ", (*head, *more), tuple(rows))


def _records(found: Found) -> list[dict[str, Any]]:
    rows = []
    for name, each in ((N_N_LOOP, found.n_n_loop), (NO_LOOP, found.no_loop)):
        for at, kappa in enumerate(each.kappas):
            for i in range(each.left.shape[1]):
                row = {"algorithm": name, "kappa": kappa, "problem": i}
                for c in CRITERIA:
                    row[f"gradients, {c}"] = each.gradients[c][at, i]
                    row[f"products, {c}"] = each.products[c][at, i]
                rows.append(row | {"left/epsilon": each.left[at, i]})
    return rows
