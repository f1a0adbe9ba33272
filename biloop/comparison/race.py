"""The race of a comparison: every variant is tuned, and the best of each scheme from all starts.

1. tune     every variant from the first start: nine outer step sizes, each with a fifth of the
            budget
2. rank     every variant with its best step sizes and the whole budget; then the target is chosen
3. refine   every variant with step sizes beside its best one; then each scheme gets the loops
            with which it reaches the target most cheaply
4. finish   every scheme from all starts
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from biloop.comparison.candidates import Variant
from biloop.comparison.measuring import MeasuredRun
from biloop.comparison.result import Outcome
from biloop.comparison.runs import Runner
from biloop.comparison.terms import GIVEN, Score, Steps, Target, choose_norm2, shortened, value_bar
from biloop.comparison.tuning import Tuned, refined, tuned
from biloop.schemes import BY_NAME

_ATTEMPTS = 6  # at step sizes of the loops, each at most half of the one before
_RANKING, _REFINING, _FINISHING = 0.6, 0.4, 0.8  # of the seconds that are left each time
_FAR = 3.0  # times the least cost: no finer number makes up for that
_MOST_REPEATED = 3  # numbers from all starts, where the first ones fail from some


def race(
    runner: Runner,
    make: Callable[[Steps], list[Variant]],
    steps: Steps,
    scale: float,
    goal: float,
    chosen: bool,
) -> tuple[list[Tuned], Steps, Target, list[Outcome]]:
    """All variants tuned, the step sizes of their loops, the target, and the best from all starts.

    The target is `goal`, unless it is to be `chosen` by how far they get.
    """
    watch = runner.watch
    with watch.within(_RANKING):
        ranked, steps = rank_with_stable_steps(runner, make, steps, scale, goal)
    value = _bar(runner, ranked)
    if chosen:
        good = least_of_schemes(ranked, lambda run: run.norm2[-1:][run.value[-1:] <= value])
        goal = choose_norm2(runner.gauge.start, good)
    aim = Target(goal, value)
    with watch.within(_REFINING):
        ranked = refine(runner, best_shares(ranked, aim), aim)
    best = _best_of_schemes(ranked, [variant.scheme for variant in make(steps)], aim)
    with watch.within(_FINISHING):
        return ranked, steps, aim, [finish(runner, each, aim) for each in watch.each(best)]


def rank_with_stable_steps(
    runner: Runner,
    make: Callable[[Steps], list[Variant]],
    steps: Steps,
    scale: float,
    goal: float,
) -> tuple[list[Tuned], Steps]:
    """Every variant tuned, with step sizes of the loops that are not too long.

    Where no run of a scheme survives, its loops are at fault: all begin again with the step sizes
    that the failure names, or with half of them if it names none.
    """
    sources = {"inner": steps.inner_from, "linear": steps.linear_from}
    free = frozenset(loop for loop, source in sources.items() if source != GIVEN)
    ranked: list[Tuned] = []
    for attempt in range(_ATTEMPTS):
        variants = make(steps)
        if not variants:
            raise ValueError("There is nothing to compare: schemes and methods are empty.")
        # Longest loops first, after those that need no tuning: they show the way.
        order = variants[::-1]
        order.sort(key=lambda variant: variant.search is not None)
        order = in_turn(order) if runner.watch.limited else order
        last = attempt == _ATTEMPTS - 1
        ranked = rank(runner, order, scale, goal, frozenset() if last else free)
        stuck = bool(ranked) and ranked[-1].is_lost and ranked[-1].variant.scheme in BY_NAME
        if last or not (stuck and free) or runner.watch.over():
            break
        steps = shortened(steps, ranked[-1].excess, free)
    if not ranked:
        raise KeyboardInterrupt  # nothing is known yet
    return ranked, steps


def in_turn(order: Sequence[Variant]) -> list[Variant]:
    """One variant of each scheme before the second of any, for where there may be no time for all.

    First what is compared by default, which was chosen by what is promising, and with samples and
    without by turns: the verdict sets the one beside the other.
    """
    turns: Counter[object] = Counter()

    def place(variant: Variant) -> tuple[bool, int, bool, int]:
        turns[variant.scheme] += 1
        turn, scheme = turns[variant.scheme], BY_NAME.get(variant.scheme)
        special = scheme is not None and not (scheme.compared or scheme.raced)
        side = scheme is not None and scheme.sampled, turn, special
        turns[side] += 1
        return variant.search is not None, turn, special, turns[side]

    return sorted(order, key=place)


def rank(
    runner: Runner, variants: Sequence[Variant], scale: float, norm2: float, free: frozenset[str]
) -> list[Tuned]:
    """Every variant with its best numbers and the whole budget.

    It ends at a named scheme of which no run survives, whatever its outer step, if the step size of
    a loop is `free` to be changed. What counts as a good value of Φ is what the variants that need
    no tuning have found.
    """
    ranked: list[Tuned] = []
    target = Target(norm2, runner.first_value)
    for i, variant in enumerate(runner.watch.each(variants)):
        runner.watch.say(f"tuning {variant.title} ({i + 1}/{len(variants)})")
        same, late = [e for e in ranked if e.variant.scheme == variant.scheme], runner.watch.over()
        if same and late:
            continue  # its scheme has a row
        rival = same[-1] if same and _draws(variant) else None  # with other steps of the loops
        entry = tuned(runner, variant, variant.center or scale, target, rival)
        if runner.watch.interrupted():
            break
        ranked.append(entry)
        if free and variant.scheme in BY_NAME and entry.is_lost and rival is None and not late:
            break
        if variant.search is None:
            target = Target(norm2, _bar(runner, ranked))
    return ranked


def refine(runner: Runner, ranked: Sequence[Tuned], target: Target) -> list[Tuned]:
    """All of them, finer; where measuring takes long, those that are not far behind.

    Of a scheme that misses the target the best one counts as well: a coarse number too large and
    the next too small are no proof that none arrives. The target may be another one than before.
    """
    runner.gauge.find_best([list(each.runs.values()) for each in ranked], target)
    least = min(each.score(target).cost for each in ranked)
    far = math.inf if runner.gauge.cheap else _FAR * least
    best = _best_of_schemes(ranked, [each.variant.scheme for each in ranked], target)
    missing = [id(each) for each in best if math.isinf(each.score(target).cost)]
    return [
        refined(runner, each, target)
        if each.began and (each.score(target).cost <= far or id(each) in missing)
        else each
        for each in runner.watch.each(ranked)
    ]


def finish(runner: Runner, known: Tuned, target: Target) -> Outcome:
    """A variant from all starts; after Ctrl-C, or where it never began, with what there is.

    A number may be too large for some starts and the best for the first: where it fails from some
    or does not arrive, or the first does better with the next smaller than most do with it, that
    one is run too.
    """
    best = number = known.best(target)
    runner.watch.say(f"repeating {known.variant.title}")
    outcomes: list[Outcome] = []
    while known.began and len(outcomes) < _MOST_REPEATED and not runner.watch.over():
        outcome = _repeat(runner, known, number, target)
        if runner.watch.over():
            break  # the run was cut short
        outcomes.append(outcome)
        number = known.smaller(number)
        if number is None or not _is_doubtful(outcome, known.runs.get(number)):
            break
    if not outcomes:
        return Outcome(known.variant, best, (known.runs[best],), target)

    def key(outcome: Outcome) -> tuple[bool, int, Score]:
        return math.isinf(outcome.score.cost), outcome.misses, outcome.score

    return min(outcomes, key=key)


def _is_doubtful(outcome: Outcome, smaller: MeasuredRun | None) -> bool:
    """Whether a smaller number may do better: from some starts it fails, or does not arrive."""
    behind = smaller is not None and smaller.score(outcome.target) < outcome.score
    return behind or (outcome.misses > 0 and outcome.misses != len(outcome.runs))


def _repeat(runner: Runner, known: Tuned, number: float | None, target: Target) -> Outcome:
    """The run from the first start, and those from the others."""
    first = [known.runs[number]] if number in known.runs else []
    width = 2 if len(runner.points) <= 3 else 4
    starts = [(number, point) for point in runner.points[len(first) :]]
    others = runner.runs(known.variant, starts, width=width)
    runner.gauge.find_arrivals(others, target)
    return Outcome(known.variant, number, (*first, *others), target)


def _bar(runner: Runner, ranked: Sequence[Tuned]) -> float:
    """The Φ that is asked for, by the ends of the runs so far: to pass by is not to arrive."""
    return value_bar(runner.first_value, least_of_schemes(ranked, lambda run: run.value[-1:]))


def least_of_schemes(
    ranked: Sequence[Tuned], numbers: Callable[[MeasuredRun], np.ndarray]
) -> list[float]:
    """The smallest of some measured numbers for each scheme; ∞ where all of its runs failed."""
    least = {each.variant.scheme: math.inf for each in ranked}
    for each in ranked:
        healthy = [run for run in each.runs.values() if not run.status.failed]
        known = [n for run in healthy for n in numbers(run) if not math.isnan(n)]
        least[each.variant.scheme] = min([*map(float, known), least[each.variant.scheme]])
    return list(least.values())


def best_shares(ranked: Sequence[Tuned], target: Target) -> list[Tuned]:
    """All variants, but of those on batches, which differ in their shares of 1/L, the best ones."""
    drawn = [each for each in ranked if _draws(each.variant)]
    best = _best_of_schemes(drawn, [each.variant.scheme for each in drawn], target)
    return [each for each in ranked if not _draws(each.variant) or each in best]


def _draws(variant: Variant) -> bool:
    return variant.scheme in BY_NAME and BY_NAME[variant.scheme].sampled


def _best_of_schemes(ranked: Sequence[Tuned], order: Sequence[str], target: Target) -> list[Tuned]:
    """The best variant of each scheme, in this order."""
    return [
        min(members, key=lambda each: each.score(target))
        for scheme in dict.fromkeys(order)
        if (members := [each for each in ranked if each.variant.scheme == scheme])
    ]
