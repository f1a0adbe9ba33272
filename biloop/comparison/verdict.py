"""What follows from the numbers, in words."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from biloop.comparison.batches import sampled_verdict
from biloop.comparison.measuring import CUT, DIVERGED, FLOORED, UNKNOWN
from biloop.comparison.terms import median
from biloop.schedules.arguments import FEW, count, short
from biloop.schemes import BATCHES, BY_NAME

if TYPE_CHECKING:
    from biloop.comparison.result import Outcome

NOISE = 1.1  # the spacing of the snapshots: no smaller ratio can be told from one
_TIMING_NOISE = 1.25


class Ratio(NamedTuple):
    """How many times as much one scheme takes as another, over the seeds."""

    low: float
    middle: float
    high: float
    starts: int

    @property
    def more(self) -> bool:
        """More from every start, beyond the noise."""
        return self.low > NOISE

    def __str__(self) -> str:
        """The median and the spread; one start has none."""
        low, middle, high = map(_times, (self.low, self.middle, self.high))
        spread = f" ({low} to {high} over the seeds)" if self.starts > 1 else ""
        return f"{middle} times{spread}"


def _times(number: float) -> str:
    """Two digits: 1.0 and not 1, which would read like a word."""
    return f"{number:.1f}" if 0.95 <= number < 9.95 else short(number, 2)


def ratio(a: "Outcome", b: "Outcome") -> Ratio:
    """The cost to the target of a over that of b, from the same starts.

    A start from which only one of them gets there gives 0 or ∞; one that is there counts for 1, or
    for the least that any takes: on batches that is a part of 1. After Ctrl-C some have run from
    the first start only.
    """
    least = min((cost for cost in (*a.costs, *b.costs) if 0 < cost < 1), default=1.0)
    pairs = [(max(p, least), max(q, least)) for p, q in zip(a.costs, b.costs, strict=False)]
    ratios = sorted(p / q for p, q in pairs if math.isfinite(p) or math.isfinite(q))
    return Ratio(ratios[0], median(ratios), ratios[-1], len(ratios))


def verdict(outcomes: Sequence["Outcome"], budget: int) -> list[str]:
    """Whether each loop pays, who stagnates, fails or was lucky, and what to use."""

    def judge(what: str, having: Sequence["Outcome"], lacking: Sequence["Outcome"]) -> list[str]:
        if not (having and lacking):
            return []
        return [_judged(what, having, lacking, budget)]

    sentences = []
    for family, where in (("AID", ""), (BATCHES, " on batches")):
        members = [each for each in outcomes if each.variant.family == family]
        for article, loop in (("An", "N"), ("A", "Q")):
            having = [each for each in members if loop in BY_NAME[each.name].loops]
            lacking = [each for each in members if loop not in BY_NAME[each.name].loops]
            sentences += judge(f"{article} {loop}-loop{where}", having, lacking)
    sentences += sampled_verdict(outcomes, judge)
    sentences += [remark for each in outcomes if each.began for remark in _remarks(each)]
    waiting = ", ".join(_called(each) for each in outcomes if not each.began)
    sentences += [f"There was no time for {waiting}."] if waiting else []
    return [*sentences, _advice(outcomes)]


def _judged(
    what: str, having: Sequence["Outcome"], lacking: Sequence["Outcome"], budget: int
) -> str:
    """Whether it pays at the target or, where luck decides that, at a smaller one.

    A side of which everybody was tuned to be at the target in a single step cannot lose farther on:
    those step sizes were not chosen for it.
    """
    least = min((each.cost for each in (*having, *lacking) if each.cost < math.inf), default=0.0)
    having, lacking = ([e for e in side if _had_time(e, least)] for side in (having, lacking))
    if not (having and lacking):
        side = "without one" if having else "with one" if lacking else "with one or without"
        return f"{what}: not decided, as there was no time for a scheme {side}."
    limit = f"within {budget:,} gradients and products"
    if any(each.status == CUT for each in (*having, *lacking)):
        limit = "in the time that they had"
    a, b = _best(having), _best(lacking)
    lucky = _ahead_by_luck(a, b)
    if lucky is None:
        return does_it_pay(what, a, b, limit)
    told = (
        f"{_called(lucky)} is ahead by a single outer step, which is the luck of a step size that "
        f"was tuned for it"
    )
    targets = lucky.target.smaller()
    for target in targets:
        a, b = (
            _best([replace(each, target=target) for each in side]) for side in (having, lacking)
        )
        behind = lacking if _rank(a) <= _rank(b) else having
        arrives = math.isfinite(min(a.cost, b.cost))
        if arrives and _ahead_by_luck(a, b) is None and not all(each.is_lucky for each in behind):
            sentence = does_it_pay(what, a, b, limit)
            return (
                f"{sentence} The target is ‖∇Φ‖² ≤ {short(target.norm2)} here: at "
                f"{short(lucky.target.norm2)} {told}."
            )
    return (
        f"{what}: not decided, as {told}, and down to ‖∇Φ‖² ≤ {short(targets[-1].norm2)} there is "
        f"nothing else to judge by. A smaller target, and a larger budget for it, would tell."
    )


def _had_time(each: "Outcome", cost: float) -> bool:
    """Whether it began, and was not cut short before it had spent so much."""
    spent = median([float(run.cost[-1]) for run in each.runs])
    return each.began and (each.status != CUT or spent >= cost)


def _best(side: Sequence["Outcome"]) -> "Outcome":
    return min(side, key=_rank)


def _ahead_by_luck(a: "Outcome", b: "Outcome") -> "Outcome | None":
    """Who arrives in a single tuned step and is not behind all the same."""
    for one, other in ((a, b), (b, a)):
        if one.is_lucky and not ratio(one, other).more:
            return one
    return None


def does_it_pay(loop: str, having: "Outcome", lacking: "Outcome", limit: str) -> str:
    """The best scheme that has the loop against the best that has not."""
    limit = f"from most starts {limit}"
    kind = "AID" if having.variant.family == "AID" else "such"
    if math.isinf(having.cost) and math.isinf(lacking.cost):
        return (
            f"{loop}: not decided, as no {kind} scheme reaches the target {limit}; the nearest "
            f"ends at {_end(having)} with one ({_called(having)}) and at {_end(lacking)} without "
            f"({_called(lacking)})."
        )
    if math.isinf(lacking.cost):
        return (
            f"{loop} pays: {_called(having)} takes {_took(having)} to the target, which no {kind} "
            f"scheme without one reaches {limit}."
        )
    if math.isinf(having.cost):
        return (
            f"{loop} does not pay: {_called(lacking)} takes {_took(lacking)} to the target, which "
            f"no {kind} scheme with one reaches {limit}."
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


def recommended(schemes: Sequence["Outcome"]) -> "Outcome":
    """The cheapest to the target, or within the noise of it the one that needs no tuning.

    Where nobody gets there but by luck, the one that is closest in the end.
    """
    schemes = _but_luck(schemes)
    best = min(schemes, key=_rank)
    for scheme in schemes:
        untuned = scheme.name in BY_NAME and BY_NAME[scheme.name].outer is not None
        if untuned and math.isfinite(scheme.cost) and math.isfinite(best.cost):
            against = ratio(scheme, best)
            if not against.more and against.middle <= NOISE:
                return scheme
    return best


def _but_luck(schemes: Sequence["Outcome"]) -> Sequence["Outcome"]:
    """Without those that arrive in a single tuned step, if there is anybody else."""
    return [each for each in schemes if not each.is_lucky] or schemes


def _advice(schemes: Sequence["Outcome"]) -> str:
    by_luck = " but by luck" if any(each.is_lucky for each in schemes) else ""
    schemes = _but_luck(schemes)
    chosen = recommended(schemes)
    if math.isinf(chosen.cost):
        return (
            f"Use {_called(chosen)}: nobody reaches the target from most starts{by_luck}, and it "
            f"ends nearest, at {_end(chosen)}."
        )
    others = [scheme for scheme in schemes if scheme is not chosen and math.isfinite(scheme.cost)]
    if not others:
        return f"Use {_called(chosen)}: nobody else reaches the target from most starts."
    second = min(others, key=_rank)
    against = ratio(second, chosen)
    beyond = "" if against.more else ", which is within the noise"
    next_best = f"the next best, {_called(second)}, takes {against} as much{beyond}"
    return f"Use {_called(chosen)}: {_took(chosen)}; {next_best}.{_faster(chosen, others)}"


def _faster(chosen: "Outcome", others: Sequence["Outcome"]) -> str:
    """A note on who takes less time, if that is not the one who takes fewest gradients."""
    fastest = min(others, key=lambda scheme: scheme.to_target("seconds"))
    least, seconds = (scheme.to_target("seconds") for scheme in (fastest, chosen))
    if least * _TIMING_NOISE >= seconds:
        return ""
    return f" In time {_called(fastest)} is ahead: {_seconds(least)} against {_seconds(seconds)}."


def _remarks(each: "Outcome") -> list[str]:
    """What has to be said of one scheme: that it fails, stagnates, or was lucky."""
    remarks = []
    if each.status == DIVERGED:
        remarks.append(f"{_called(each)} diverges{_because(each)}")
    elif each.failures:
        of = f"{each.failures} of {len(each.runs)} starts"
        remarks.append(f"{_called(each)} fails from {of}{_because(each)}")
    if each.status == UNKNOWN:
        remarks.append(
            f"{_called(each)} ends where ∇Φ cannot be measured: g is too badly conditioned there "
            f"for this precision, or the inner problem cannot be solved."
        )
    if each.status == CUT:
        spent = median([float(run.cost[-1]) for run in each.runs])
        remarks.append(f"{_called(each)} was cut short after {_spent(spent)} of the budget.")
    if each.status == FLOORED:
        end = short(median(each.ends))
        remarks.append(f"{_called(each)} stagnates before the target, at ‖∇Φ‖² = {end}.")
    above = [run.value[-1] > each.target.value for run in each.runs if run.end <= each.target.norm2]
    if math.isinf(each.cost) and 2 * sum(above) > len(each.runs):
        remarks.append(
            f"{_called(each)} ends where ‖∇Φ‖² is {short(median(each.ends))} but Φ above the "
            f"{each.target.value:.6g} that the target asks for: ∇Φ vanishes there too."
        )
    if each.is_lucky:
        remarks.append(
            f"{_called(each)} is at the target after a single outer step: that is the luck of a "
            f"step size that was tuned for it, and says nothing of its loops. A smaller target "
            f"would."
        )
    return remarks


def _because(each: "Outcome") -> str:
    return f": {each.cause}" if each.cause else "."


def _rank(scheme: "Outcome") -> tuple[float, float, float]:
    return scheme.cost, scheme.score.excess, median(scheme.ends)


def _end(scheme: "Outcome") -> str:
    """Where it ends: for those that miss the target Φ counts first, until it is low enough."""
    value = median([float(run.value[-1]) for run in scheme.runs])
    return f"Φ = {short(value)}, ‖∇Φ‖² = {short(median(scheme.ends))}"


def _called(scheme: "Outcome") -> str:
    return f"{scheme.name} ({scheme.loops})" if scheme.loops else scheme.name


def _took(scheme: "Outcome") -> str:
    gradients, products, seconds = map(scheme.to_target, ("gradients", "products", "seconds"))
    return f"{_spent(gradients)} gradients, {_spent(products)} products and {_seconds(seconds)}"


def _instead(a: "Outcome", b: "Outcome") -> str:
    seconds = [_seconds(scheme.to_target("seconds")) for scheme in (a, b)]
    counts = [
        f"{_spent(a.to_target(unit))} {unit} instead of {_spent(b.to_target(unit))}"
        for unit in ("gradients", "products")
    ]
    return ", ".join([*counts, f"{seconds[0]} instead of {seconds[1]}"])


def _spent(passes: float) -> str:
    """A number of gradients or products: a few of them on batches are no whole number."""
    return count(passes) if passes < FEW else f"{passes:,.0f}"


def _seconds(value: float) -> str:
    return f"{short(value, 2)} s"
