"""Which loops pay: what a comparison measures, decides and says, against independent truth."""

import csv
import itertools
import json
import math
import re
from functools import partial
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import biloop as bl
from biloop.comparison import starts, target, verdict
from biloop.comparison.candidates import ADAPTIVE, SCHEMES, candidates
from biloop.comparison.driver import BUDGET as DEFAULT_BUDGET
from biloop.comparison.driver import LOOPS
from biloop.comparison.judge import Judge, Score, Sight
from biloop.comparison.measure import CHANGE, SMALL
from biloop.comparison.outcome import Scheme, SeedRun, median
from biloop.comparison.race import SPACING, Point, Snapshot, Track, alone, race
from biloop.comparison.target import Target
from biloop.comparison.tuning import FINER, GRID, RATIO, outer_grid, tops, tune
from biloop.comparison.watch import Watch
from biloop.problems.synthetic import sparse_classes, sparse_regression
from biloop.report import comparison_payload
from biloop.report.comparison_table import comparison_text, plain_table
from biloop.results import Status
from biloop.run.trace import COLUMNS, Trace

LOOP, BUDGET, SEEDS = 10, 600, (0, 1)


def quadratic(kappa):
    """Small enough for dense algebra."""
    return bl.problems.quadratic(kappa, p=20, q=30, seed=0)


@pytest.fixture(scope="module")
def small():
    return quadratic(16.0)


@pytest.fixture(scope="module")
def comparison(small):
    """Loops of 1 and 10, two starts, a small budget: what --quick does."""
    return bl.compare(
        small.problem,
        small.x0,
        small.y0,
        N=LOOP,
        Q=LOOP,
        seeds=SEEDS,
        budget=BUDGET,
        certificates=False,
        name="a <quadratic> [bold]",
    )


# AID by hand, in NumPy and with ∇Φ in closed form


