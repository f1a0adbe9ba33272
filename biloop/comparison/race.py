"""The race of a comparison: every variant is tuned, and the best of each scheme from all starts.

1. tune     every variant from the first start: nine outer step sizes, each with a fifth of the
            budget
2. rank     every variant with its best step sizes and the whole budget; then the target is chosen
3. refine   every variant with step sizes beside its best one; then each scheme gets the loops
            with which it reaches the target most cheaply
4. finish   every scheme from all starts, and once more in `solve` for its time
"""

from collections import Counter
from collections.abc import Callable, Sequence

from biloop.comparison.candidates import Variant
from biloop.comparison.rounds import (
    Final,
    Tuned,
    bar,
    best_of_schemes,
    best_shares,
    finish,
    least_of_schemes,
    rank,
    refine,
)
from biloop.comparison.runs import Runner
from biloop.comparison.terms import Target, choose_norm2
from biloop.comparison.tuning import GIVEN, Steps, shortened
from biloop.schemes import BY_NAME

_ATTEMPTS = 6  # at step sizes of the loops, each at most half of the one before
_RANKING, _REFINING, _FINISHING = 0.6, 0.4, 0.8  # of the seconds that are left each time


def race(
    runner: Runner,
    make: Callable[[Steps], list[Variant]],
    steps: Steps,
    scale: float,
    goal: float,
    chosen: bool,
) -> tuple[list[Tuned], Steps, Target, list[Final]]:
    """All variants tuned, the step sizes of their loops, the target, and the best from all starts.

    The target is `goal`, unless it is to be `chosen` by how far they get.
    """
    watch = runner.watch
    with watch.within(_RANKING):
        ranked, steps = rank_with_stable_steps(runner, make, steps, scale, goal)
    value = bar(runner, ranked)
    if chosen:
        good = least_of_schemes(ranked, lambda run: run.norm2[-1:][run.value[-1:] <= value])
        goal = choose_norm2(runner.gauge.start, good)
    aim = Target(goal, value)
    with watch.within(_REFINING):
        ranked = refine(runner, best_shares(ranked, aim), aim)
    best = best_of_schemes(ranked, [variant.scheme for variant in make(steps)], aim)
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
        order = [v for v in reversed(variants) if v.search is None]
        order += [v for v in reversed(variants) if v.search is not None]
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
