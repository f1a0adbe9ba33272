"""biloop reproduce: the listing, and the path from a name to a folder with a document."""

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("matplotlib")

import biloop as bl
from biloop.cli.main import main
from biloop.paper import TARGETS, Options, costs, figure1, reproduce
from biloop.paper.claims import Claim
from biloop.paper.race import Finish
from biloop.paper.reports.document import QUICK, document
from biloop.paper.section import Picture, Provenance, Section, Table
from biloop.paper.work import SILENT, Silent, Work

from .npz import read_npz

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
    assert main(["reproduce"]) == 0
    out, _ = capsys.readouterr()
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line[:1].isalpha()}
    for name, target in TARGETS.items():
        assert rows[name][-2:] == [f"{target.minutes:.1f}", f"{target.quick_minutes:.1f}"]
        assert target.quick_minutes < 1
    assert float(rows["all"][-2]) == pytest.approx(sum(t.minutes for t in TARGETS.values()))
    assert {"table1", "table2", "table3", "figure1", "lower-bound", "sampled"} == {*TARGETS}


def test_an_unknown_target_gets_the_nearest_name(capsys):
    assert main(["reproduce", "table3", "figur1"]) == 2
    assert "'figur1'; did you mean 'figure1'?" in error_of(capsys)


def test_a_folder_that_cannot_be_written_is_refused_before_the_run(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "vmap", None)  # nothing may run
    (tmp_path / "file").touch()
    assert main(["reproduce", "table3", "--out", str(tmp_path / "file" / "out")]) == 2
    assert "cannot write into the folder" in error_of(capsys)


def test_data_that_are_not_there_are_missed_before_the_run(capsys, tmp_path):
    nowhere = tmp_path / "nowhere"
    given = ["reproduce", "lower-bound", "figure1", "--data", str(nowhere)]
    assert main([*given, "--out", str(tmp_path / "out")]) == 2
    assert str(nowhere) in error_of(capsys)
    assert not list((tmp_path / "out").glob("*.json"))


@pytest.mark.parametrize("seeds", ["0-x", "", "1,1", "3-1"])
def test_seeds_that_are_none_are_refused(capsys, tmp_path, seeds):
    assert main(["reproduce", "table3", "--seeds", seeds, "--out", str(tmp_path)]) == 2
    assert "seed" in error_of(capsys)


def test_ctrl_c_says_how_to_go_on(capsys, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("biloop.cli.reproduce.reproduce_", interrupted)
    assert main(["reproduce", "table3", "--out", str(tmp_path)]) == 1
    assert "interrupted; the same command goes on" in error_of(capsys)


# the folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The quickest target through the command line."""
    folder = tmp_path_factory.mktemp("out")
    assert main(["reproduce", "lower-bound", "--quick", "--out", str(folder)]) == 0
    return folder


def contents(folder, name):
    """The section of a target, and its rows."""
    found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    with (folder / f"{name}.csv").open(encoding="utf-8") as file:
        return found["section"], list(csv.DictReader(file))


def test_a_folder_has_results_figures_and_a_document(folder):
    document = (folder / "REPRODUCTION.md").read_text(encoding="utf-8")
    assert "`biloop reproduce lower-bound --quick`" in document
    for words in (f"biloop {bl.__version__}", f"jax {jax.__version__}", "nothing random"):
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


# quick and full


SECTION = Section(
    target="table1",
    title="A title",
    method=("How.",),
    claims=(Claim("Table 1", "A statement.", "reproduced", "A reason."),),
    tables=(Table("Numbers", ("a", "b"), (("1", "2|3"),)),),
    pictures=(Picture("a_figure", "What it shows."),),
    results={},
)
FULL_RUN = Provenance("biloop reproduce table1", {"jax": "1"}, "a machine", (7, 8), False, 1.0, "")


def sources(text):
    """The lines that say where the numbers of each section come from."""
    return [line for line in text.splitlines() if line.startswith("<sub>")]


@pytest.mark.parametrize("quick", [(False, False), (True, False), (False, True), (True, True)])
def test_each_section_says_whether_it_is_from_a_quick_run(quick):
    parts = [(SECTION, replace(FULL_RUN, quick=each)) for each in quick]
    text = document(parts)
    words = ["quick run" if each else "full run" for each in quick]
    assert [re.findall("quick run|full run", line) for line in sources(text)] == [
        [word] for word in words
    ]
    assert (QUICK in text) == any(quick)
    assert "| 1 | 2\\|3 |" in text
    assert "seeds 7, 8" in text


@pytest.mark.parametrize("quick", [True, False])
def test_what_ran_is_what_the_folder_says(folder, tmp_path, quick):
    for file in (folder / "work").iterdir():
        (tmp_path / "work").mkdir(exist_ok=True)
        (tmp_path / "work" / file.name).write_bytes(file.read_bytes())
    reproduce(["lower-bound"], tmp_path, Options(quick=quick), "the command")
    found = json.loads((tmp_path / "lower-bound.json").read_text(encoding="utf-8"))["provenance"]
    assert found["quick"] is quick
    assert found["command"] == "the command"
    took = [read_npz(file)[1]["seconds"] for file in (folder / "work").iterdir()]
    assert found["minutes"] * 60 == pytest.approx(sum(took))
    text = (tmp_path / "REPRODUCTION.md").read_text(encoding="utf-8")
    assert ("quick run" in sources(text)[0]) is quick
    assert (QUICK in text) is quick


def test_a_quick_run_has_fewer_problems(tmp_path, monkeypatch):
    """Which quadratics are raced, by κ and seed, and that no seeds but those are named."""
    raced = []

    def field(kappa, seeds, accuracy):
        raced.append((kappa, tuple(seeds)))
        return len(seeds)

    def race(problems, *_):
        steps = np.zeros((problems, 2))
        return Finish(*[np.ones(problems)] * 3, steps)

    monkeypatch.setattr(costs, "field", field)
    monkeypatch.setattr(costs, "race", race)
    for options, kappas, seeds in (
        (Options(quick=True), (4.0, 8.0, 16.0), (0, 1, 2)),
        (Options(quick=False), (4.0, 8.0, 16.0, 32.0, 64.0), (0, 1, 2, 3, 4)),
        (Options(quick=True, seeds=(5,)), (4.0, 8.0, 16.0), (5,)),
    ):
        raced.clear()
        work = Work(tmp_path, "table1", SILENT)
        found = TARGETS["table1"].run(options, work)
        assert {seed for _, seed in raced} == {seeds}
        assert {kappa for kappa, _ in raced} == {*kappas}
        assert found.kappas == kappas
        assert TARGETS["table1"].report(found).seeds == seeds


@pytest.mark.parametrize(("quick", "sizes"), [(True, ("digits", 1000)), (False, ("mnist", 20_000))])
def test_a_quick_figure_1_has_small_data(monkeypatch, quick, sizes):
    asked = []
    monkeypatch.setattr(figure1, "load", lambda sizes, folder: asked.append(sizes))
    figure1.prepare(Options(quick=quick))
    assert [(each.data, each.train) for each in asked] == [sizes]


# the document in the repository


def test_the_document_has_a_verdict_for_every_target_and_its_figures():
    text = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    for target in TARGETS.values():
        assert f"## {target.title}" in text
    assert "quick" not in text
    for picture in re.findall(r"\]\((figures/[^)]+)\)", text):
        for path in (ROOT / "docs" / picture, (ROOT / "docs" / picture).with_suffix(".svg")):
            assert path.stat().st_size < 200_000, path
