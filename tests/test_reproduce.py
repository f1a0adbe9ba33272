"""biloop reproduce: the listing, the path from a name to a folder, and the numbers it must show."""

import csv
import json
import math
import os
import re
from pathlib import Path

import jax
import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("matplotlib")

import biloop as bl
from biloop import cli
from biloop.paper import TARGETS, Options, figure1, reproduce, table3
from biloop.paper.figure1_data import Sizes, load
from biloop.paper.figure1_runs import LOOPS, Budgets, Grid, Runs, Steps, cost
from biloop.paper.path import follow, outer_variable
from biloop.paper.race import SETTLED, field, race
from biloop.paper.work import Silent, Work
from biloop.schemes import n_q_loop

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True, scope="module")
def no_cache_of_programs():
    """Tests leave nothing in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BILOOP_CACHE", "off")
        yield


class Heard(Silent):
    """A listener that remembers, and can pull the plug after so many units."""

    def __init__(self, until=math.inf):
        self.computed, self.kept, self._until = [], [], until

    def finished(self, unit, seconds, kept):
        if unit.endswith("what it needs"):
            return
        (self.kept if kept else self.computed).append(unit)
        if len(self.computed) >= self._until:
            raise KeyboardInterrupt


def error_of(capsys):
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("biloop: ")
    assert err.count("\n") == 1, err
    return err


# the command


def test_alone_it_lists_the_targets_with_their_minutes(capsys):
    assert cli.main(["reproduce"]) == 0
    out, _ = capsys.readouterr()
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line[:1].isalpha()}
    for name, target in TARGETS.items():
        assert rows[name][-2:] == [f"{target.minutes:.1f}", f"{target.quick_minutes:.1f}"]
        assert target.quick_minutes < 1
    assert float(rows["all"][-2]) == pytest.approx(sum(t.minutes for t in TARGETS.values()))
    assert {"table1", "table2", "table3", "figure1", "lower-bound"} == {*TARGETS}


def test_an_unknown_target_gets_the_nearest_name(capsys):
    assert cli.main(["reproduce", "table3", "figur1"]) == 2
    assert "'figur1'; did you mean 'figure1'?" in error_of(capsys)


def test_a_folder_that_cannot_be_written_is_refused_before_the_run(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "vmap", None)  # nothing may run
    (tmp_path / "file").touch()
    assert cli.main(["reproduce", "table3", "--out", str(tmp_path / "file" / "out")]) == 2
    assert "cannot write into the folder" in error_of(capsys)


def test_data_that_are_not_there_are_missed_before_the_run(capsys, tmp_path):
    nowhere = tmp_path / "nowhere"
    given = ["reproduce", "lower-bound", "figure1", "--data", str(nowhere)]
    assert cli.main([*given, "--out", str(tmp_path / "out")]) == 2
    assert str(nowhere) in error_of(capsys)
    assert not list((tmp_path / "out").glob("*.json"))


@pytest.mark.parametrize("seeds", ["0-x", "", "1,1", "3-1"])
def test_seeds_that_are_none_are_refused(capsys, tmp_path, seeds):
    assert cli.main(["reproduce", "table3", "--seeds", seeds, "--out", str(tmp_path)]) == 2
    assert "seed" in error_of(capsys)


def test_ctrl_c_says_how_to_go_on(capsys, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("biloop.cli.reproduce.reproduce_", interrupted)
    assert cli.main(["reproduce", "table3", "--out", str(tmp_path)]) == 1
    assert "interrupted; the same command goes on" in error_of(capsys)


# the folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The quickest target through the command line."""
    folder = tmp_path_factory.mktemp("out")
    assert cli.main(["reproduce", "lower-bound", "--quick", "--out", str(folder)]) == 0
    return folder


def contents(folder, name):
    """The section of a target, and its rows."""
    found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    with (folder / f"{name}.csv").open(encoding="utf-8") as file:
        return found["section"], list(csv.DictReader(file))


