"""compare: which loops pay on this problem, found out by running them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from biloop.comparison.candidates import Variant, batch_variants, own_variants, scheme_variants
from biloop.comparison.certificates import Certified, certificates_of
from biloop.comparison.gauge import Gauge, norms2
from biloop.comparison.race import race
from biloop.comparison.result import Comparison, Grid, Outcome
from biloop.comparison.rounds import (
    Final,
    Tuned,
)
from biloop.comparison.runs import Runner
from biloop.comparison.settings import (
    Loops,
    as_lengths,
    as_methods,
    as_seeds,
    call,
    check_settings,
    describe,
    settings,
    versions,
)
from biloop.comparison.terms import (
    RELATIVE,
    Point,
    Target,
    at_seed,
    first_step_size,
    spread_starts,
    truth_at,
)
from biloop.comparison.tuning import Steps, first_steps
from biloop.comparison.watch import Watch
from biloop.problem import Problem, check, refuse_kind
from biloop.run.arguments import as_plain, check_order, refuse_several

LOOPS = (1, 5, 20)
SEEDS = range(5)
BUDGET = 800
SAMPLED_BUDGET = 100  # passes
_POINTS = 7  # of each run that is reported, where measuring ‖∇Φ‖² is not cheap


def compare(
    problem: Problem,
    x0: Any,
    y0: Any,
    methods: Mapping[str, Any] | None = None,
    *,
    schemes: Sequence[str] | None = None,
    N: int | Sequence[int] = LOOPS,
    Q: int | Sequence[int] = LOOPS,
    inner_step: float | None = None,
    linear_step: float | None = None,
    seeds: Iterable[int] = SEEDS,
    budget: int | None = None,
    batch: int | None = None,
    seconds: float | None = None,
    target: float | None = None,
    certificates: bool = False,
    name: str = "this problem",
    description: str = "",
    progress: bool | None = None,
) -> Comparison:
    """Will the optimizer of this problem benefit from loops?

    The paper's schemes for AID and ITD with loops from `N` and `Q`, BA, loops that size themselves,
    and methods of your own, each with tuned step sizes, run from the same starts until they have
    spent `budget` gradients and products. They are judged by what they take to the x from which on
    ‖∇Φ(x)‖² ≤ `target`, measured apart from the runs. Ctrl-C ends the comparison with what is
    known.

    Parameters
    ----------
    problem : Problem
        The inner and the outer function with their data.
    x0, y0 : pytree of floating arrays, or functions of the seed
        Where to start. Unless they are functions, the first seed starts there and the others nearby
        (`terms.STARTS_RULE`).
    methods : dictionary from names to methods, optional
        Methods of your own: a `Method`, a pair of a method and an outer step, or a `Candidate`,
        which says what is to be tuned.
    schemes : sequence of names, optional
        The named schemes to run; by default all that `bl.schemes.TABLE` marks as compared.
    N, Q : int or sequence of int
        The lengths of the loops; 1 is always among them.
    inner_step, linear_step : number, optional
        The step sizes α and η of the loops, the same for all schemes. By default 1/L at the start,
        and less where a run proves that to be too long.
    seeds : iterable of int
        One run of each method for each of them.
    budget : int, optional
        Gradients and products together, for each run: 800, or 100 where rows are drawn, in passes
        over the samples.
    batch : int, optional
        The rows of a draw: then the methods that draw rows (those that `bl.schemes.TABLE` calls
        raced) run as well, and the verdict says whether sampling pays.
    seconds : number, optional
        About how long it may take. Each scheme has a share: where that is short it is tuned less
        closely, and its runs are cut short, which is said.
    target : number, optional
        The ‖∇Φ‖² to reach. By default `terms.TARGET_RULE`.
    certificates : bool
        Set the bounds of the theory beside the runs.
    name, description : str
        What the problem is called in tables.
    progress : bool, optional
        Show what is being done on standard error; by default after a few seconds.

    Returns
    -------
    Comparison
        It prints; `.verdict`, `.recommendation`, `.schemes`, `.traces`, `.to_json`, `.to_csv`,
        `.report`.

    Examples
    --------
    >>> made = bl.problems.quadratic(16.0, p=4, q=6)
    >>> found = bl.compare(made.problem, made.x0, made.y0, N=10, Q=10, seeds=[0], budget=100)
    >>> found["N-loop AID"].N
    10
    """
    check_order(problem, x0, y0, None)
    refuse_several("compare", (problem, x0, y0), "Give one of them data of its own.")
    loops, given = Loops(as_lengths(N, "N"), as_lengths(Q, "Q")), as_seeds(seeds)
    budget = (BUDGET if batch is None else SAMPLED_BUDGET) if budget is None else budget
    numbers = {"target": target, "inner_step": inner_step, "linear_step": linear_step}
    numbers["seconds"] = seconds
    check_settings(problem, budget, numbers, (name, description), certificates)
    seconds = as_plain(seconds)
    own = list(own_variants(as_methods(methods)))
    first = Point(at_seed(x0, given[0], "x0"), at_seed(y0, given[0], "y0"))
    check(problem, *first)
    refuse_kind(problem, ("minimum",), "compare", "Its schemes are for smooth minima.")

    with Watch(progress, seconds) as watch:
        watch.say("looking at the problem")
        truth = truth_at(Gauge(problem, first.y), first)
        start = float(norms2(truth)[0])
        steps = first_steps(problem, first, _only(truth.y), inner_step, linear_step)
        goal = RELATIVE * start if target is None else target
        gauge = Gauge(problem, first.y, start, goal, watch)
        scale = first_step_size(gauge, first, truth)
        points = spread_starts(x0, y0, given, _only(truth.y), scale * math.sqrt(start))
        runner = Runner(problem, points, float(truth.value[0]), int(budget), gauge, watch)

        def make(steps: Steps) -> list[Variant]:
            named = scheme_variants(schemes, *loops, steps.inner, steps.linear)
            drawn = batch_variants(problem, schemes, batch, *loops, steps.inner, steps.linear)
            return [*named, *drawn, *own]

        ranked, steps, aim, finals = race(runner, make, steps, scale, goal, target is None)
        outcomes = _outcomes(runner, finals, aim)
        grid = None if watch.interrupted() or watch.hurried else _grid(ranked, outcomes, loops, aim)
        certified: tuple[Certified, ...] = ()
        if certificates and not watch.interrupted():
            watch.say("estimating the constants of the theory")
            runs = {each.name: each.runs[0] for each in outcomes}
            certified = certificates_of(problem, first, truth, ranked, runs, aim.norm2)
    return Comparison(
        problem=describe(problem, first, name, description),
        target=aim.norm2,
        target_value=aim.value,
        budget=int(budget),
        seeds=tuple(given),
        schemes=tuple(outcomes),
        grid=grid,
        certificates=certified,
        settings=settings(steps, gauge, loops, given, first, target is not None),
        versions=versions(),
        command="",
        call=call(loops, given, int(budget), numbers, schemes, bool(own), batch),
        interrupted=watch.interrupted(),
        hurried=seconds if watch.hurried else None,
    )


def _outcomes(runner: Runner, finals: Sequence[Final], target: Target) -> list[Outcome]:
    """‖∇Φ‖² along all runs, where each arrives at the target, the times, and causes of failures.

    Where y is small, ‖∇Φ‖² is measured at every snapshot; otherwise a run that leaves the target
    for a moment between those where it was may pass for one that stays.
    """
    runs = [run for final in finals for run in final.runs]
    runner.watch.say("measuring along the runs")
    runner.gauge.along(runs, _POINTS)
    runner.gauge.find_arrivals(runs, target)
    outcomes = [_outcome(runner, final, target) for final in runner.watch.each(finals)]
    if any(each.is_lucky for each in outcomes):  # the verdict looks farther
        for smaller in target.smaller():
            runner.gauge.find_arrivals(runs, smaller)
    return outcomes


def _outcome(runner: Runner, final: Final, target: Target) -> Outcome:
    variant, number, runs = final
    runner.watch.say(f"timing {variant.title}")
    rate = runner.seconds_per_cost(variant, number, runs[0])
    failed = [run for run in runs if run.status.failed]
    cause = runner.cause(failed[0]) if failed else ""
    return Outcome(variant, number, tuple(runs), target, rate, cause)


def _grid(
    ranked: Sequence[Tuned], outcomes: Sequence[Outcome], loops: Loops, target: Target
) -> Grid | None:
    """The cost of each pair of loops: for those in the table as it stands there."""
    cost = np.full((len(loops.N), len(loops.Q)), np.inf)
    known = {each.variant: each.score(target).cost for each in ranked}
    known |= {each.variant: each.cost for each in outcomes}
    square = {v: c for v, c in known.items() if v.family == "AID"}
    for variant, entry in square.items():
        cost[loops.N.index(variant.N), loops.Q.index(variant.Q)] = entry
    return Grid(*loops, cost) if square else None


def _only(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), tree)
