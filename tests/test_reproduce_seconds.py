"""The time of a step of Figure 1, from runs that are made up."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import biloop as bl
from biloop.paper import figure1, figure1_runs
from biloop.paper.figure1_data import Instance
from biloop.paper.work import SILENT, Work


def test_the_time_of_a_step_is_that_of_the_fastest(tmp_path, monkeypatch):
    made = []

    def solve(problem, x0, y0, method, *, steps, **_):
        made.append((int(method.inner.steps(0)), int(method.linear.steps(0)), steps))
        seconds = 0.25 * len(made) + np.array([0.0, 1.0, 1.5, 3.0])
        return SimpleNamespace(status=bl.Status.COMPLETED, trace={"seconds": seconds})

    monkeypatch.setattr(figure1_runs, "solve", solve)
    sizes, budgets = figure1.Sizes("digits", 3, 2, 1), figure1.Budgets(1, 1, 1, 1, 1, 1)
    nothing = Instance(*[None] * 6)
    for _ in range(2):  # the second time it is kept from before
        runs = figure1.Runs(Work(tmp_path, "figure1", SILENT), lambda *_: nothing, sizes, budgets)
        found = runs.seconds(0)
    assert made == [(N, Q, max(4, 150 // figure1.cost(N, Q))) for N, Q in figure1.LOOPS]
    assert [found[loops] for loops in figure1.LOOPS] == pytest.approx([0.25, 0.5, 0.5, 0.5])


def test_the_grid_is_the_printed_one():
    assert all(
        grid.inner == (0.1, 0.01, 0.001) for grid in figure1.GRIDS.values()
    )  # which the page names
