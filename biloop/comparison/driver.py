"""compare: which loops pay on this problem, found out by running them.

1. tune     every candidate from the first start: nine outer step sizes, each with a fifth of the
            budget
2. rank     every candidate with its best step sizes and the whole budget; then the target is chosen
3. refine   every candidate with step sizes beside its best one; then each scheme gets the loops
            with which it reaches the target most cheaply
4. repeat   every scheme from all starts, and once more in `solve` for its time
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from biloop.comparison.arena import Arena
from biloop.comparison.candidates import candidates
from biloop.comparison.certificates import Certified, certify
from biloop.comparison.comparison import Comparison, Grid
from biloop.comparison.finals import finish, report
from biloop.comparison.judge import Judge
from biloop.comparison.measure import Truth
from biloop.comparison.outcome import Scheme
from biloop.comparison.race import Point
from biloop.comparison.rounds import Ranked, bar, best_of_schemes, least_of_schemes, rank, refine
from biloop.comparison.settings import Loops, call, describe, settings, versions
from biloop.comparison.starts import at_seed, spread_starts
from biloop.comparison.target import RELATIVE, Target, choose_norm2
from biloop.comparison.tuning import first_scale, rounded
from biloop.comparison.watch import Watch
from biloop.estimate import StepSizes, constants, step_sizes
from biloop.problem import Problem, check
from biloop.theory import Start
from biloop.vectors import norm, subtract, zeros_like

LOOPS = (1, 5, 20)
SEEDS = range(5)
BUDGET = 800
_PRODUCTS = 30  # of each look at a spectrum: one program for step sizes and constants


def compare(
    problem: Problem,
    x0: Any,
    y0: Any,
    *,
    N: int | Sequence[int] = LOOPS,
    Q: int | Sequence[int] = LOOPS,
    seeds: Iterable[int] = SEEDS,
    budget: int = BUDGET,
    target: float | None = None,
    certificates: bool = False,
    name: str = "this problem",
    description: str = "",
    progress: bool | None = None,
) -> Comparison:
    """Will the optimizer of this problem benefit from loops?

    The paper's schemes for AID and ITD with loops from `N` and `Q` (1 is always among them), BA,
    and loops that size themselves, each with tuned step sizes, run from the same starts until they
    have spent `budget` gradients and products. They are judged by what they take to the x from
    which on ‖∇Φ(x)‖² ≤ `target`, measured apart from the runs (None: `compare.target.RULE`).

    x0 and y0 may be functions of the seed. Otherwise the first seed starts at x0, y0 and the others
    nearby (`compare.starts.RULE`). `certificates` sets the bounds of the theory beside the runs.
    Ctrl-C ends the comparison with what is known.
    """
    loops, given = Loops(_lengths(N, "N"), _lengths(Q, "Q")), _seeds(seeds)
    _check_numbers(problem, budget, target)
    first = Point(at_seed(x0, given[0], "x0"), at_seed(y0, given[0], "y0"))
    check(problem, *first)

    with Watch(progress) as watch:
        watch.say("looking at the problem")
        sizes = _rounded(step_sizes(problem, *first, products=_PRODUCTS))
        truth = _truth(problem, first)
        start = float(truth.norm2[0])
        goal = RELATIVE * start if target is None else target
        judge = Judge(problem, first.y, start, goal)
        scale = first_scale(judge, first, truth)
        length = scale * math.sqrt(start)
        points = spread_starts(x0, y0, given, _only(truth.y), length)
        arena = Arena(problem, points, float(truth.value[0]), int(budget), judge, watch)

        ranked = rank(arena, candidates(*loops, sizes), scale, goal)
        if not ranked:
            raise KeyboardInterrupt
        value = bar(arena, ranked)
        if target is None:
            good = least_of_schemes(ranked, lambda s: s.norm2[-1:][s.value[-1:] <= value])
            goal = choose_norm2(start, good)
        aim = Target(goal, value)
        ranked = [refine(arena, each, aim) for each in ranked]
        finals = [finish(arena, each, aim) for each in best_of_schemes(ranked, aim)]
        schemes = report(arena, finals, aim)
        grid = None if watch.interrupted() else _grid(ranked, loops, aim)
        certified: tuple[Certified, ...] = ()
        if certificates and not watch.interrupted():
            watch.say("estimating the constants of the theory")
            certified = _certified(problem, first, truth, ranked, schemes, goal)
    return Comparison(
        problem=describe(problem, first, name, description),
        target=aim.norm2,
        target_value=aim.value,
        budget=int(budget),
        seeds=tuple(given),
        schemes=tuple(schemes),
        grid=grid,
        certificates=certified,
        settings=settings(sizes, start, loops, given, first, target is not None),
        versions=versions(),
        command="",
        call=call(loops, given, int(budget), target),
        interrupted=watch.interrupted(),
    )


def _truth(problem: Problem, first: Point) -> Truth:
    """∇Φ at the start, or why there is none to compare with."""
    anywhere = Judge(problem, first.y, math.inf, 0.0)
    x, y, v = (jax.tree.map(lambda a: a[None], part) for part in (*first, zeros_like(first.y)))
    truth = anywhere.truth(x, y, v)
    square = float(truth.norm2[0])
    if math.isnan(square):
        raise ValueError(
            "∇Φ cannot be measured at the start: the inner problem cannot be solved there. Check "
            "that g(x, ·) is strongly convex, or give a y0 closer to its minimiser."
        )
    if square == 0:
        raise ValueError("The start is stationary, ∇Φ(x0) = 0: give another x0.")
    return truth


def _grid(ranked: Sequence[Ranked], loops: Loops, target: Target) -> Grid:
    cost = np.full((len(loops.N), len(loops.Q)), np.inf)
    for each in ranked:
        if each.candidate.scheme.endswith("loop AID"):
            i, j = loops.N.index(each.candidate.N), loops.Q.index(each.candidate.Q)
            cost[i, j] = each.score(target).cost
    return Grid(*loops, cost)


def _certified(
    problem: Problem,
    first: Point,
    truth: Truth,
    ranked: Sequence[Ranked],
    schemes: Sequence[Scheme],
    target: float,
) -> tuple[Certified, ...]:
    """The bounds of the theory, if its constants can be estimated at all."""
    try:
        found = constants(problem, *first, samples=1, products=_PRODUCTS)
    except ValueError:
        return ()
    lowest = min(least_of_schemes(ranked, lambda sight: sight.value))
    gap = max(float(truth.value[0]) - lowest, 0.0)
    distance = float(norm(subtract(_only(truth.y), first.y)))
    return tuple(certify(schemes, found.constants, Start(gap, distance), target))


def _only(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), tree)


def _rounded(sizes: StepSizes) -> StepSizes:
    return sizes._replace(inner=rounded(float(sizes.inner)), linear=rounded(float(sizes.linear)))


def _lengths(given: int | Sequence[int], name: str) -> tuple[int, ...]:
    lengths = [given] if isinstance(given, int | np.integer) else list(given)
    for n in lengths:
        if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1:
            raise ValueError(f"{name} must be integers of at least 1, got {n!r}.")
    return tuple(sorted({1, *map(int, lengths)}))


def _seeds(seeds: Iterable[int]) -> list[int]:
    if not isinstance(seeds, Iterable):
        raise TypeError(f"seeds must be a sequence of integers such as range(5), got {seeds!r}.")
    given = list(seeds)
    for seed in given:
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
            raise ValueError(f"seeds must be integers of at least 0, got {seed!r}.")
    if not given or len(set(given)) < len(given):
        raise ValueError(f"seeds has no seed, or one twice: {given}.")
    return [int(seed) for seed in given]


def _check_numbers(problem: Any, budget: Any, target: Any) -> None:
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a biloop.Problem, got {type(problem).__name__}.")
    if not isinstance(budget, int | np.integer) or isinstance(budget, bool) or budget < 30:
        raise ValueError(f"budget must be an integer of at least 30, got {budget!r}.")
    if target is not None and not 0 < target < math.inf:
        raise ValueError(f"target must be a finite number greater than 0, got {target!r}.")
