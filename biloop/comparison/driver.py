"""compare: which loops pay on this problem, found out by running them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from biloop.comparison.candidates import Loops, Variant, named_variants, own_variants
from biloop.comparison.certificates import certificates_of
from biloop.comparison.measuring import Gauge, norms2
from biloop.comparison.payload import CertificatePayload, call, describe, settings, versions
from biloop.comparison.race import race
from biloop.comparison.result import Comparison, Grid, Outcome
from biloop.comparison.runs import ENDLESS, Runner, Watch
from biloop.comparison.terms import (
    RELATIVE,
    TARGET_RULE,
    Point,
    Steps,
    Target,
    at_seed,
    first_step_size,
    first_steps,
    spread_starts,
    truth_at,
)
from biloop.comparison.tuning import Tuned
from biloop.loops.results import Status
from biloop.problem import Problem, check, refuse_kind, refuse_other
from biloop.run.arguments import as_plain, check_order, number, refuse_several
from biloop.run.solve import solve
from biloop.schedules.arguments import MOST, as_flag, as_length, as_text, listed, shown

LOOPS = (1, 5, 20)
SEEDS = range(5)
BUDGET = 800
SAMPLED_BUDGET = 100  # passes
_BRIEF = 200  # gradients and products of a run for its time, if the whole would take ...
_LONG = 1.0  # ... more seconds than this
_ENOUGH = 0.3  # seconds of a run after which its time is taken as it is

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
    loops, given = Loops(_as_lengths(N, "N"), _as_lengths(Q, "Q")), _as_seeds(seeds)
    if budget is None:
        budget = BUDGET if batch is None else SAMPLED_BUDGET
    numbers = {"target": target, "inner_step": inner_step, "linear_step": linear_step}
    numbers["seconds"] = seconds
    _check(problem, budget, numbers)
    as_text("name")(name)
    as_text("description")(description)
    as_flag("certificates")(certificates)
    seconds = as_plain(seconds)
    own = list(own_variants(methods))
    first = Point(at_seed(x0, given[0], "x0"), at_seed(y0, given[0], "y0"))
    check(problem, *first)
    refuse_kind(problem, ("minimum",), "compare", "Its schemes are for smooth minima.")

    with Watch(progress, seconds) as watch:
        watch.say("looking at the problem")
        truth = truth_at(Gauge(problem, first.y, watch), first)
        start, solved = float(norms2(truth)[0]), jax.tree.map(lambda a: jnp.asarray(a[0]), truth.y)
        steps = first_steps(problem, first, solved, inner_step, linear_step)
        goal = RELATIVE * start if target is None else target
        gauge = Gauge(problem, first.y, watch, start, goal)
        scale = first_step_size(gauge, first, truth)
        points = spread_starts(x0, y0, given, solved, scale * math.sqrt(start))
        runner = Runner(problem, points, float(truth.value[0]), int(budget), gauge, watch)

        def make(steps: Steps) -> list[Variant]:
            return [*named_variants(problem, schemes, batch, loops, steps), *own]

        ranked, steps, aim, found = race(runner, make, steps, scale, goal, target is None)
        outcomes = _looked_at(runner, found, aim)
        grid = None if watch.interrupted() or watch.hurried else _grid(ranked, outcomes, loops, aim)
        certified: tuple[CertificatePayload, ...] = ()
        if certificates and not watch.interrupted():
            watch.say("estimating the constants of the theory")
            runs = {each.name: each.runs[0] for each in outcomes}
            certified = certificates_of(problem, first, truth, ranked, runs, aim.norm2)
    names, mine = None if schemes is None else list(schemes), "methods" if own else None
    arguments = {"N": loops.N, "Q": loops.Q, "seeds": given, "budget": int(budget), **numbers}
    arguments |= {"schemes": names, "methods": mine, "batch": batch}
    rule = TARGET_RULE if target is None else "‖∇Φ‖² is given"
    return Comparison(
        problem=describe(problem, first, name, description),
        target=aim.norm2,
        target_value=aim.value,
        budget=int(budget),
        seeds=tuple(given),
        schemes=tuple(outcomes),
        grid=grid,
        certificates=certified,
        settings=settings(steps, gauge, loops, given, first, rule),
        versions=versions(),
        command="",
        call=call(arguments),
        interrupted=watch.interrupted(),
        hurried=seconds if watch.hurried else None,
    )


def _looked_at(runner: Runner, found: Sequence[Outcome], target: Target) -> list[Outcome]:
    """With ‖∇Φ‖² along all runs, where each arrives, its time, and causes of failures.

    Where y is small, ‖∇Φ‖² is measured at every snapshot; otherwise a run that leaves the target
    for a moment between those where it was may pass for one that stays.
    """
    runs = [run for outcome in found for run in outcome.runs]
    runner.watch.say("measuring along the runs")
    runner.gauge.along(runs, _POINTS)
    runner.gauge.find_arrivals(runs, target)
    outcomes = []
    for each in runner.watch.each(found):
        runner.watch.say(f"timing {each.variant.title}")
        rate = _seconds_per_cost(runner, each)
        failed = [run for run in each.runs if run.status.failed]
        cause = runner.cause(failed[0]) if failed else ""
        outcomes.append(replace(each, rate=rate, cause=cause))
    if any(each.is_lucky for each in outcomes):  # the verdict looks farther
        for smaller in target.smaller():
            runner.gauge.find_arrivals(runs, smaller)
    return outcomes


def _seconds_per_cost(runner: Runner, outcome: Outcome) -> float:
    """The time of a gradient or product in `solve`: the least of three where runs are short.

    Where it is late, it is that of the first run, which was looked at so often.
    """
    if runner.watch.over():
        record = outcome.runs[0].record
        return record.seconds / max(float(record.cost.total), 1e-9)
    rate, _ = _timed(runner, outcome, min(runner.budget, _BRIEF))
    if rate * runner.budget > _LONG or runner.watch.over():
        return rate
    rates, total = [], 0.0
    while len(rates) < 3 and total < _ENOUGH and not runner.watch.over():
        rate, seconds = _timed(runner, outcome, runner.budget)
        rates.append(rate)
        total += seconds
    return min(rates, default=rate)


def _timed(runner: Runner, outcome: Outcome, budget: int) -> tuple[float, float]:
    """Seconds per gradient or product of a run, and in all."""
    method, outer = outcome.variant.at(outcome.number)
    run = solve(
        runner.problem,
        *runner.points[0],
        method,
        outer=outer,
        steps=ENDLESS,
        budget=budget,
        progress=False,
    )
    if run.status is Status.INTERRUPTED:
        runner.watch.stop()
    return run.seconds / max(float(run.cost.total), 1e-9), run.seconds


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


def _as_lengths(given: int | Sequence[int], name: str) -> tuple[int, ...]:
    """The lengths of a loop in order; 1 is always among them."""
    expected = "an integer of at least 1, or a sequence of them"
    lengths = [given] if isinstance(given, int | np.integer) else listed(given, name, expected)
    for n in lengths:
        if not _is_integer(n, 1):
            raise ValueError(f"{name} must be integers of at least 1, got {shown(n)}.")
    return tuple(sorted({1, *map(as_length(name), lengths)}))


def _as_seeds(seeds: Iterable[int]) -> list[int]:
    """The seeds as integers, each once."""
    given = listed(seeds, "seeds", "a sequence of integers such as range(5)")
    for seed in given:
        if not _is_integer(seed, 0):
            raise ValueError(f"seeds must be integers of at least 0, got {seed!r}.")
    if not given or len(set(given)) < len(given):
        raise ValueError(f"seeds has no seed, or one twice: {given}.")
    return [int(seed) for seed in given]


def _check(problem: Any, budget: Any, numbers: Mapping[str, Any]) -> None:
    """Refuse what is no problem, and no limits."""
    refuse_other(problem)
    if not _is_integer(budget, 30):
        raise ValueError(f"budget must be an integer of at least 30, got {shown(budget)}.")
    if budget > MOST:
        raise ValueError(f"budget must be at most {MOST}, got {shown(budget)}.")
    for name, value in numbers.items():
        if value is not None and not 0 < number(value, name) < math.inf:
            raise ValueError(f"{name} must be a finite number greater than 0, got {shown(value)}.")


def _is_integer(given: Any, least: int) -> bool:
    kind = isinstance(given, int | np.integer) and not isinstance(given, bool)
    return kind and int(given) >= least
