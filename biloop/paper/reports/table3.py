"""Table 3 for readers: the printed numbers beside ours, and what the theory is about."""

from typing import Any

import numpy as np

from biloop.paper.reports.table3_plot import draw_table3
from biloop.paper.section import Picture, Table
from biloop.paper.table3 import COLUMNS, LOOKED_AT, NAMES, PRINTED, SETTINGS, SOLVED, Found
from biloop.paper.table3_claims import agrees, claims
from biloop.paper.target import Outcome
from biloop.schedules.arguments import short

METHOD = (
    "The set-up of Sow et al., from which the paper takes the experiment: X_T, X_V 500 × 64, "
    "H 64 × 128, Y = X H_true w_true + 0.1 noise, all drawn by torch's generator in their order "
    "(`biloop.data.sow`), γ = 0.1, inner step size 0.001, Adam with 0.05 on H; float64.",
    "**The printed numbers belong to an inner loop that is restarted at w_0 in every outer step.** "
    "Algorithm 2 has the warm start w_k^0 = w_{k−1}^N instead. Both are run here, the latter also "
    "with plain gradient descent on H. f(H_k, w_k^N) is what the paper prints; Φ(H_k) and "
    "‖∇Φ(H_k)‖², which the theory is about, are in closed form.",
)
PICTURE = Picture(
    "reproduction_table3",
    "Hyper-representation: mean over the seeds of f(H_k, w_k^N) (left, with the printed numbers as "
    "crosses), of Φ(H_k) (middle, dotted: inf Φ) and of ‖∇Φ(H_k)‖² (right). With a restarted inner "
    "loop both N end at the same f; Φ and its gradient separate them, and more so with the warm "
    "start.",
)


def report(found: Found) -> Outcome:
    """All of it."""
    records = _records(found)
    infimum = float(found.infimum.mean())
    drawing = draw_table3(found.curves, LOOKED_AT, SOLVED, COLUMNS, PRINTED, infimum)
    return Outcome(
        method=METHOD,
        claims=claims(found),
        tables=(
            _printed_table(found),
            *(_truth_table(found, name) for name in SETTINGS),
            _infimum_table(found),
        ),
        drawings=((PICTURE, drawing),),
        results={"infimum": found.infimum, "rows": records},
        records=records,
        seeds=found.seeds,
    )


def _spread(values: np.ndarray) -> str:
    """Mean ± standard deviation over the seeds."""
    if len(values) == 1:
        return short(float(values[0]))
    return f"{short(float(values.mean()))} ± {short(float(values.std(ddof=1)), 2)}"


def _printed_table(found: Found) -> Table:
    rows: list[tuple[str, ...]] = []
    for N, printed in PRINTED.items():
        curves = found.curves["restart", N]
        one = [float(curves.at("value", k)[0]) for k in COLUMNS]
        every = [curves.at("value", k) for k in COLUMNS]
        verdicts = [
            "agrees" if agrees(p, v) else f"differs: {short(float(p) / v, 2)} times"
            for p, v in zip(printed, one, strict=True)
        ]
        rows.append((NAMES[N], "printed", *printed))
        rows.append(("", f"seed {found.seeds[0]}", *(short(value, 4) for value in one)))
        rows.append(("", "verdict: printed / found", *verdicts))
        rows.append(("", f"{len(found.seeds)} seeds", *map(_spread, every)))
    head = ("algorithm", "f(H_k, w_k^N)", *(f"k = {k}" for k in COLUMNS))
    return Table("Table 3 as printed: w restarted at w_0, Adam 0.05", head, tuple(rows))


def _truth_table(found: Found, name: str) -> Table:
    rows = []
    words = {"value": "f(H_k, w_k^N)", "phi": "Φ(H_k)", "gradient": "‖∇Φ(H_k)‖²"}
    for quantity, letters in words.items():
        means = {N: [found.mean(name, N, quantity, k) for k in COLUMNS] for N in NAMES}
        rows += [(letters, f"N = {N}", *map(short, means[N])) for N in NAMES]
        ratios = [b / a for a, b in zip(means[20], means[1], strict=True)]
        rows.append((letters, "N = 1 / N = 20", *(short(ratio, 2) for ratio in ratios)))
    head = ("mean over the seeds", "", *(f"k = {k}" for k in COLUMNS))
    return Table(SETTINGS[name].words, head, tuple(rows))


def _infimum_table(found: Found) -> Table:
    head = ("seed", *map(str, found.seeds))
    return Table("inf Φ in closed form", head, (("inf Φ", *(f"{v:.6f}" for v in found.infimum)),))


def _records(found: Found) -> list[dict[str, Any]]:
    return [
        {
            "setting": name,
            "N": N,
            "seed": seed,
            "k": k,
            "f": float(curves.at("value", k)[i]),
            "Phi": float(curves.at("phi", k)[i]),
            "gradient_squared": float(curves.at("gradient", k)[i]),
        }
        for (name, N), curves in found.curves.items()
        for i, seed in enumerate(found.seeds)
        for k in COLUMNS
    ]