def run_by_hand(quadratic, N, Q, alpha, eta, beta, x, y, budget, keep=1.0):
    """‖∇Φ(x_k)‖² and Φ(x_k) for k = 0, 1, …, and the cost of a step."""
    A, B, c, D, t, E = (getattr(quadratic, name) for name in "ABcDtE")
    v = np.zeros_like(y)
    squares, values = [], []
    cost = N + 2 + Q + 1
    for _ in range(-(-budget // cost)):
        squares.append(np.sum(quadratic.hypergradient(x) ** 2))
        values.append(quadratic.value(x))
        for _ in range(N):
            y = y - alpha * (A @ y - B @ x - c)
        v = keep * v
        for _ in range(Q):
            v = v - eta * (A @ v - D @ (y - t))
        x = x - beta * (E @ x + B.T @ v)
        if not np.all(np.abs(x) < 1e100):
            return np.array([*squares, np.inf]), np.array([*values, np.inf]), cost
    squares.append(np.sum(quadratic.hypergradient(x) ** 2))
    values.append(quadratic.value(x))
    return np.array(squares), np.array(values), cost


def cost_by_hand(quadratic, N, Q, alpha, beta, aim, x, y, budget):
    """Gradients and products to the x from which on the run is at the target."""
    squares, values, cost = run_by_hand(quadratic, N, Q, alpha, alpha, beta, x, y, budget)
    return cost * arrival(squares, values, aim)


def arrival(squares, values, aim):
    """The k from which on a run is at the target."""
    off = np.flatnonzero(~((squares <= aim.norm2) & (values <= aim.value)))
    arrived = off[-1] + 1 if len(off) else 0
    return arrived if arrived < len(squares) else math.inf


def aim_of(comparison):
    return Target(comparison.target, comparison.target_value)


def aid_schemes(comparison):
    return [scheme for scheme in comparison.schemes if scheme.name.endswith("loop AID")]


def test_all_schemes_are_there(comparison):
    assert tuple(scheme.name for scheme in comparison.schemes) == SCHEMES
    assert all(len(scheme.runs) == len(SEEDS) for scheme in comparison.schemes)
    assert {(s.N, s.Q) for s in aid_schemes(comparison)} == {(1, 1), (10, 1), (1, 10), (10, 10)}


def test_what_a_run_measures_is_the_truth(comparison, small):
    """Against the same run by hand: ‖∇Φ‖² and Φ where they were measured, and the cost."""
    quadratic = small
    alpha = comparison.settings["inner step size"]
    for scheme in aid_schemes(comparison):
        run = scheme.runs[0]
        squares, values, cost = run_by_hand(
            quadratic, scheme.N, scheme.Q, alpha, alpha, scheme.outer_step,
            np.asarray(small.x0), np.asarray(small.y0), BUDGET,
        )  # fmt: skip
        known = np.isfinite(run.norm2)
        assert known.sum() >= 5
        np.testing.assert_allclose(run.norm2[known], squares[run.steps[known]], rtol=1e-6)
        np.testing.assert_allclose(run.value[known], values[run.steps[known]], rtol=1e-9)
        assert np.array_equal(run.track.cost, cost * run.steps)


def test_the_cost_to_the_target_is_that_of_arriving_there(comparison, small):
    """To the spacing of the snapshots, and to one step."""
    alpha, aim = comparison.settings["inner step size"], aim_of(comparison)
    reached = 0
    for scheme in aid_schemes(comparison):
        start = np.asarray(small.x0), np.asarray(small.y0)
        by_hand = cost_by_hand(
            small, scheme.N, scheme.Q, alpha, scheme.outer_step, aim, *start, BUDGET
        )
        cost, step = scheme.costs[0], scheme.N + scheme.Q + 3
        assert math.isinf(cost) == math.isinf(by_hand)
        if math.isfinite(by_hand):
            reached += 1
            assert (by_hand - step) / SPACING <= cost <= SPACING * by_hand + step
    assert reached >= 2


def test_the_step_size_is_nearly_the_best(comparison, small):
    """Against all step sizes, four times as finely, by hand: each scheme with its own loops."""
    alpha, aim = comparison.settings["inner step size"], aim_of(comparison)
    start = np.asarray(small.x0), np.asarray(small.y0)
    for scheme in aid_schemes(comparison):
        costs = [
            cost_by_hand(small, scheme.N, scheme.Q, alpha, beta, aim, *start, BUDGET)
            for beta in 10.0 ** np.arange(-3, 1, 1 / 12)
        ]
        if math.isfinite(scheme.costs[0]):
            assert scheme.costs[0] <= RATIO * SPACING * min(costs)
        else:
            assert min(costs) > 0.8 * BUDGET  # just within it, or not at all


@pytest.fixture(scope="module")
def exhaustive(comparison, small):
    """The smallest cost to the target for each (N, Q), over step sizes 10 % apart.

    And over those that were found: good ones may lie in a narrower interval.
    """
    alpha, aim = comparison.settings["inner step size"], aim_of(comparison)
    start = np.asarray(small.x0), np.asarray(small.y0)
    return {
        (scheme.N, scheme.Q): min(
            cost_by_hand(small, scheme.N, scheme.Q, alpha, beta, aim, *start, BUDGET)
            for beta in (scheme.outer_step, *10.0 ** np.arange(-3, 1, 1 / 24))
        )
        for scheme in aid_schemes(comparison)
    }


def test_the_verdict_agrees_with_all_cells_by_hand(comparison, exhaustive):
    assert_verdict_follows(comparison, exhaustive)


def assert_verdict_follows(comparison, costs):
    """From the smallest cost to the target of each (N, Q)."""
    n_sentence, q_sentence, *_ = comparison.verdict
    for sentence, having, lacking in (
        (n_sentence, [(10, 1), (10, 10)], [(1, 1), (1, 10)]),
        (q_sentence, [(1, 10), (10, 10)], [(1, 1), (10, 1)]),
    ):
        gain = min(costs[cell] for cell in lacking) / min(costs[cell] for cell in having)
        # What tuning and snapshots may be off by cannot be told from no difference.
        if gain > RATIO:
            assert " pays: " in sentence
        elif gain < 1 / RATIO:
            assert " does not pay: " in sentence


def grid_by_hand(problem, x0, y0, N, Q, alpha, betas, budget):
    """‖∇Φ(x_k)‖² and Φ(x_k) of AID for each β: plain JAX, and ∇Φ by Newton's method and dense
    algebra.
    """

    def g(x, y):
        return problem.inner(x, y, *problem.inner_data)

    def f(x, y):
        return problem.outer(x, y, *problem.outer_data)

    slope, hessian = jax.grad(g, argnums=1), jax.hessian(g, argnums=1)

    def hypergradient(x, y, v):
        return jax.grad(f)(x, y) - jax.grad(lambda x: slope(x, y) @ v)(x)

    def step(beta, state, _):
        x, y, v = state
        for _ in range(N):
            y = y - alpha * slope(x, y)
        b = jax.grad(f, argnums=1)(x, y)
        for _ in range(Q):
            v = v - alpha * (jax.jvp(lambda y: slope(x, y), (y,), (v,))[1] - b)
        return (x - beta * hypergradient(x, y, v), y, v), x

    @jax.jit
    @jax.vmap
    def run(beta):
        start = x0, y0, 0 * y0
        return jax.lax.scan(partial(step, beta), start, length=budget // (N + Q + 3))[1]

    xs = run(jnp.asarray(betas)).reshape(-1, *x0.shape)
    xs = jnp.where(jnp.abs(xs) < 100, xs, 100)  # diverged: far from any target, and finite
    ys = jnp.broadcast_to(y0, (len(xs), *y0.shape))
    slopes, hessians = jax.jit(jax.vmap(slope)), jax.jit(jax.vmap(hessian))
    for _ in range(15):
        ys = ys - solve_each(hessians(xs, ys), slopes(xs, ys))
    vs = solve_each(hessians(xs, ys), jax.vmap(jax.grad(f, argnums=1))(xs, ys))
    squares = jnp.sum(jax.vmap(hypergradient)(xs, ys, vs) ** 2, axis=1)
    values = jax.vmap(f)(xs, ys)
    return [np.asarray(each).reshape(len(betas), -1) for each in (squares, values)]


def solve_each(matrices, vectors):
    return np.linalg.solve(matrices, np.asarray(vectors)[..., None])[..., 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "made",
    [
        bl.problems.ridge(*sparse_regression(60, 40, relevant=8, noise=1.0, spread=1.0, seed=0)),
        bl.problems.logistic(*sparse_classes(100, 40, relevant=8, noise=1.0, seed=0), x0=-3.0),
        quadratic(4.0),
    ],
    ids=["ridge", "logistic", "quadratic"],
)
def test_the_verdict_agrees_with_an_exhaustive_grid(made):
    """All (N, Q) with 25 outer step sizes each, by code that shares nothing with the library."""
    found = bl.compare(made.problem, made.x0, made.y0, N=LOOP, Q=LOOP, seeds=SEEDS, budget=BUDGET)
    alpha, aim = found.settings["inner step size"], aim_of(found)
    chosen = [scheme.outer_step for scheme in aid_schemes(found)]
    betas = math.sqrt(min(chosen) * max(chosen)) * 10.0 ** np.arange(-2, 2.01, 1 / 6)
    costs = {}
    for N, Q in itertools.product((1, LOOP), repeat=2):
        seen = grid_by_hand(made.problem, made.x0, made.y0, N, Q, alpha, betas, BUDGET)
        runs = zip(*seen, strict=True)
        costs[N, Q] = min((N + Q + 3) * arrival(*run, aim) for run in runs)
    assert min(costs.values()) < BUDGET
    assert_verdict_follows(found, costs)


def test_the_heat_map_has_the_costs_of_all_cells(comparison, exhaustive):
    costs, grid = exhaustive, comparison.grid
    assert grid.N == grid.Q == (1, LOOP)
    for i, N in enumerate(grid.N):
        for j, Q in enumerate(grid.Q):
            assert grid.cost[i, j] >= costs[N, Q] / SPACING
            if costs[N, Q] < 0.5 * BUDGET:
                assert grid.cost[i, j] <= RATIO * SPACING * costs[N, Q]


def test_the_sentences_have_the_numbers_of_the_table(comparison):
    text = " ".join(comparison.verdict)
    chosen = verdict.recommended(comparison.schemes)
    for unit in ("gradients", "products"):
        assert f"{chosen.to_target(unit):,.0f} {unit}" in text
    for scheme in comparison.schemes:
        if scheme.status == "floored":
            assert f"{scheme.name} ({scheme.loops}) stagnates" in text
    assert f"method = {chosen.code}\n" in comparison.recommendation
    assert f"outer={chosen.outer}," in comparison.recommendation


def test_the_line_of_code_does_what_the_table_says(comparison, small):
    for scheme in comparison.schemes:
        run = eval(  # what a user would paste
            f"bl.solve(problem, x0, y0, {scheme.code}, outer={scheme.outer}, "
            f"steps=10**6, budget={BUDGET})",
            {"bl": bl, "problem": small.problem, "x0": small.x0, "y0": small.y0},
        )
        assert run.cost == scheme.runs[0].trace.cost
        np.testing.assert_allclose(
            run.trace["value"][:5], scheme.runs[0].trace["value"][:5], rtol=1e-6
        )


# payload, files and words


def assert_has_type(value, hint):
    if get_origin(hint) is list:
        assert isinstance(value, list)
        for entry in value:
            assert_has_type(entry, *get_args(hint))
    elif get_origin(hint) is dict:
        assert isinstance(value, dict)
        for key, entry in value.items():
            assert_has_type(key, get_args(hint)[0])
            assert_has_type(entry, get_args(hint)[1])
    elif hasattr(hint, "__required_keys__"):
        fields = get_type_hints(hint)
        assert value.keys() == fields.keys()
        for name, inside in fields.items():
            assert_has_type(value[name], inside)
    elif get_args(hint):  # a union
        assert any(_has_type(value, option) for option in get_args(hint)), (value, hint)
    elif hint is float:
        assert isinstance(value, int | float)
        assert math.isfinite(value)
    else:
        assert isinstance(value, hint), (value, hint)


def _has_type(value, hint):
    try:
        assert_has_type(value, hint)
    except AssertionError:
        return False
    return True


def test_the_payload_is_plain_and_survives_json(comparison, tmp_path):
    payload = comparison.payload()
    assert_has_type(payload, comparison_payload.ComparisonPayload)
    text = comparison.to_json(tmp_path / "out.json")
    assert json.loads(text) == payload == json.loads((tmp_path / "out.json").read_text("utf-8"))
    for scheme in payload["schemes"]:
        for seed in scheme["seeds"]:
            assert len({len(column) for column in seed.values()}) == 1
            assert seed["k"] == sorted(set(seed["k"]))
            assert seed["k"][0] == seed["gradients"][0] == seed["products"][0] == 0
        low, high = scheme["spread"]["gradients"]
        assert low <= scheme["gradients"] <= high


def test_table_csv_and_pandas(comparison, tmp_path):
    comparison.to_csv(tmp_path / "out.csv")
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(SCHEMES) * len(SEEDS)
    frame = comparison.to_pandas()
    assert list(frame["scheme"]) == [row["scheme"] for row in rows]
    assert list(frame["seed"]) == list(SEEDS) * len(SCHEMES)
    for row, gradients in zip(rows, frame["gradients_to_target"], strict=True):
        assert (row["gradients_to_target"] == "") == np.isnan(gradients)
    assert set(comparison.traces) == set(SCHEMES)
    assert (
        comparison.traces["BA"][1].cost.gradients == comparison["BA"].runs[1].spent("gradients")[-1]
    )
    with pytest.raises(KeyError, match="there are No-loop AID"):
        comparison["nothing"]


def test_it_prints_with_rich_and_without(comparison, monkeypatch):
    shown = repr(comparison)
    assert "a <quadratic> [bold]" in shown
    assert comparison.recommendation in shown
    assert "…" not in shown
    rich = [line.split() for line in shown.splitlines() if line.startswith("N-Q-loop AID")]
    plain = [line.split() for line in plain_table(comparison.payload()).splitlines()]
    assert rich[0] in plain
    monkeypatch.setitem(__import__("sys").modules, "rich", None)
    assert plain_table(comparison.payload()) in comparison_text(comparison.payload())


def test_the_report_is_a_page_with_the_name_escaped(comparison, tmp_path):
    page = comparison.report(tmp_path / "out.html").read_text("utf-8")
    assert "a <quadratic>" not in page
    assert "Adaptive" in page


# the parts


def test_measuring_by_conjugate_gradients(small):
    """Where y is not small: ∇Φ to 1 %, against the closed form."""
    quadratic = bl.problems.quadratic(30.0, p=3, q=SMALL + 6)
    x = np.stack([np.asarray(quadratic.x0) * s for s in (1.0, 2.0, -1.0, 5.0)])
    y = np.zeros((4, SMALL + 6))
    judge = Judge(quadratic.problem, quadratic.y0, math.inf, 0.0)
    truth = judge.truth(x, y, y)
    for i in range(4):
        exact = quadratic.hypergradient(x[i])
        assert np.linalg.norm(truth.h[i] - exact) <= 0.01 * np.linalg.norm(exact)
        np.testing.assert_allclose(truth.value[i], quadratic.value(x[i]), rtol=1e-2)


@pytest.mark.slow
def test_runs_side_by_side_are_the_runs_alone(small):
    """The same snapshots to rounding, for a number of runs that does not fill the program."""
    sizes = bl.estimate.StepSizes(0.05, 0.05, 10.0, 1.0)
    method = candidates((1, 3), (1, 3), sizes)[-2].method
    starts = [(outer, Point(small.x0 + i, small.y0)) for i, outer in enumerate((0.01, 0.02, 0.05))]
    together = race(small.problem, method, starts, 200, lambda: False, 1.3, width=2)
    for start, track in zip(starts, together, strict=True):
        single = alone(small.problem, method, *start, 200, lambda: False, 1.3)
        assert np.array_equal(track.cost, single.cost)
        assert track.status is single.status
        np.testing.assert_allclose(track.snapshots[-1].x, single.snapshots[-1].x, rtol=1e-9)


def test_the_outer_step_is_found_inside_or_beyond_the_grid():
    def scores(best):
        return lambda steps: [Score(math.inf, 0.0, abs(math.log(step / best))) for step in steps]

    assert len(outer_grid(1.0)) == GRID
    for best in (1.0, 0.2, 1e-5, 3e4):
        step, *_ = tops(tune(scores(best), scale=1.0))
        assert best / FINER / 1.01 <= step <= best * FINER * 1.01

    def only_small(steps):
        bad = Score(math.inf, math.inf, math.inf)
        return [Score(math.inf, 0.0, -step) if step < 1e-4 else bad for step in steps]

    assert tops(tune(only_small, scale=1.0))[0] < 1e-4

    def two_hills(steps):
        return [Score(math.inf, 0.0, abs(math.log(step / 0.1)) * abs(math.log(step / 40) - 1))
                for step in steps]  # fmt: skip

    assert len(tops(tune(two_hills, scale=1.0))) == 2


def test_the_target_follows_its_rule():
    start = 100.0
    # Half of the schemes get further than 1e-4 of the start: that it is.
    assert target.choose_norm2(start, [1e-9, 1e-3, 5.0, math.inf]) == 0.01
    # Otherwise one and a half times what half of them get to, rounded up.
    assert target.choose_norm2(start, [1e-9, 0.2, 5.0, math.inf]) == 0.3
    assert target.choose_norm2(start, [math.inf, math.inf, math.inf]) == 50.0
    assert target.value_bar(10.0, [0.0, 0.2, 9.0, math.inf]) == pytest.approx(0.5)
    assert target.value_bar(10.0, [0.0, 4.0, 9.0, math.inf]) == 4.0
    assert target.value_bar(10.0, []) == 10.0
    assert median([1.0, math.inf]) == math.inf
    assert median([3.0, 1.0, 2.0]) == 2.0


def test_starts_lie_around_the_given_one_or_come_from_a_function(small):
    x0, y0 = np.arange(3.0), np.zeros(2)
    points = starts.spread_starts(x0, y0, [4, 5], np.array([3.0, 4.0]), length=2.0)
    assert np.array_equal(points[0].x, x0)
    assert np.linalg.norm(points[1].x - x0) == pytest.approx(0.2)
    assert np.linalg.norm(points[1].y - y0) == pytest.approx(0.5)
    again = starts.spread_starts(x0, y0, [4, 5], np.array([3.0, 4.0]), length=2.0)
    assert np.array_equal(points[1].x, again[1].x)
    drawn = starts.spread_starts(lambda seed: x0 + seed, y0, [4, 5], y0, length=2.0)
    assert np.array_equal(drawn[1].x, x0 + 5)


def made_up(cost_per_step, norm2, value=None, status=Status.BUDGET_SPENT, aim=None):
    """A run with this ‖∇Φ‖² after 0, 1, 2, … steps."""
    steps = len(norm2) - 1
    columns = {name: np.zeros(steps) for name in COLUMNS}
    columns["gradients"] = cost_per_step * np.arange(1, steps + 1)
    snapshots = tuple(Snapshot(k, 0.0, 0.0, 0.0) for k in range(steps + 1))
    sight = Sight(Track(snapshots, Trace(columns), status))
    sight.norm2[:] = norm2
    sight.value[:] = np.zeros(steps + 1) if value is None else value
    sight.looked[:] = True
    aim = aim or Target(0.1, 1.0)
    return SeedRun(sight.track, sight.norm2, sight.value, aim, sight.hit(aim), rate=1e-3)


@given(arrival=st.integers(1, 40), guess=st.integers(0, 41), last=st.integers(40, 60))
def test_the_arrival_is_found_whatever_the_run_believes_of_itself(arrival, guess, last):
    """By few looks where its own ‖h‖² is right, and by halving where it is not."""
    columns = {name: np.zeros(last) for name in COLUMNS}
    columns["hypergradient_norm"] = np.where(np.arange(last) < guess, 1.0, 0.0)
    snapshots = tuple(Snapshot(k, 0.0, 0.0, 0.0) for k in range(last + 1))
    sight, aim = Sight(Track(snapshots, Trace(columns), Status.BUDGET_SPENT)), Target(0.1, 1.0)
    while (j := sight.missing(aim)) is not None:
        assert not sight.looked[j]
        sight.looked[j], sight.norm2[j], sight.value[j] = True, float(j < arrival), 0.0
    assert sight.hit(aim) == arrival
    assert np.sum(sight.looked) <= (3 if guess == arrival else 10)


def test_how_a_run_ended():
    assert made_up(10, [1.0, 0.5, 0.01, 0.02]).status == "converged"
    assert made_up(10, [1.0, 0.5, 0.01, 0.02]).cost == 20
    # Who comes by and leaves again has not arrived.
    assert made_up(10, [1.0, 0.01, 0.5, 0.02]).cost == 30
    assert made_up(10, [1.0, 0.01, 0.5, 0.5]).hit is None
    assert made_up(10, [1.0, 0.9, 0.8, 0.4, 0.2]).status == "budget spent"
    assert made_up(10, [1.0, 0.5, 0.5, 0.49, 0.48]).status == "floored"
    assert made_up(10, [1.0, 0.5, 20.0]).status == "diverged"
    assert made_up(10, [1.0, 0.5], status=Status.UPDATE_NOT_FINITE).status == "diverged"
    # A gradient that vanishes far away, at a value that is worth nothing, is not the target.
    assert made_up(10, [1.0, 0.01, 0.001], value=[5.0, 5.0, 5.0]).hit is None


def scheme(name, costs, N=1, Q=1, outer=0.1):
    """A scheme that needs so much to the target from each start; None: never."""
    runs = [made_up(1, [1.0] * 5) if cost is None else made_up(cost, [1.0, 0.01]) for cost in costs]
    return Scheme(name, f"code of {name}", N, Q, outer, tuple(runs))


def said(**costs):
    names = {"no": (1, 1), "n": (9, 1), "q": (1, 9), "nq": (9, 9)}
    schemes = [
        scheme(
            {"no": "No-loop AID", "n": "N-loop AID", "q": "Q-loop AID", "nq": "N-Q-loop AID"}[key],
            entry,
            *names[key],
        )
        for key, entry in costs.items()
        if key in names
    ]
    if "auto" in costs:
        schemes.append(scheme(ADAPTIVE, costs["auto"], outer=None))
    return verdict.verdict(schemes, 1000), verdict.recommended(schemes).name


def test_the_verdict_in_words():
    both = {"q": [500, 500], "nq": [400, 400]}
    words, _ = said(no=[300, 330], n=[100, 100], **both)
    assert words[0].startswith("An N-loop pays: the best without one, No-loop AID (N = 1, Q = 1)")
    assert "takes 3.3 times (3.0 to 3.3 over the seeds)" in words[0]
    assert "100 gradients instead of 330" in words[0]
    assert "0.1 s instead of 0.33 s" in words[0]
    assert words[1].startswith("A Q-loop does not pay: the best with one, N-Q-loop AID")

    words, _ = said(no=[100, 100], n=[105, 90], **both)
    assert words[0].startswith("An N-loop makes no difference beyond the noise")
    assert "which is within the noise" in words[-1]

    words, _ = said(no=[100, 400], n=[150, 150], **both)  # the starts do not agree
    assert words[0].startswith("An N-loop makes no difference beyond the noise")

    words, _ = said(no=[None, None], n=[100, 100], q=[None, 300], nq=[100, 100])
    assert words[0].startswith("An N-loop pays: N-loop AID (N = 9, Q = 1) takes 100 gradients")
    assert "which no AID scheme without one reaches from most starts" in words[0]

    words, _ = said(no=[90, 90], n=[None, None], q=[100, 100], nq=[None, None])
    assert words[0].startswith("An N-loop does not pay: No-loop AID (N = 1, Q = 1) takes 90")

    nobody = {key: [None, None] for key in ("no", "n", "q", "nq")}
    words, _ = said(**nobody)
    assert words[0].startswith("An N-loop: not decided, as no AID scheme reaches the target")
    assert "No-loop AID (N = 1, Q = 1) stagnates before the target, at ‖∇Φ‖² = 1." in words
    assert "nobody reaches the target from most starts" in words[-1]


def test_who_is_recommended():
    few = {"no": [300, 300], "n": [100, 100], "q": [500, 500], "nq": [400, 400]}
    assert said(**few, auto=[300, 300])[1] == "N-loop AID"
    # Within the noise of the cheapest, what needs no tuning wins.
    assert said(**few, auto=[104, 108])[1] == ADAPTIVE
    assert said(**few, auto=[80, 80])[1] == ADAPTIVE
    assert said(no=[None], n=[None], auto=[50])[1] == ADAPTIVE


def test_loops_that_are_not_asked_for_are_left_out():
    sizes = bl.estimate.StepSizes(0.1, 0.1, 10.0, 1.0)
    names = {each.scheme for each in candidates((1,), (1, 5), sizes)}
    assert names == {"No-loop AID", "Q-loop AID", "No-loop ITD", "BA", ADAPTIVE}


# bad input, and Ctrl-C


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"N": 0}, "N must be integers of at least 1, got 0"),
        ({"Q": [1, 2.5]}, "Q must be integers of at least 1, got 2.5"),
        ({"seeds": 3}, "seeds must be a sequence of integers such as range"),
        ({"seeds": [0, 0]}, "seeds has no seed, or one twice"),
        ({"seeds": [-1]}, "seeds must be integers of at least 0, got -1"),
        ({"budget": 3}, "budget must be an integer of at least 30, got 3"),
        ({"target": 0.0}, "target must be a finite number greater than 0, got 0.0"),
    ],
)
def test_bad_arguments_are_refused_first(small, arguments, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        bl.compare(small.problem, small.x0, small.y0, **arguments)


def test_a_start_that_is_stationary_is_refused():
    quadratic = bl.problems.quadratic(16.0, p=20, q=30)
    problem = bl.Problem(
        quadratic.problem.inner,
        lambda x, y, d: 0.0 * d["A"][0, 0] * y[0] + 0.0 * x[0],
        inner_data=quadratic.problem.inner_data,
        outer_data=quadratic.problem.outer_data,
    )
    with pytest.raises(ValueError, match="The start is stationary"):
        bl.compare(problem, quadratic.x0, quadratic.y0)
    with pytest.raises(TypeError, match=r"problem must be a biloop\.Problem"):
        bl.compare(quadratic, quadratic.x0, quadratic.y0)


def test_an_interrupted_comparison_says_what_is_known(small, monkeypatch):
    asked = []

    def interrupted(self):
        asked.append(0)
        return len(asked) > 250

    monkeypatch.setattr(Watch, "interrupted", interrupted)
    found = bl.compare(
        small.problem, small.x0, small.y0, N=LOOP, Q=LOOP, seeds=SEEDS, budget=BUDGET
    )
    assert found.interrupted
    assert found.verdict[0].startswith("Interrupted")
    assert 0 < len(found.schemes) <= len(SCHEMES)
    assert all(len(each.runs) == 1 for each in found.schemes)
    assert found.grid is None
    assert json.loads(found.to_json()) == found.payload()

    # While the schemes are repeated from all starts: some have been, the others not.
    said = []
    monkeypatch.setattr(Watch, "say", lambda self, what: said.append(what))
    monkeypatch.setattr(
        Watch,
        "interrupted",
        lambda self: sum(what.startswith("repeating") for what in said) > 3,
    )
    found = bl.compare(small.problem, small.x0, small.y0, N=LOOP, Q=LOOP, seeds=SEEDS, budget=100)
    assert [len(each.runs) for each in found.schemes] == [2, 2, 2, 1, 1, 1, 1, 1]
    assert "Interrupted" in str(found)

    monkeypatch.setattr(Watch, "interrupted", lambda self: True)
    with pytest.raises(KeyboardInterrupt):
        bl.compare(small.problem, small.x0, small.y0, N=LOOP, Q=LOOP, budget=BUDGET)


@pytest.mark.slow
def test_the_code_of_the_page_runs(tmp_path, monkeypatch):
    page = (Path(__file__).parents[1] / "docs" / "compare.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(block, {})
    assert (tmp_path / "runs.csv").exists()


def test_numbers_on_the_page_are_those_of_the_code():
    page = (Path(__file__).parents[1] / "docs" / "compare.md").read_text(encoding="utf-8")
    assert f"by default from {', '.join(map(str, LOOPS))}" in page
    assert f"(default {DEFAULT_BUDGET:,})" in page
    assert f"at most {SMALL} entries" in page
    assert f"changes by less than {100 * CHANGE:.0f} %" in page
