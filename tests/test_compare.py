"""Which loops pay: what a comparison finds and says, against runs by hand, and what it writes."""

import csv
import json
import math
from decimal import Decimal
from typing import get_args, get_origin, get_type_hints

import numpy as np
import pytest

import biloop as bl
from biloop.comparison.payload import ComparisonPayload
from biloop.report.comparison_text import comparison_text, plain_table

from .aid_by_hand import paths
from .comparing import FINER, SPACING, Watch

LOOP, BUDGET, SEEDS = 10, 600, (0, 1)
SCHEMES = tuple(scheme.name for scheme in bl.schemes.TABLE if scheme.compared)
# What tuning and snapshots may be off by: a fine step, and a tenth of the cost.
CLOSE = FINER * SPACING


@pytest.fixture(scope="module")
def small():
    """Small enough for dense algebra."""
    return bl.problems.quadratic(16.0, p=20, q=30, seed=0)


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


def aid_schemes(comparison):
    return [scheme for scheme in comparison.schemes if scheme.name.endswith("loop AID")]


@pytest.fixture(scope="module")
def by_hand(comparison, small):
    """For each (N, Q) the paths with the step size that was found, and with all 15 % apart."""
    alpha = comparison.settings["inner step size"]
    betas = 10.0 ** np.arange(-3, 1, 1 / 16)
    return {
        (s.N, s.Q): paths(
            small.problem, small.x0, small.y0, s.N, s.Q, alpha, [s.outer_step, *betas], BUDGET
        )
        for s in aid_schemes(comparison)
    }


@pytest.fixture(scope="module")
def cheapest(comparison, by_hand):
    """The smallest cost to the target for each (N, Q), by hand."""
    aim = comparison.target, comparison.target_value
    return {pair: min(path.cost(*aim) for path in found) for pair, found in by_hand.items()}


def test_all_schemes_are_there(comparison):
    assert tuple(scheme.name for scheme in comparison.schemes) == SCHEMES
    assert all(len(scheme.runs) == len(SEEDS) for scheme in comparison.schemes)
    assert {(s.N, s.Q) for s in aid_schemes(comparison)} == {(1, 1), (10, 1), (1, 10), (10, 10)}
    others = ("No-loop ITD", "N-N-loop ITD", "BA", "Adaptive")
    loops = [(comparison[name].N, comparison[name].Q) for name in others]
    assert loops == [(1, None), (10, None), ("grows", 10), ("auto", "auto")]
    assert comparison["Adaptive"].outer_step == "auto"
    assert isinstance(comparison["BA"].outer_step, float)


def test_what_a_run_measures_is_the_truth(comparison, by_hand, small):
    """Against the same run by hand: ‖∇Φ‖² and Φ where they were measured, and the cost."""
    for scheme in aid_schemes(comparison):
        run, path = scheme.runs[0], by_hand[scheme.N, scheme.Q][0]
        known = np.isfinite(run.norm2)
        assert known.sum() >= 5
        np.testing.assert_allclose(run.norm2[known], path.squares[run.steps[known]], rtol=1e-6)
        np.testing.assert_allclose(run.value[known], path.values[run.steps[known]], rtol=1e-9)
        assert np.array_equal(run.cost, path.step_cost * run.steps)
        # The truth by hand is the closed form.
        np.testing.assert_allclose(path.squares[0], np.sum(small.hypergradient(small.x0) ** 2))


def test_the_cost_to_the_target_is_that_of_arriving_there(comparison, by_hand):
    """Of the first snapshot from which on all are at the target: within a tenth of k.

    Between snapshots it may have left for a moment.
    """
    aim = comparison.target, comparison.target_value
    reached = 0
    for scheme in aid_schemes(comparison):
        path, cost = by_hand[scheme.N, scheme.Q][0], scheme.costs[0]
        exact = path.cost(*aim)
        assert math.isinf(cost) == math.isinf(exact)
        if math.isfinite(exact):
            reached += 1
            assert cost <= SPACING * exact + path.step_cost
            assert exact <= SPACING * cost + 2 * path.step_cost
            k, steps = round(cost / path.step_cost), scheme.runs[0].steps
            assert path.is_at(k, *aim)
            assert not path.is_at(steps[np.flatnonzero(steps == k)[0] - 1], *aim)
    assert reached >= 2


def test_the_step_size_is_nearly_the_best(comparison, cheapest):
    """Against all step sizes by hand: each scheme with its own loops."""
    for scheme in aid_schemes(comparison):
        if math.isfinite(scheme.costs[0]):
            assert scheme.costs[0] <= CLOSE * cheapest[scheme.N, scheme.Q]
        else:
            assert cheapest[scheme.N, scheme.Q] > 0.9 * BUDGET  # just within it, or not at all


def test_the_verdict_agrees_with_all_cells_by_hand(comparison, cheapest):
    n_sentence, q_sentence, *_ = comparison.verdict
    for sentence, having, lacking in (
        (n_sentence, [(10, 1), (10, 10)], [(1, 1), (1, 10)]),
        (q_sentence, [(1, 10), (10, 10)], [(1, 1), (10, 1)]),
    ):
        gain = min(cheapest[pair] for pair in lacking) / min(cheapest[pair] for pair in having)
        # What tuning and snapshots may be off by cannot be told from no difference.
        if gain > CLOSE:
            assert " pays: " in sentence
        elif gain < 1 / CLOSE:
            assert " does not pay: " in sentence