def test_a_folder_has_results_figures_and_a_document(folder):
    document = (folder / "REPRODUCTION.md").read_text(encoding="utf-8")
    assert "`biloop reproduce lower-bound --quick`" in document
    for words in (f"biloop {bl.__version__}", f"jax {jax.__version__}", "seeds 0", "quick run"):
        assert words in document
    pictures = re.findall(r"\]\((figures/[^)]+)\)", document)
    assert pictures
    for picture in pictures:
        assert (folder / picture).stat().st_size < 200_000
        assert (folder / picture).with_suffix(".svg").exists()
    section, rows = contents(folder, "lower-bound")
    for claim in section["claims"]:
        assert claim["why"] in document
    assert len(rows) == len(section["results"]["rows"])


def test_an_interrupted_run_goes_on_to_the_same_result(folder, tmp_path):
    options = Options(quick=True)
    with pytest.raises(KeyboardInterrupt):
        reproduce(["lower-bound"], tmp_path, options, "", Heard(until=2))
    assert not (tmp_path / "lower-bound.json").exists()
    damaged = next((tmp_path / "work").glob("*.npz"))
    damaged.write_bytes(damaged.read_bytes()[:100])
    heard = Heard()
    reproduce(["lower-bound"], tmp_path, options, "", heard)
    assert (len(heard.kept), len(heard.computed)) == (1, 3)
    assert contents(tmp_path, "lower-bound") == contents(folder, "lower-bound")


def test_finished_work_is_used_again_only_with_the_same_settings(tmp_path, monkeypatch):
    heard = Heard()
    work = Work(tmp_path, "table3", heard)

    def unit(settings):
        return work.unit("a unit, N = 20", settings, lambda: {"a": np.arange(3.0)})["a"]

    unit({"N": 20, "at": (1, 2)})
    np.testing.assert_array_equal(unit({"N": 20, "at": [1, 2]}), np.arange(3.0))
    assert (len(heard.computed), len(heard.kept)) == (1, 1)
    unit({"N": 21, "at": (1, 2)})
    monkeypatch.setattr(bl, "__version__", "another")
    unit({"N": 20, "at": (1, 2)})
    assert (len(heard.computed), len(heard.kept)) == (3, 1)


def test_a_document_has_all_that_the_folder_holds_in_the_order_of_the_paper(folder, tmp_path):
    later, earlier = TARGETS["lower-bound"].title, TARGETS["table1"].title
    section, _ = contents(folder, "lower-bound")
    content = json.loads((folder / "lower-bound.json").read_text(encoding="utf-8"))
    content["section"] = section | {"target": "table1", "title": earlier}
    (tmp_path / "table1.json").write_text(json.dumps(content), encoding="utf-8")
    for file in (folder / "work").iterdir():
        (tmp_path / "work").mkdir(exist_ok=True)
        (tmp_path / "work" / file.name).write_bytes(file.read_bytes())
    reproduce(["lower-bound"], tmp_path, Options(quick=True), "")
    document = (tmp_path / "REPRODUCTION.md").read_text(encoding="utf-8")
    assert 0 < document.index(f"## {earlier}") < document.index(f"## {later}")


# the numbers


def test_the_lower_bound_is_met_by_itd_and_not_by_warm_aid(folder):
    found = json.loads((folder / "lower-bound.json").read_text(encoding="utf-8"))["section"]
    assert [claim["verdict"] for claim in found["claims"]] == ["reproduced"] * 3
    assert found["results"]["floor_exponent"] == pytest.approx(2, abs=0.1)
    for row in found["results"]["rows"]:
        if row["floor"]:
            assert row["least"] >= row["floor"] * (1 - 1e-9)
            assert row["last"] == pytest.approx(row["floor"], rel=1e-6)
        else:
            assert row["last"] < 1e-12


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
            assert table3.agrees(printed, value)
    assert problem.infimum() == pytest.approx(0.004863, abs=5e-7)
    assert found.phi[0, 0] > problem.infimum()


