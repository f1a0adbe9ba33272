"""The table of tuned methods: Φ, the choice of step sizes and the crossover are right."""

import json

import numpy as np
import pytest

import biloop as bl
from benchmarks.quality.__main__ import main
from benchmarks.quality.contenders import Grid, contenders, method_of, outer_of, tuned
from benchmarks.quality.objective import Phi
from benchmarks.quality.tables import best_rows, crossover, gap_at, passes_to
from biloop.problems import sparse_regression


@pytest.mark.parametrize("features", [5, 70])  # dense matrices, and conjugate gradients
def test_phi_is_the_closed_form(features):
    samples = sparse_regression(120, features, relevant=3, noise=1.0, seed=1)
    ridge = bl.problems.ridge(*samples)
    points = [(ridge.x0 + shift, ridge.y0) for shift in (-1.0, 0.0, 0.5)]
    truth = [ridge.value(x) for x, _ in points]
    np.testing.assert_allclose(Phi(ridge.problem, ridge.y0)(points), truth, rtol=1e-6)


class Start:
    """A problem as `load` gives it."""

    def __init__(self, made):
        self.problem, self.x0, self.y0 = made.problem, made.x0, made.y0


@pytest.mark.slow
def test_the_best_pair_of_step_sizes_counts_and_failures_are_told():
    ridge = bl.problems.ridge(*sparse_regression(64, 3, relevant=3, noise=1.0, seed=1))
    phi = Phi(ridge.problem, ridge.y0)
    grid = Grid((0.1, 1e9), (1e-6, 1.0), (3,), seeds=2, batch=16)
    (row,) = tuned("SABA", Start(ridge), grid, phi)
    assert (row["passes"], row["inner"], row["outer"]) == (3, 0.1, 1.0)
    assert row["failed"] == 4  # both seeds, both outer steps
    assert np.median(row["phi"]) < ridge.value(ridge.x0)
    assert len(row["phi"]) == len(set(row["phi"])) == 2


def test_every_sampled_scheme_takes_part_with_its_published_powers():
    for name in contenders():
        if not name.startswith("auto"):
            assert method_of(name, 0.5, 4).sampled is not None
    assert outer_of("SOBA", 2.0) == (2.0, -0.6)
    assert outer_of("SABA", 2.0) == 2.0


def rows(*pairs):
    return [{"passes": p, "phi": [phi]} for p, phi in pairs]


def test_gaps_and_crossover():
    auto = rows((0, 3.0), (20, 2.0), (40, 1.0))
    assert gap_at(auto, 39, 1.0) == 1.0
    assert passes_to(auto, 0.5, 1.0) == 40
    assert passes_to(auto, -0.5, 1.0) == np.inf
    told = crossover({10: 1.0, 100: 0.5}, auto, 1.0)
    assert told.startswith("The crossover is after 10 passes, at Φ − Φ* = 1.0e+00")
    assert "take 20 passes" in told
    assert "ahead up to the last number of passes, 10" in crossover({10: 0.5}, auto, 1.0)
    assert crossover({50: 0.5}, auto, 1.0).startswith("Loops on all rows are as good")


def test_the_table_is_made_of_files(tmp_path, capsys):
    for method, found in {
        "auto, all rows": rows((0, 3.0), (20, 1.0)),
        "SABA": [{"passes": 10, "inner": 0.1, "outer": 1.0, "phi": [2.0, np.inf, 1.5]}],
    }.items():
        content = {"problem": "p", "method": method, "start": 3.0, "rows": found}
        (tmp_path / f"p.{method}.json").write_text(json.dumps(content))
    main(["table", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "p: Φ − Φ* after so many passes, from 2.0e+00 (Φ* = 1.000000)" in printed
    assert "  10 SABA                   0.1, 1: 1.0e+00 (5.0e-01 to inf) 20" in printed
    (best,) = best_rows({"SABA": content})
    assert best[:2] == (10, "SABA")
