"""What readers get of the paper's experiments, made of numbers that are known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from biloop.paper import figure1, table3
from biloop.paper.figure1_runs import REFERENCES
from biloop.paper.reports import figure1 as first_figure
from biloop.paper.reports import table2 as second_table
from biloop.paper.reports import table3 as third_table

from .test_reproduce_verdicts import KAPPAS, second_found
from .test_reproduce_verdicts_runs import figure_found, third_found

PAGE = (Path(__file__).parents[1] / "docs" / "reproduction.md").read_text(encoding="utf-8")


def cells(table, *start):
    """The row that starts so, by the words of the head."""
    (row,) = [row for row in table.rows if row[: len(start)] == start]
    return dict(zip(table.head, row, strict=True))


@pytest.fixture(scope="module")
def found():
    """As a full run: losses are the number of outer iterations; a grid with a best pair."""
    made = figure_found(lambda N, Q, iterations: float(iterations))
    sizes, budgets = figure1.FULL
    tuned = dict(made.tuned)
    key = ("ridge", "large", (1, 20))
    tuned[key] = np.array([[4.0, 2.0, 3.0], [5.0, np.inf, 6.0], [7.0, 8.0, np.nan]])
    tuned["cleaning", "large", (20, 1)] = np.array([[4.0, 2.0, 3.0], [5.0, 9.0, 6.0], [7.0, 8, 6]])
    weights = {"accuracy": 0.875, "wrong_weight": 0.1, "right_weight": 0.8}
    return replace(
        made,
        sizes=sizes,
        budgets=budgets,
        tuned=tuned,
        chosen=made.chosen | {key: figure1.Steps(0.1, 10.0)},
        references={
            name: weights | {"test_loss": 1 / (1 + i)} for i, name in enumerate(REFERENCES)
        },
    )


@pytest.fixture(scope="module")
def figure(found):
    return first_figure.report(found)


def test_how_figure_1_was_run_is_what_the_page_says(figure):
    for paragraph in figure.method:
        assert paragraph in PAGE


def test_steps_that_were_chosen(figure):
    steps = figure.tables[0]
    assert len(steps.rows) == 4 * len(figure1.LOOPS)
    row = cells(steps, "ridge", "large", "Q-loop (1, 20)")
    assert (row["α = η"], row["β"]) == ("0.1", "10")
    assert row["influence of β"] == "1e+02 %"  # (4 − 2) / 2, in the row of α
    assert row["failed"] == "2 of 9"
    row = cells(steps, "cleaning", "large", "N-loop (20, 1)")
    assert (row["validation loss"], row["failed"]) == ("2", "0 of 9")
    row = cells(steps, "cleaning", "printed", "No-loop (1, 1)")
    assert (row["validation loss"], row["influence of β"], row["failed"]) == ("1", "0 %", "0 of 9")


def test_losses_at_a_fixed_k_and_a_fixed_cost(figure):
    """After k = 10 eleven iterations; Gc + MV = 500 is the cost of 500 // (N + Q + 3) of them."""
    _, cleaning, moving, ridge = figure.tables
    for table, more in ((cleaning, 1), (ridge, 0)):
        assert len(table.head) == 8 + more  # seconds are those of data cleaning
        row = cells(table, "N-loop (20, 1)")
        assert row["test loss, k = 10"] == "11"
        assert row["Gc + MV = 500"] == row["train loss, Gc + MV = 500"] == str(500 // 24)
        assert row["at the end"] == str(1200 // 24)
        assert (row["accuracy there"], row["max |x − x_0|"]) == ("90.0%", "1")
        assert row["failed"] == "0 of 1"
    row = cells(moving, "Q-loop (1, 20)")
    assert (row["test loss, Gc + MV = 500"], row["1200"]) == (str(500 // 24), str(1200 // 24))
    assert (row["weight of wrong labels"], row["of right labels"]) == ("0.100", "1.000")
    assert row["ratio"] == "0.10"
    row = cells(moving, "weights oracle 0, 1, solved")
    assert (row["1200"], row["accuracy"], row["ratio"]) == ("0.25", "87.5%", "0.12")
    assert cleaning.caption == "Data cleaning, printed grid, seed 0"


def test_every_point_of_every_curve_is_a_row(figure, found):
    assert len(figure.records) == 4 * sum(1200 // (N + Q + 3) for N, Q in figure1.LOOPS)
    rows = [r for r in figure.records if (r["N"], r["Q"], r["grid"]) == (20, 1, "large")]
    row = next(r for r in rows if r["formulation"] == "ridge" and r["k"] == 2)
    assert (row["inner"], row["outer"], row["seed"], row["test_loss"]) == (0.1, 0.1, 0, 3.0)
    assert (row["gradients"], row["products"]) == (3 * 22, 3 * 2)


def test_curves_that_are_drawn_are_those_that_were_found(figure, found):
    (_, printed), (_, moving), (_, ridge) = figure.drawings
    panels = np.reshape(printed.axes, (2, 4))
    for i, quantity in enumerate(("train_loss", "test_loss")):
        for j, x in enumerate(("seconds", "gradients", "products", "outer iterations")):
            for loops, line in zip(figure1.LOOPS, panels[i, j].lines, strict=True):
                columns = found.means("cleaning", "printed", loops)
                np.testing.assert_array_equal(line.get_xdata(), columns[x])
                np.testing.assert_array_equal(line.get_ydata(), columns[quantity])
    loss, accuracy, weight = moving.axes
    columns = [found.means("cleaning", "large", loops) for loops in figure1.LOOPS]
    for axes, quantity in ((loss, "test_loss"), (accuracy, "accuracy")):
        drawn = [line.get_ydata() for line in axes.lines]
        for line, each in zip(drawn, columns, strict=False):
            np.testing.assert_array_equal(line, each[quantity])
        ends = [found.references[name][quantity] for name in ("uniform ½", "oracle 0, 1")]
        assert [line[0] for line in drawn[len(figure1.LOOPS) :]] == ends
    assert loss.get_ylim() == pytest.approx((0.25 - 0.3 * 0.75, 1 + 3 * 0.75))
    assert weight.get_ylim() == (0, 1)
    assert len(ridge.axes) >= 2


# Table 2


def test_exponents_of_table_2_stand_beside_the_printed_ones():
    """Costs that grow as κ and κ³, floors as κ and κ², and a No-loop that does not arrive."""
    found = second_table.report(second_found(n_n_loop=(3.0, 2.5)))
    (table,) = found.tables
    mean, first = "measured (costs: running mean)", "measured, first hit"
    row = cells(table, "N-N-loop ITD", "Gc")
    assert (row["printed"], row[mean], row[first]) == ("4", "1.00", "3.00")
    assert cells(table, "N-N-loop ITD", "MV")[first] == "2.50"
    row = cells(table, "No-loop ITD", "Gc")
    assert {row["printed"], row["formula, ρ = 1"], row[mean], row[first]} == {"N/A"}
    row = cells(table, "Lower bound", "floor")
    assert (row["formula, ρ = 1"], row[mean], row[first]) == ("2.00", "2.00", "–")
    assert found.method[0] in PAGE
    assert "κ = 4, 8, 16; 2 of each" in found.method[1]
    assert len(found.records) == 2 * 3 * 2
    row = found.records[3]
    assert (row["algorithm"], row["kappa"], row["problem"]) == ("N-N-loop ITD", 8.0, 1)
    assert (row["gradients, mean"], row["gradients, first"]) == pytest.approx((8.0, 8.0**3))
    ((_, drawing),) = found.drawings
    costs, floors = ([line.get_ydata() for line in axes.lines] for axes in drawing.axes)
    kappas = np.array(KAPPAS)
    for line, power in zip(costs, (1.0, 1.0, 3.0, 2.5), strict=False):
        np.testing.assert_allclose(line, kappas**power)
    for line, power in zip(floors, (1.0, 2.0), strict=False):
        np.testing.assert_allclose(line, kappas**power)


# Table 3


@pytest.fixture(scope="module")
def third():
    made = third_found(f={20: 0.004, 1: 0.02})
    made.curves["restart", 1].value[1] *= 3  # the second seed
    return third_table.report(made)


def test_how_table_3_was_run_is_what_the_page_says(third):
    for paragraph in third.method:
        assert paragraph in PAGE


def test_the_printed_losses_stand_beside_those_that_were_found(third):
    table = third.tables[0]
    assert table.rows[4][2:] == table3.PRINTED[1]
    assert table.rows[5][1:] == ("seed 0", "435", "6.9", "0.04", "0.02", "0.02")
    assert table.rows[6][2:] == (*["agrees"] * 3, *["differs: 2 times"] * 2)
    assert table.rows[7][1:3] == ("2 seeds", "870 ± 6.2e2")  # 435 and 1305


def test_the_loops_of_table_3_are_compared_by_their_quotient(third):
    _, *truths, infimum = third.tables
    assert [t.caption for t in truths] == [s.words for s in table3.SETTINGS.values()]
    for table, quotient in zip(truths, ("10", "5", "5"), strict=True):
        assert cells(table, "f(H_k, w_k^N)", "N = 1 / N = 20")["k = 500"] == quotient
        assert cells(table, "‖∇Φ(H_k)‖²", "N = 1 / N = 20")["k = 1000"] == "1e2"
        assert cells(table, "Φ(H_k)", "N = 1 / N = 20")["k = 10"] == "1"
    assert infimum.rows == (("inf Φ", "0.004000", "0.005000"),)
    assert len(third.records) == len(table3.SETTINGS) * 2 * 2 * len(table3.COLUMNS)
    assert third.records[0] == {
        "setting": "restart", "N": 20, "seed": 0, "k": 10, "f": 9.32, "Phi": 1.0,
        "gradient_squared": 1.0,
    }  # fmt: skip