def test_a_printed_number_agrees_to_its_digits_or_to_one_percent():
    assert table3.agrees("0.01", 0.0122)
    assert not table3.agrees("0.004", 0.0056)
    assert not table3.agrees("0.04", 0.0049)
    assert table3.agrees("435", 435.25)
    assert not table3.agrees("9.32", 9.5)


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
    np.testing.assert_array_equal(path.rows.value, run.trace["value"][list(at)])
    np.testing.assert_array_equal(path.x, run.x)
    np.testing.assert_array_equal(path.y, run.y)
    np.testing.assert_array_equal(path.seen[0], instance.x0)


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


def test_a_race_that_nobody_can_win_ends():
    end = race(
        field(8.0, (0,), 1e-9), lambda eta: bl.ITD(bl.GradientDescent(1.0, 1)), (1.0,), (0.1,), 50
    )
    assert np.isinf(end.first).all()
    assert np.isinf(end.mean).all()
    assert end.left[0] > 1


# Figure 1


TINY = Sizes("digits", 600, 200, 300), Budgets(520, 520, 90, 90, points=10, reference=100)


@pytest.mark.slow
def test_figure_1_tunes_in_one_sweep_and_follows_what_solve_does(tmp_path):
    sizes, budgets = TINY
    runs = Runs(Work(tmp_path, "figure1", Silent()), load(sizes, None), sizes, budgets)
    instance = load(sizes, None)("cleaning", 3)
    assert 0.05 < instance.wrong.mean() < 0.1  # a tenth of the redrawn labels is right by chance
    grid, loops = Grid((0.1, 1e3), (0.1,), from_zero=False), (20, 1)
    value = runs.tune("cleaning", loops, grid, 3)
    assert np.isfinite(value[0, 0])
    seen = runs.final("cleaning", loops, 3, [(Steps(0.1, 0.1), False), (Steps(0.1, 1e4), True)])
    assert {10, 500 // cost(*loops) - 1} < {*seen["k"].tolist()}
    method = n_q_loop(*loops, inner_step=0.1, linear_step=0.1)
    run = bl.solve(instance.problem, instance.x0, instance.W0, method, outer=0.1, steps=11)
    at = seen["k"].tolist().index(10)
    assert seen["validation_loss"][0, at] == pytest.approx(run.trace["value"][10], rel=1e-4)
    assert value[0, 0] == pytest.approx(run.trace["value"][90 // cost(*loops) - 1], rel=1e-4)
    test_loss = bl.problems.data_cleaning(instance.train, instance.test).loss(run.y, instance.test)
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
    assert {(int(r["N"]), int(r["Q"])) for r in rows} == {*LOOPS}
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
    sizes = Sizes("mnist", 2000, 500, 1000), TINY[1]
    loss = at_ten(whole(tmp_path, (0,), monkeypatch, "FULL", sizes))
    assert loss[20, 20] == pytest.approx(loss[20, 1], rel=0.01)
    assert loss[1, 20] == pytest.approx(loss[1, 1], rel=0.01)
    assert loss[20, 1] < 0.5 * loss[1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TARGETS if name != "figure1"])
def test_every_quick_target_through_the_command_line(name, tmp_path):
    assert cli.main(["reproduce", name, "--quick", "--out", str(tmp_path)]) == 0
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


# the document in the repository


def test_the_document_has_a_verdict_for_every_target_and_its_figures():
    text = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    for target in TARGETS.values():
        assert f"## {target.title}" in text
    assert "quick" not in text
    for picture in re.findall(r"\]\((figures/[^)]+)\)", text):
        for path in (ROOT / "docs" / picture, (ROOT / "docs" / picture).with_suffix(".svg")):
            assert path.stat().st_size < 200_000, path
