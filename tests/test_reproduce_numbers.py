"""The numbers behind biloop reproduce: against closed forms, printed digits and plain solves."""

import csv
import json
import math
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("matplotlib")

import biloop as bl
from biloop.cli.main import main
from biloop.data import digits, split
from biloop.paper import TARGETS, Options, costs, figure1, reproduce, table3
from biloop.paper.figure1_data import given, observe
from biloop.paper.lanes import side_by_side
from biloop.paper.path import outer_variable, values, watch
from biloop.paper.race import SETTLED, Score, field, race
from biloop.paper.table3_claims import agrees
from biloop.paper.work import Silent, Work
from biloop.run.step import Row, Settings
from biloop.schemes import ba, n_q_loop

from .engines import begun, engine_of


@pytest.fixture(autouse=True, scope="module")
def no_cache_of_programs():
    """Tests leave nothing in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BILOOP_CACHE", "off")
        yield


def contents(folder, name):
    """The section of a target, and its rows."""
    found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    with (folder / f"{name}.csv").open(encoding="utf-8") as file:
        return found["section"], list(csv.DictReader(file))


# what runs cost


def solved(method, steps):
    """Gradients and products that `solve` counts."""
    at = bl.problems.quadratic(4.0)
    run = bl.solve(at.problem, at.x0, at.y0, method, outer=0.1, steps=steps, progress=False)
    return int(run.cost.gradients), int(run.cost.products)


def test_costs_are_those_that_solve_counts():
    N, Q, K = 3, 2, 5
    aid = n_q_loop(N, Q, inner_step=0.5, linear_step=0.5)
    itd = bl.ITD(bl.GradientDescent(0.5, N))
    assert costs.aid(N, Q).cost(K) == solved(aid, K) == (K * (N + 2), K * (Q + 1))
    assert costs.itd(N, 10).cost(K) == solved(itd, K) == (K * (N + 2), 2 * K * N)
    bilevel = ba(Q, inner_step=0.5, linear_step=0.5)
    assert costs.ba_scheme(Q, 10).cost(40) == solved(bilevel, 40)
    assert figure1.cost(N, Q) == sum(solved(aid, 1))
    assert costs.aid(N, Q).cost(math.inf) == (math.inf, math.inf)
    assert costs.aid(N, 1).etas == costs.ETAS  # one step of the Q-loop: η is tuned
    for scheme in (costs.aid(N, 2), costs.itd(N, 10), costs.ba_scheme(Q, 10)):
        assert scheme.etas == (1.0,)
    assert (costs.itd(N, 10).most, costs.ba_scheme(Q, 12).most) == (10, 12)
    assert costs.ba_scheme(Q, 10).cost(math.inf) == (math.inf, math.inf)


def test_the_curves_of_figure_1_have_their_cost_beside_them():
    runs = [{"k": np.array([0, 4]), "test_loss": np.array([[9.0, 8.0], [7.0, i]])} for i in (1, 3)]
    columns = figure1.columns_of(runs, 1, (20, 1))
    np.testing.assert_array_equal(columns["outer iterations"], [1, 5])
    np.testing.assert_array_equal(columns["gradients"], [22, 110])
    np.testing.assert_array_equal(columns["products"], [2, 10])
    np.testing.assert_array_equal(columns["cost"], [24, 120])
    np.testing.assert_array_equal(columns["test_loss"], [[7, 1], [7, 3]])


def test_a_typical_cost_is_a_geometric_mean():
    gradients = {"mean": np.array([[1.0, 100.0], [40.0, 90.0]]), "first": np.ones((2, 2))}
    products = {"mean": np.array([[2.0, 8.0], [1.0, 4.0]]), "first": np.ones((2, 2))}
    measured = costs.Measured((4.0, 16.0), gradients, products, np.ones((2, 2)))
    np.testing.assert_allclose(measured.typical("mean", "Gc"), [10, 60])
    np.testing.assert_allclose(measured.typical("mean", "MV"), [4, 2])
    np.testing.assert_allclose(measured.typical("mean", "Gc+MV"), [14, 62])
    assert measured.exponent("mean", "Gc") == pytest.approx(math.log(6, 4))
    assert measured.exponent("first", "Gc") == pytest.approx(0, abs=1e-12)


def test_what_no_loop_leaves_is_a_geometric_mean(monkeypatch, tmp_path):
    def measure(work, name, scheme, options):
        left = np.array([[1e4, 1e6]] * 3)
        ones = {criterion: np.ones((3, 2)) for criterion in costs.CRITERIA}
        return costs.Measured(costs.QUICK_KAPPAS, ones, ones, left)

    monkeypatch.setattr(costs, "measure", measure)
    found = TARGETS["table2"].run(Options(quick=True), Work(tmp_path, "table2", Silent()))
    np.testing.assert_allclose(found.floors["quadratics"], 1e5 * costs.ACCURACY)


def test_a_quick_run_takes_fewer_seeds_unless_they_are_given():
    quick, full, given = Options(quick=True), Options(), Options(quick=True, seeds=(7, 9))
    assert [o.chosen_seeds() for o in (quick, full, given)] == [(0,), (0, 1, 2, 3, 4), (7, 9)]
    assert [costs.problem_seeds(o) for o in (quick, full, given)] == [
        (0, 1, 2),
        (0, 1, 2, 3, 4),
        (7, 9),
    ]


def test_table_3_has_the_printed_numbers_at_seed_0():
    """With the inner loop restarted, to as many digits as are known."""
    known = {20: (9.326, 0.1100, 0.0122), 1: (435.25, 6.906, 0.0407)}
    problem = table3.load(0)
    for N, numbers in known.items():
        found = table3.curves_of([problem], table3.SETTINGS["restart"], N, (10, 50, 100), (50,))
        for value, number, printed in zip(
            found.value[0], numbers, table3.PRINTED[N][:3], strict=True
        ):
            digits = len(str(number).partition(".")[2])
            assert round(float(value), max(digits, 3)) == pytest.approx(
                number, abs=0.51 * 10**-digits
            )
            assert agrees(printed, value)
    assert problem.infimum() == pytest.approx(0.004863, abs=5e-7)
    assert found.phi[0, 0] > problem.infimum()


def test_a_printed_number_agrees_to_its_digits_or_to_one_percent():
    assert agrees("0.01", 0.0122)
    assert not agrees("0.004", 0.0056)
    assert not agrees("0.04", 0.0049)
    assert agrees("435", 435.25)
    assert not agrees("9.32", 9.5)


def follow(problem, method, outer, x0, y0, *, at, observe):
    """A single run, looked at in the iterations `at`."""
    engine = engine_of(*begun(problem, method, outer, x0, y0), int(at[-1]) + 1)
    return watch(engine, at=at, observe=observe)


def test_following_a_run_is_solving():
    """What `follow` sees at some k is the trace of `solve`, and its x ends where solve ends."""
    instance = bl.problems.quadratic(8.0, seed=3)
    method = n_q_loop(3, 2, inner_step=0.5, linear_step=0.5)
    run = bl.solve(instance.problem, instance.x0, instance.y0, method, outer=0.1, steps=12)
    at = (0, 4, 5, 11)
    path = follow(
        instance.problem,
        method,
        bl.GradientStep(0.1),
        instance.x0,
        instance.y0,
        at=at,
        observe=outer_variable,
    )
    np.testing.assert_array_equal(path.value, run.trace["value"][list(at)])
    np.testing.assert_array_equal(path.x, run.x)
    # The run looks at its last x once more, so that its y is that of one step more.
    _, after, _ = method(instance.problem, run.x, method.init(instance.problem, run.x, path.y), 12)
    np.testing.assert_allclose(after.y, run.y, rtol=1e-12)
    np.testing.assert_array_equal(path.seen[0], instance.x0)


def test_runs_side_by_side_are_single_runs_and_failures_are_nan():
    """Of three outer step sizes one diverges: it has NaN from there on, and no neighbour has."""
    instance = bl.problems.quadratic(8.0, seed=3)
    method = n_q_loop(3, 2, inner_step=0.5, linear_step=0.5)
    betas, at = jnp.asarray([0.1, 1e3, 0.2]), (0, 3, 150, 199)
    settings = Settings(instance.problem, method, jax.vmap(bl.GradientStep)(betas))
    x0, y0 = (jnp.tile(start, (3, 1)) for start in (instance.x0, instance.y0))
    engine = side_by_side(settings, Settings(False, False, True), x0, y0, at[-1] + 1)
    found = watch(engine, at=at, observe=outer_variable)
    for lane, beta in enumerate(betas):
        alone = follow(
            instance.problem,
            method,
            bl.GradientStep(beta),
            instance.x0,
            instance.y0,
            at=at,
            observe=outer_variable,
        )
        np.testing.assert_allclose(found.value[lane], alone.value, rtol=1e-9)
        np.testing.assert_allclose(found.seen[lane], alone.seen, rtol=1e-9)
    np.testing.assert_array_equal(
        np.isfinite(found.value), [[True] * 4, [True, True, False, False], [True] * 4]
    )
    np.testing.assert_array_equal(np.isfinite(found.seen).all(axis=2), np.isfinite(found.value))
    assert np.isfinite(found.x).all()


def test_a_run_that_fails_at_once_has_a_row_of_nan_for_each_point():
    problem = bl.Problem(lambda x, y: 0.5 * (y - x) ** 2, lambda x, y: jnp.sqrt(y - 1.0) + x)
    method = n_q_loop(1, 1, inner_step=1.0, linear_step=1.0)
    path = follow(
        problem, method, bl.GradientStep(0.1), 0.0, 0.0, at=(0, 2), observe=outer_variable
    )
    assert np.isnan(path.value).all()
    assert np.isnan(path.seen).all()
    assert float(path.x) == 0.0
    reached = values(problem, method, bl.GradientStep(0.1), 0.0, 0.0, at=(0, 2))
    assert np.isnan(reached).all()


@pytest.mark.slow
def test_a_race_finds_what_single_runs_find():
    """K of both criteria against runs of each step size, with ∇Φ from the closed form."""
    seeds, accuracy, betas = (0, 1), 1e-3, (1.0, 0.5, 0.25)
    N = 4

    def method(eta):
        return n_q_loop(N, N, inner_step=1.0, linear_step=eta)

    end = race(field(4.0, seeds, accuracy), method, (1.0,), betas, most=400)
    for i, seed in enumerate(seeds):
        problem = bl.problems.quadratic(4.0, seed=seed)
        gap = problem.value(problem.x0) - problem.value(problem.solution())
        first, mean = [], []
        for beta in betas:
            path = follow(
                problem.problem,
                n_q_loop(N, N, inner_step=1.0, linear_step=1.0),
                bl.GradientStep(beta),
                problem.x0,
                problem.y0,
                at=range(400),
                observe=outer_variable,
            )
            gradients = np.array([problem.hypergradient(x) for x in np.asarray(path.seen)])
            squares = np.sum(gradients**2, axis=1) / (accuracy * gap)
            first.append(np.flatnonzero(squares <= 1)[0] + 1)
            settled = np.flatnonzero(squares <= SETTLED)[0]
            assert np.all(squares[settled:] <= SETTLED)
            mean.append(math.ceil(squares.sum()))
        assert end.first[i] == min(first)
        assert end.mean[i] == pytest.approx(min(mean), abs=1)
        assert end.first_steps[i, 1] == betas[int(np.argmin(first))]


@pytest.mark.parametrize("seed", range(12))
def test_a_race_is_won_by_the_first_hit_and_by_the_least_mean(seed):
    """Of runs whose ‖∇Φ‖²/ε falls to nothing, or to twice ε, or that fail: by counting."""
    rng = np.random.default_rng(seed)
    K, pairs, chunk = np.arange(1, 2001)[:, None], 4, 7
    squares = rng.uniform(2, 200, pairs) * rng.uniform(0.3, 0.99, pairs) ** K
    squares[:, 0] += 2.0
    fails = int(rng.integers(1, 60))
    alive = np.where(np.arange(pairs) == 1, fails, len(K))
    failed = np.where(alive >= K, squares, np.inf)
    score, none = Score(3.0, pairs), dict.fromkeys(Row._fields)
    for k in range(0, len(K), chunk):
        made = np.clip(alive - k, 0, chunk)
        score.add(k, Row(**none | {"value": 3.0 * squares[k : k + chunk]}), made, 0.0)
        if score.decided:
            break
    first = np.where(failed <= 1, K, np.inf).min(axis=0)
    mean = np.where(np.cumsum(failed, axis=0) <= K, K, np.inf).min(axis=0)
    assert score.decided
    assert (score.first.min(), score.mean.min()) == (first.min(), mean.min())
    assert (score.first.argmin(), score.mean.argmin()) == (first.argmin(), mean.argmin())
    assert np.isinf(score.first[0])
    assert score.left.min() <= 1


def test_a_race_that_nobody_can_win_ends():
    end = race(
        field(8.0, (0,), 1e-9), lambda eta: bl.ITD(bl.GradientDescent(1.0, 1)), (1.0,), (0.1,), 50
    )
    assert np.isinf(end.first).all()
    assert np.isinf(end.mean).all()
    assert end.left[0] > 1


# Figure 1


TINY = (
    figure1.Sizes("digits", 600, 200, 300),
    figure1.Budgets(520, 520, 90, 90, points=10, reference=100),
)


def test_wrong_labels_are_those_that_are_not_true():
    """Redrawn labels that came out right are right, and their weights are told apart."""
    sizes, seed = figure1.Sizes("digits", 600, 200, 300), 3
    instance = figure1.load(sizes, None)("cleaning", seed)
    rest, _ = split(digits(), (800, 300), seed=0)
    true = split(rest, (600, 200), seed)[0].labels
    wrong = instance.train.labels != true
    np.testing.assert_array_equal(instance.wrong, wrong)
    assert 0.05 < wrong.mean() < 0.1  # a tenth of the redrawn labels is right by chance
    x = jnp.where(jnp.asarray(wrong), -2.0, 3.0).astype(instance.x0.dtype)
    seen = observe(x, instance.W0, *given(instance))
    assert float(seen["wrong_weight"]) == pytest.approx(1 / (1 + math.exp(2)), rel=1e-5)
    assert float(seen["right_weight"]) == pytest.approx(1 / (1 + math.exp(-3)), rel=1e-5)
    assert float(seen["moved"]) == 3


@pytest.mark.slow
def test_figure_1_tunes_in_one_sweep_and_follows_what_solve_does(tmp_path):
    sizes, budgets = TINY
    runs = figure1.Runs(
        Work(tmp_path, "figure1", Silent()), figure1.load(sizes, None), sizes, budgets
    )
    instance = figure1.load(sizes, None)("cleaning", 3)
    assert 0.05 < instance.wrong.mean() < 0.1  # a tenth of the redrawn labels is right by chance
    grid, loops = figure1.Grid((0.1, 1e3), (0.1,), from_zero=False), (20, 1)
    value = runs.tune("cleaning", loops, grid, 3)
    assert np.isfinite(value[0, 0])
    seen = runs.final(
        "cleaning", loops, 3, [(figure1.Steps(0.1, 0.1), False), (figure1.Steps(0.1, 1e4), True)]
    )
    assert {10, 500 // figure1.cost(*loops) - 1} < {*seen["k"].tolist()}
    method = n_q_loop(*loops, inner_step=0.1, linear_step=0.1)
    run = bl.solve(instance.problem, instance.x0, instance.W0, method, outer=0.1, steps=11)
    at = seen["k"].tolist().index(10)
    assert seen["validation_loss"][0, at] == pytest.approx(run.trace["value"][10], rel=1e-4)
    assert value[0, 0] == pytest.approx(
        run.trace["value"][90 // figure1.cost(*loops) - 1], rel=1e-4
    )
    # A run ends with a look at its last x: after ten steps its y is y_10^N.
    ten = bl.solve(instance.problem, instance.x0, instance.W0, method, outer=0.1, steps=10)
    test_loss = bl.problems.data_cleaning(instance.train, instance.test).loss(ten.y, instance.test)
    assert seen["test_loss"][0, at] == pytest.approx(float(test_loss), rel=1e-4)
    assert seen["moved"][0, -1] < 0.1 < seen["moved"][1, -1]
    assert seen["wrong_weight"][1, -1] < seen["right_weight"][1, -1]


def whole(folder, seeds, monkeypatch, part, sizes):
    """All of figure1 with other sizes: the rows of its CSV file."""
    monkeypatch.setattr(figure1, part, sizes)
    options = Options(quick=part == "QUICK", seeds=seeds)
    section = reproduce(["figure1"], folder, options, "biloop reproduce figure1")["figure1"]
    assert len(section.claims) == 5
    assert len(section.pictures) == len(list((folder / "figures").glob("*.svg"))) == 3
    _, rows = contents(folder, "figure1")
    assert {(int(r["N"]), int(r["Q"])) for r in rows} == {*figure1.LOOPS}
    assert {r["formulation"] for r in rows} == {"cleaning", "ridge"}
    assert {int(r["seed"]) for r in rows} == {*seeds}
    return rows


def at_ten(rows):
    """Test losses of the first seed at k = 10 on the printed grid, by N and Q."""
    return {
        (int(r["N"]), int(r["Q"])): float(r["test_loss"])
        for r in reversed(rows)
        if (r["formulation"], r["grid"], r["k"]) == ("cleaning", "printed", "10")
    }


@pytest.mark.slow
def test_figure_1_on_digits(monkeypatch, tmp_path):
    loss = at_ten(whole(tmp_path, (0, 1), monkeypatch, "QUICK", TINY))
    assert loss[20, 20] == pytest.approx(loss[20, 1], rel=0.01)
    assert loss[1, 20] == pytest.approx(loss[1, 1], rel=0.01)
    assert loss[20, 1] < 0.8 * loss[1, 1]


@pytest.mark.slow
def test_figure_1_on_mnist(monkeypatch, tmp_path):
    if "BILOOP_DATA" not in os.environ:
        pytest.skip("BILOOP_DATA does not say where MNIST is")
    sizes = figure1.Sizes("mnist", 2000, 500, 1000), TINY[1]
    loss = at_ten(whole(tmp_path, (0,), monkeypatch, "FULL", sizes))
    assert loss[20, 20] == pytest.approx(loss[20, 1], rel=0.01)
    assert loss[1, 20] == pytest.approx(loss[1, 1], rel=0.01)
    assert loss[20, 1] < 0.5 * loss[1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TARGETS if name != "figure1"])
def test_every_quick_target_through_the_command_line(name, tmp_path):
    assert main(["reproduce", name, "--quick", "--out", str(tmp_path)]) == 0
    section, rows = contents(tmp_path, name)
    assert rows
    assert section["claims"]


@pytest.mark.slow
def test_table_3_separates_the_loops_by_the_gradient_of_phi(tmp_path):
    reproduce(["table3"], tmp_path, Options(quick=True), "")
    _, rows = contents(tmp_path, "table3")
    found = {(r["setting"], int(r["N"]), int(r["k"])): r for r in rows}
    gradient = {N: float(found["warm", N, 1000]["gradient_squared"]) for N in (20, 1)}
    assert gradient[1] > 30 * gradient[20]
    assert float(found["restart", 1, 500]["f"]) < 0.006  # where 0.04 is printed