def test_the_heat_map_says_of_each_pair_what_the_table_says(comparison, cheapest):
    grid = comparison.grid
    assert grid.N == grid.Q == (1, LOOP)
    for scheme in aid_schemes(comparison):
        cost = grid.cost[grid.N.index(scheme.N), grid.Q.index(scheme.Q)]
        assert cost == scheme.cost
        assert cost >= cheapest[scheme.N, scheme.Q] / SPACING


def test_traces_have_the_seconds_of_the_run(comparison):
    for traces in comparison.traces.values():
        for trace in traces:
            assert 0 < trace["seconds"][0] < trace["seconds"][-1] < 60
            assert np.all(np.diff(trace["seconds"]) > 0)


def test_the_sentences_have_the_numbers_of_the_table(comparison):
    text = " ".join(comparison.verdict)
    (chosen,) = [
        s for s in comparison.schemes if comparison.verdict[-1].startswith(f"Use {s.name} (")
    ]
    for unit in ("gradients", "products"):
        assert f"{chosen.to_target(unit):,.0f} {unit}" in text
    for scheme in comparison.schemes:
        if scheme.status == "floored":
            assert f"{scheme.name} ({scheme.loops}) stagnates" in text
    assert f"method = {chosen.code}\n" in comparison.recommendation
    steps = max(run.trace["k"][-1] + 1 for run in chosen.runs)  # as far as the longest run
    assert comparison.recommendation.endswith(f"outer={chosen.outer}, steps={steps})")


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
    assert_has_type(payload, ComparisonPayload)
    text = comparison.to_json(tmp_path / "out.json")
    assert json.loads(text) == payload == json.loads((tmp_path / "out.json").read_text("utf-8"))
    for scheme in payload["schemes"]:
        for seed in scheme["seeds"]:
            assert len({len(column) for column in seed.values()}) == 1
            assert seed["k"] == sorted(set(seed["k"]))
            assert seed["k"][0] == seed["gradients"][0] == seed["products"][0] == 0
        low, high = scheme["spread"]["gradients"]
        assert low <= scheme["gradients"] <= high


def test_the_curves_of_the_page_are_those_of_the_runs(comparison):
    """A row of a trace is about the x before its step; a snapshot comes after it, a tenth apart."""
    for scheme, written in zip(comparison.schemes, comparison.payload()["schemes"], strict=True):
        for run, seed in zip(scheme.runs, written["seeds"], strict=True):
            steps = run.steps
            assert seed["k"] == steps.tolist()
            assert seed["value"][0] is None
            known = np.array(seed["value"][1:], float)
            np.testing.assert_array_equal(known, run.trace["value"][steps[1:] - 1])
            apart = np.ceil((SPACING - 1) * steps[:-1])
            assert np.all(np.diff(steps) <= np.maximum(1, apart))
        ends = [run.end for run in scheme.runs]
        if np.all(np.isfinite(ends)):
            assert written["spread"]["grad_norm2"] == [min(ends), max(ends)]
            values = sorted(run.value[-1] for run in scheme.runs)
            assert written["value"] == values[len(values) // 2]
    assert f"from {len(SEEDS)} starts" in " ".join(str(comparison).split())


def test_table_csv_and_pandas(comparison, tmp_path):
    comparison.to_csv(tmp_path / "out.csv")
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(SCHEMES) * len(SEEDS)
    frame = comparison.to_pandas()
    assert list(frame["scheme"]) == [row["scheme"] for row in rows]
    assert list(frame["seed"]) == list(SEEDS) * len(SCHEMES)
    spent = [run.cost[-1] for scheme in comparison.schemes for run in scheme.runs]
    np.testing.assert_allclose(frame["gradients"] + frame["products"], spent)
    for row, gradients in zip(rows, frame["gradients_to_target"], strict=True):
        assert (row["gradients_to_target"] == "") == np.isnan(gradients)
    assert set(comparison.traces) == set(SCHEMES)
    assert (
        comparison.traces["BA"][1].cost.gradients == comparison["BA"].runs[1].spent("gradients")[-1]
    )
    with pytest.raises(KeyError, match="there are No-loop AID"):
        comparison["nothing"]


def test_in_a_notebook_it_is_printed_where_it_is_asked_for(comparison, monkeypatch):
    """In a kernel rich would show the table at once, and leave none to print."""
    outside = str(comparison)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert str(comparison) == outside


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
        ({"inner_step": -1.0}, "inner_step must be a finite number greater than 0, got -1.0"),
        ({"linear_step": "x"}, "linear_step must be a number, got 'x'"),
        ({"schemes": ["N-lop AID"]}, "no scheme 'N-lop AID'; the nearest is 'N-loop AID'"),
        ({"schemes": []}, "There is nothing to compare"),
        ({"schemes": [3]}, "each of the schemes must be a string, got 3"),
        ({"N": 10**400}, "N must be at most 10000000"),
        ({"budget": 2**70}, "budget must be at most 2147483646"),
        ({"seconds": Decimal(-1)}, "seconds must be a finite number greater than 0, got Decimal"),
    ],
)
def test_bad_arguments_are_refused_first(small, arguments, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        bl.compare(small.problem, small.x0, small.y0, **arguments)


def test_a_start_that_is_no_function_of_the_seed_is_refused(small):
    with pytest.raises(TypeError, match="x0 must be a function of the seed, got"):
        bl.compare(small.problem, lambda: small.x0, small.y0)


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
