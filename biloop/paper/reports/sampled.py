"""Rates of sampled methods for readers: slopes beside the published ones."""

from typing import Any

from biloop.paper import sampled
from biloop.paper.reports.sampled_plot import draw_sampled
from biloop.paper.sampled import Found
from biloop.paper.sampled_claims import CLOSE, claims, judged
from biloop.paper.section import Picture, Table
from biloop.paper.target import Outcome
from biloop.schedules.arguments import short
from biloop.theory import SAMPLED_RATES

PICTURE = Picture(
    "reproduction_sampled",
    "The mean of ‖∇Φ(x_k)‖² over a run of K steps against the samples that it used, one point for "
    "each K. Dashed: the published slope, through the last point.",
)


def report(found: Found) -> Outcome:
    """All of it."""
    return Outcome(
        method=_method(found),
        claims=claims(found),
        tables=(_table(found),),
        drawings=((PICTURE, draw_sampled(found)),),
        results={
            name: {"published": found.published(name), "measured": found.slope(name)}
            for name in found.means
        },
        records=_records(found),
        seeds=found.seeds,
    )


def _method(found: Found) -> tuple[str, ...]:
    return (
        f"A quadratic that is a mean over {sampled.SAMPLES} samples of g and of f, κ = "
        f"{sampled.KAPPA:g}, x ∈ R⁴, y ∈ R⁶, with ∇Φ in closed form "
        f"(`bl.problems.sampled_quadratic`); batches of {sampled.BATCH} rows, {len(found.seeds)} "
        "seeds. For each K = 2⁸…2¹⁴ a method runs anew with the steps of its paper: K^(−1/2) for "
        "SOBA and MA-SOBA, k^(−2/5) and k^(−3/5) for SOBA with decreasing steps, constant for SABA "
        f"and SRBA. stocBiO has constant steps, N = Q = {sampled.LOOP} and K steps on batches of K "
        "rows, K = 16…512: that is its ε^(−1) steps on ε^(−1) rows.",
        "Slopes are fitted over the larger half of the horizons, against all rows that were used, "
        "with products counted as gradients. The papers bound the worst case for nonconvex Φ; here "
        "Φ is strongly convex, so that a run may be faster, and a slower one contradicts the "
        f"bound. The rule: contradicted if the slope is more than {CLOSE:g} above the published "
        "one. A mean over a run cannot fall faster than 1/K: a slope of −1 says that the sum of "
        "‖∇Φ(x_k)‖² stays bounded as far as was run. With decreasing steps SOBA does that, too: at "
        "these horizons the noise that its bound allows for is not seen yet.",
    )


def _table(found: Found) -> Table:
    rows = []
    for name, means in found.means.items():
        rate = SAMPLED_RATES[name]
        order = f"ε^(−{rate.in_eps:g})"
        size = f"(n + m)^{rate.in_samples:.2g} " if rate.in_samples else ""
        rows.append(
            (name, size + order, f"{rate.slope:.2f}", f"{found.slope(name):.2f}",
             short(float(means[0])), short(float(means[-1])), judged(found, name))
        )  # fmt: skip
    head = ("method", "samples to ε", "published slope", "measured", "first K", "last K", "verdict")
    caption = f"Mean of ‖∇Φ‖² over a run, from {short(found.start)} at the start"
    return Table(caption, head, tuple(rows))


def _records(found: Found) -> list[dict[str, Any]]:
    return [
        {"method": name, "samples": float(used), "mean": float(mean)}
        for name in found.means
        for used, mean in zip(found.samples[name], found.means[name], strict=True)
    ]
