"""What follows from the numbers, in words."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from biloop.comparison.candidates import ADAPTIVE
from biloop.comparison.outcome import DIVERGED, FLOORED, Scheme, median
from biloop.report.numbers import short

NOISE = 1.1  # the spacing of the snapshots: no smaller ratio can be told from one
_TIMING_NOISE = 1.25
WITH_N, WITHOUT_N = ("N-loop AID", "N-Q-loop AID"), ("No-loop AID", "Q-loop AID")
WITH_Q, WITHOUT_Q = ("Q-loop AID", "N-Q-loop AID"), ("No-loop AID", "N-loop AID")


class Ratio(NamedTuple):
    """How many times as much one scheme takes as another, over the seeds."""

    low: float
    middle: float
    high: float

    @property
    def more(self) -> bool:
        """More from every start, beyond the noise."""
        return self.low > NOISE

    def __str__(self) -> str:
        """The median and the spread."""
        low, middle, high = map(_times, self)
        return f"{middle} times ({low} to {high} over the seeds)"


def _times(number: float) -> str:
    """Two digits: 1.0 and not 1, which would read like a word."""
    return f"{number:.1f}" if 0.95 <= number < 9.95 else short(number, 2)


def ratio(a: Scheme, b: Scheme) -> Ratio:
    """The cost to the target of a over that of b, from the same starts.

    A start from which only one of them gets there gives 0 or ∞; one that is there counts for 1.
    After Ctrl-C some have run from the first start only.
    """
    pairs = [(max(p, 1.0), max(q, 1.0)) for p, q in zip(a.costs, b.costs, strict=False)]
    ratios = sorted(p / q for p, q in pairs if math.isfinite(p) or math.isfinite(q))
    return Ratio(ratios[0], median(ratios), ratios[-1])


def verdict(schemes: Sequence[Scheme], budget: int) -> list[str]:
    """Whether each loop pays, who stagnates or diverges, and what to use."""
    by_name = {scheme.name: scheme for scheme in schemes}
    sentences = []
    for loop, having, lacking in (
        ("An N-loop", WITH_N, WITHOUT_N),
        ("A Q-loop", WITH_Q, WITHOUT_Q),
    ):
        a, b = ([by_name[name] for name in side if name in by_name] for side in (having, lacking))
        if a and b:
            sentences.append(does_it_pay(loop, min(a, key=_rank), min(b, key=_rank), budget))
    sentences += [failure for scheme in schemes if (failure := _failure(scheme))]
    return [*sentences, _advice(schemes)]


def does_it_pay(loop: str, having: Scheme, lacking: Scheme, budget: int) -> str:
    """The best scheme that has the loop against the best that has not."""
    limit = f"from most starts within {budget:,} gradients and products"
    if math.isinf(having.cost) and math.isinf(lacking.cost):
        return (
            f"{loop}: not decided, as no AID scheme reaches the target {limit}; ‖∇Φ‖² ends at "
            f"{short(median(having.ends))} with one ({_called(having)}) and at "
            f"{short(median(lacking.ends))} without ({_called(lacking)})."
        )
    if math.isinf(lacking.cost):
        return (
            f"{loop} pays: {_called(having)} takes {_took(having)} to the target, which no AID "
            f"scheme without one reaches {limit}."
        )
    if math.isinf(having.cost):
        return (
            f"{loop} does not pay: {_called(lacking)} takes {_took(lacking)} to the target, which "
            f"no AID scheme with one reaches {limit}."
        )
    gain, loss = ratio(lacking, having), ratio(having, lacking)
    if gain.more:
        return (
            f"{loop} pays: the best without one, {_called(lacking)}, takes {gain} the gradients "
            f"and products of {_called(having)}: {_instead(having, lacking)}."
        )
    if loss.more:
        return (
            f"{loop} does not pay: the best with one, {_called(having)}, takes {loss} the "
            f"gradients and products of {_called(lacking)}: {_instead(lacking, having)}."
        )
    return (
        f"{loop} makes no difference beyond the noise: the best with one, {_called(having)}, takes "
        f"{loss} the gradients and products of the best without, {_called(lacking)}."
    )


def recommended(schemes: Sequence[Scheme]) -> Scheme:
    """The cheapest to the target, or within the noise of it the one that needs no tuning.

    Where nobody gets there, the one that is closest in the end.
    """
    best = min(schemes, key=_rank)
    for scheme in schemes:
        if scheme.name == ADAPTIVE and math.isfinite(scheme.cost) and math.isfinite(best.cost):
            against = ratio(scheme, best)
            if not against.more and against.middle <= NOISE:
                return scheme
    return best


def _advice(schemes: Sequence[Scheme]) -> str:
    chosen = recommended(schemes)
    if math.isinf(chosen.cost):
        return (
            f"Use {_called(chosen)}: nobody reaches the target from most starts, and it ends "
            f"closest, at ‖∇Φ‖² = {short(median(chosen.ends))}."
        )
    others = [scheme for scheme in schemes if scheme is not chosen and math.isfinite(scheme.cost)]
    if not others:
        return f"Use {_called(chosen)}: nobody else reaches the target from most starts."
    second = min(others, key=_rank)
    against = ratio(second, chosen)
    beyond = "" if against.more else ", which is within the noise"
    next_best = f"the next best, {_called(second)}, takes {against} as much{beyond}"
    return f"Use {_called(chosen)}: {_took(chosen)}; {next_best}.{_faster(chosen, others)}"


def _faster(chosen: Scheme, others: Sequence[Scheme]) -> str:
    """A note on who takes less time, if that is not the one who takes fewest gradients."""
    fastest = min(others, key=lambda scheme: scheme.to_target("seconds"))
    least, seconds = (scheme.to_target("seconds") for scheme in (fastest, chosen))
    if least * _TIMING_NOISE >= seconds:
        return ""
    return f" In time {_called(fastest)} is ahead: {_seconds(least)} against {_seconds(seconds)}."


def _failure(scheme: Scheme) -> str:
    if scheme.status == FLOORED:
        end = short(median(scheme.ends))
        return f"{_called(scheme)} stagnates before the target, at ‖∇Φ‖² = {end}."
    return f"{_called(scheme)} diverges." if scheme.status == DIVERGED else ""


def _rank(scheme: Scheme) -> tuple[float, float, float]:
    return scheme.cost, median(scheme.excesses), median(scheme.ends)


def _called(scheme: Scheme) -> str:
    return f"{scheme.name} ({scheme.loops})"


def _took(scheme: Scheme) -> str:
    gradients, products, seconds = map(scheme.to_target, ("gradients", "products", "seconds"))
    return f"{gradients:,.0f} gradients, {products:,.0f} products and {_seconds(seconds)}"


def _instead(a: Scheme, b: Scheme) -> str:
    seconds = [_seconds(scheme.to_target("seconds")) for scheme in (a, b)]
    counts = [
        f"{a.to_target(unit):,.0f} {unit} instead of {b.to_target(unit):,.0f}"
        for unit in ("gradients", "products")
    ]
    return ", ".join([*counts, f"{seconds[0]} instead of {seconds[1]}"])


def _seconds(value: float) -> str:
    return f"{short(value, 2)} s"
