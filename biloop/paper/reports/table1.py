"""Table 1 for readers: how it was measured, exponents, costs, and whether the loops pay."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from biloop.paper import costs
from biloop.paper.costs import ACCURACY, CRITERIA, Measured
from biloop.paper.reports.cost_plot import draw_costs
from biloop.paper.section import Picture, Table
from biloop.paper.table1 import PRINTED_BA, QUOTED, Found
from biloop.paper.table1_claims import N_LOOP, Q_LOOP, claims
from biloop.paper.target import Outcome
from biloop.schedules.arguments import short

PICTURE = Picture(
    "reproduction_table1",
    "Gradients and products until ε on random quadratics, step sizes tuned, geometric mean over "
    "the seeds. Top: the mean of ‖∇Φ(x_k)‖² over the run is at most ε, the criterion of the "
    "theorems. Bottom: the first x_k with ‖∇Φ(x_k)‖² ≤ ε. In the legends: exponent measured "
    "(printed).",
)
WORDS = dict(zip(CRITERIA, ("running mean", "first hit"), strict=True))


def report(found: Found) -> Outcome:
    """All of it."""
    drawing = draw_costs(found.kappas, {n: _curves(each) for n, each in found.measured.items()})
    return Outcome(
        method=_method(found),
        claims=claims(found),
        tables=(_exponents(found), _costs(found), _loops(found)),
        drawings=((PICTURE, drawing),),
        results={"exponents": [asdict(each) for each in found.exponents], "kappas": found.kappas},
        records=_records({**found.measured, PRINTED_BA: found.printed_ba}),
        seeds=found.seeds,
    )


def _method(found: Found) -> tuple[str, ...]:
    missed = ", ".join(f"{kappa:g}" for kappa in found.ba_misses)
    return (
        "**Formulas.** The certificates of Corollaries 1-4 are evaluated (`biloop.theory`) at "
        "κ = 2¹⁰…2¹⁶ with L = M = 1 and ε = 0.01, and the slope of ln cost against ln κ is fitted; "
        "logarithms are left in. BA and AID-BiO are quoted in the paper; their formulas are the "
        "orders that it prints. With ρ = 0 (quadratics) the same formulas give smaller exponents, "
        "which are the bounds for what is measured.",
        f"**Measured.** Random quadratics, κ = {', '.join(f'{k:g}' for k in found.kappas)}, "
        f"{len(found.seeds)} of each κ (seeds {', '.join(map(str, found.seeds))}), L = 1, ρ = 0, "
        f"∇Φ in closed form; ε = {ACCURACY:g} L (Φ(x_0) − min Φ), because the bounds are "
        "proportional to the gap. Loops as in Table 1 with constant one, N = Q = ⌈κ ln κ⌉, y and v "
        "warm-started as in Algorithm 1; α = 1/L. Tuned for each scheme, κ, seed and criterion by "
        f"least Gc + MV: β over {len(costs.BETAS)} values from 8/L to 2⁻¹²/L, and η over "
        f"{len(costs.ETAS)} values from 1/L to 2⁻⁸/L where Q = 1 (η = 1/L otherwise). AID-BiO is "
        "the N-Q-loop with the linear solver left open; with gradient descent, which Table 1 uses "
        "for all, it is the N-Q-loop. These are examples of x ∈ R⁴ and y ∈ R⁶: they can exceed a "
        "bound on the worst case, and say nothing of how near the worst case comes to it.",
        "BA runs with y warm-started and v from zero; restarted at y_0 in every outer step, its "
        "few inner steps could not follow y*(x_k). With v from zero and the printed "
        "Q = ⌈κ ln κ⌉ the linear system keeps an error that does not vanish: within 2 000 outer "
        f"steps the running mean was not reached at κ = {missed or 'no value'}. The "
        "table has BA with Q = ⌈κ ln(κ/ε)⌉ (the relative ε).",
    )


def _exponents(found: Found) -> Table:
    def cell(value: float | None) -> str:
        return "–" if value is None else f"{value:.2f}"

    rows = []
    for each in found.exponents:
        quoted = "quoted, " if each.algorithm in QUOTED else ""
        head = each.algorithm, each.quantity, f"{each.printed:g}"
        formulas = quoted + cell(each.formula), cell(each.formula_rho_0)
        measured = [cell(each.measured.get(criterion)) for criterion in CRITERIA]
        rows.append((*head, *formulas, *measured, each.judged))
    head = ("algorithm", "cost", "printed", "formula, ρ = 1", "formula, ρ = 0")
    more = *(f"measured, {WORDS[criterion]}" for criterion in CRITERIA), "verdict"
    return Table("Exponents of κ", (*head, *more), tuple(rows))


def _costs(found: Found) -> Table:
    rows = []
    for criterion in CRITERIA:
        totals = {name: each.typical(criterion, "Gc+MV") for name, each in found.measured.items()}
        best = np.min(list(totals.values()), axis=0)
        for name, total in totals.items():
            cells = [
                f"**{short(value)}**" if value == least else short(value)
                for value, least in zip(total, best, strict=True)
            ]
            rows.append((WORDS[criterion], name, *cells))
    head = ("criterion", "algorithm", *(f"κ = {kappa:g}" for kappa in found.kappas))
    return Table("Gc + MV until ε, the cheapest in bold", head, tuple(rows))


def _loops(found: Found) -> Table:
    rows = []
    for less, more, quantities in (*N_LOOP, *Q_LOOP):
        for quantity in quantities:
            ratios = [found.ratio(less, more, criterion, quantity) for criterion in CRITERIA]
            cells = [f"{short(r)} ({'as the bounds' if r < 1 else 'other way'})" for r in ratios]
            rows.append((f"{less} / {more}", quantity, "< 1", *cells))
    head = ("cost with the loop / without", "", "bounds", *WORDS.values())
    return Table(f"Do the loops pay on these quadratics, κ = {found.kappas[-1]:g}?", head, (*rows,))


def _curves(measured: Measured) -> dict[tuple[str, str], tuple[np.ndarray, float]]:
    """Cost and exponent for each panel of the figure."""
    return {
        (criterion, quantity): (
            measured.typical(criterion, quantity),
            measured.exponent(criterion, quantity),
        )
        for criterion in CRITERIA
        for quantity in ("Gc", "MV")
    }


def _records(measured: Mapping[str, Measured]) -> list[dict[str, Any]]:
    return [
        {
            "algorithm": name,
            "criterion": criterion,
            "kappa": kappa,
            "problem": i,
            "gradients": each.gradients[criterion][at, i],
            "products": each.products[criterion][at, i],
        }
        for name, each in measured.items()
        for criterion in CRITERIA
        for at, kappa in enumerate(each.kappas)
        for i in range(each.gradients[criterion].shape[1])
    ]
