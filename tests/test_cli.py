"""The command line: what it prints, what it exits with, and that an error is one sentence."""

import json
import math
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import typer

pytest.importorskip("typer")
pytest.importorskip("rich")

import biloop as bl
from biloop import RunFailed, __version__
from biloop.cli import theory as theory_command
from biloop.cli.main import app, main
from biloop.paper.reports import theory_plot
from biloop.paper.reports.theory_table import print_theory
from biloop.paper.theory_costs import QUOTED, remarks, theory_costs
from biloop.schedules.arguments import count, short
from biloop.theory import SCHEMES, Constants, Start, corollary1, corollary3, table1, table2

from .helpers import COLUMNS

GIVEN = ["theory", "--L", "10", "--mu", "1", "--rho", "1", "--M", "1", "--eps", "1e-2"]
CONSTANTS, START, EPS = Constants(10.0, 1.0, 1.0, 1.0), Start(1.0, 1.0), 1e-2


def with_option(option, value):
    """The usual arguments with one of them replaced or added."""
    given = list(GIVEN)
    if option in given:
        given[given.index(option) + 1] = value
        return given
    return [*given, option, value]


def error_of(capsys):
    """The one sentence on stderr, after checking that it is one and stands alone."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("biloop: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    return err


def python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env={**os.environ, **environment},
        timeout=60,
    )


# what it prints


def test_the_table_has_every_scheme_and_fits(capsys):
    assert main(GIVEN) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert max(map(len, out.splitlines())) <= 100
    assert "…" not in out
    rows = {line[:12].rstrip(): line.split() for line in out.splitlines()}
    for name, scheme in SCHEMES.items():
        cost = scheme(CONSTANTS, START, EPS)
        for value in (cost.K, cost.gradients, cost.products):
            assert count(value) in rows[name]
        if cost.certificate is None:
            assert "quoted" in rows[name]
        else:
            assert cost.certificate.statement.split()[1] in rows[name]
            assert {short(cost.certificate.beta), short(cost.certificate.floor)} < {*rows[name]}
            assert rows[name][-1] == "yes"
    assert rows["No-loop ITD"].count("N/A") == 3
    assert "N/A: No-loop ITD is certified no further than its floor 8.66e4 ≥ ε" in out


@pytest.mark.parametrize("mu", ["10", "3.3333333333333335", "1e-3", "1e-8", "1e-11"])
@pytest.mark.parametrize("rest", [("0", "0", "1e3"), ("1", "1", "1e-2"), ("1e5", "1e5", "1e-12")])
def test_the_table_fits_whatever_the_constants(capsys, mu, rest):
    rho, M, eps = rest
    arguments = ["theory", "--L", "10", "--mu", mu, "--rho", rho, "--M", M, "--eps", eps]
    assert main([*arguments, "--conditions"]) == 0
    out, _ = capsys.readouterr()
    assert max(map(len, out.splitlines())) <= 100
    assert "…" not in out
    assert "NaN" not in out


@pytest.mark.parametrize(
    ("columns", "cost"), [(200, "2.13e8"), (90, "2.1e8"), (78, "2e8"), (40, "2e8")]
)
def test_a_narrow_terminal_gets_fewer_digits_and_no_cut_numbers(monkeypatch, capsys, columns, cost):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    print_theory(theory_costs(CONSTANTS, START, EPS))
    out, _ = capsys.readouterr()
    assert "…" not in out
    (row,) = [line.split() for line in out.splitlines() if line.startswith("N-Q-loop AID ")]
    assert row[-4] == cost


def test_a_loop_that_is_too_short_breaks_its_condition(capsys):
    assert main([*GIVEN, "--N", "20"]) == 0
    out, _ = capsys.readouterr()
    (condition,) = corollary1(CONSTANTS, START, N=20).broken
    assert f"N-loop AID breaks {condition.name}: {condition.left:.4g} > 0.9\n" in out
    (row,) = [line.split() for line in out.splitlines() if line.startswith("N-loop AID")]
    assert row[-1] == "no"
    assert row.count("N/A") == 3


def test_loop_lengths_reach_the_schemes_that_have_the_loop():
    costs = theory_costs(CONSTANTS, START, EPS, N=60, Q=70)
    loops = {row.scheme: (row.N, row.Q) for row in costs.proved}
    assert loops == {
        "No-loop AID": (1, 1),
        "N-loop AID": (60, 1),
        "Q-loop AID": (1, 70),
        "N-Q-loop AID": (60, 70),
        "No-loop ITD": (1, None),
        "N-N-loop ITD": (60, None),
    }
    assert costs.proved[3].certificate == corollary3(CONSTANTS, START, EPS, N=60, Q=70)


def test_every_condition_with_both_sides(capsys):
    assert main([*GIVEN, "--conditions"]) == 0
    out, _ = capsys.readouterr()
    for _, certificate in theory_costs(CONSTANTS, START, EPS).certificates:
        for each in certificate.conditions:
            sides = rf"{re.escape(each.name)} +{short(each.left, 6)} +{short(each.right, 6)}"
            assert re.search(sides, out), each


def test_json_is_what_the_library_computes(capsys):
    assert main([*GIVEN, "--json", "--gap", "2", "--y-distance", "3"]) == 0
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    start = Start(2.0, 3.0)
    assert {row["scheme"] for row in printed["schemes"]} == {*SCHEMES}
    for row in printed["schemes"]:
        cost = SCHEMES[row["scheme"]](CONSTANTS, start, EPS)
        for name in ("K", "gradients", "products"):
            value = getattr(cost, name)
            assert row[name] == (value if math.isfinite(value) else None)
        assert (row["N"], row["Q"]) == (cost.N, cost.Q)
        assert row["quoted"] == (row["scheme"] in QUOTED) == (cost.certificate is None)
        if cost.certificate is not None:
            for name in ("statement", "alpha", "eta", "lam", "beta", "gap_term", "floor", "holds"):
                assert row[name] == getattr(cost.certificate, name)
            sides = [(each["left"], each["right"]) for each in row["conditions"]]
            assert sides == [(each.left, each.right) for each in cost.certificate.conditions]
    assert printed["constants"]["L_Phi"] == CONSTANTS.L_Phi
    assert printed["start"]["y_distance"] == 3.0


@pytest.mark.parametrize("kappa", [1.0, 10.0, 1000.0])
def test_the_remarks_follow_from_the_numbers(kappa):
    costs = theory_costs(Constants(1.0, 1.0 / kappa, 1.0, 1.0), START, EPS)
    cheapest, step = remarks(costs)
    for what in ("gradients", "products"):
        best = min(costs.proved, key=lambda row, what=what: getattr(row, what))
        assert f"Fewest {what}: {best.scheme}, {short(getattr(best, what))}" in cheapest
    assert ("x hardly moves" in step) == (kappa > 1.0)
    assert short(1.0 / costs.constants.L_Phi) in step


def test_no_scheme_reaches_what_none_can():
    costs = theory_costs(CONSTANTS, START, EPS, N=1, Q=1)
    others = replace(costs, proved=costs.proved[1:])
    assert remarks(others) == ("No scheme is certified to reach ε = 0.01.",)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.0, 3, "0"),
        (0.05, 3, "0.05"),
        (1331.0, 4, "1331"),
        (1331.0, 3, "1.33e3"),
        (999.6, 3, "1e3"),
        (0.00099996, 3, "0.001"),
        (1.838e-4, 3, "1.84e-4"),
        (2.13e8, 1, "2e8"),
        (-0.994, 2, "-0.99"),
        (math.inf, 3, "∞"),
        (math.nan, 3, "NaN"),
    ],
)
def test_short_numbers(value, digits, text):
    assert short(value, digits) == text


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"biloop {__version__}\n"


# the figure


def test_plot_writes_a_png(capsys, tmp_path):
    image = pytest.importorskip("matplotlib.image")
    path = tmp_path / "cost.png"
    assert main([*GIVEN, "--plot", str(path), "--kappa-max", "100"]) == 0
    out, err = capsys.readouterr()
    assert "N-Q-loop AID" in out
    assert err == f"wrote {path}\n"
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    pixels = image.imread(path)
    assert pixels.shape[1] >= 800
    assert pixels[..., :3].std() > 0.05


def test_curves_have_the_printed_exponents():
    grid = theory_plot.kappas(2.0**16)
    assert grid[0] == 2.0
    assert grid[-1] == pytest.approx(2.0**16)
    panels = theory_plot.curves(Constants(1.0, 0.5, 1.0, 1.0), START, EPS, grid)
    printed = {
        (e.algorithm, e.quantity): e.printed
        for e in (*table1(), *table2())
        if e.variable == "kappa"
    }
    for panel, (quantity, _) in theory_plot.PANELS.items():
        assert {curve.scheme for curve in panels[panel]} == {*SCHEMES}
        for curve in panels[panel]:
            assert curve.printed == printed[curve.scheme, quantity]
            assert curve.cost[0] == getattr(
                SCHEMES[curve.scheme](Constants(1.0, 0.5, 1.0, 1.0), START, EPS), panel
            )
            if curve.printed is not None:
                assert curve.fitted == pytest.approx(curve.printed, abs=0.15)


@pytest.mark.parametrize("place", ["missing/cost.png", "file.txt/cost.png", ".png", "folder.png"])
def test_an_unwritable_figure_is_refused_before_the_work(monkeypatch, capsys, tmp_path, place):
    (tmp_path / "file.txt").touch()
    (tmp_path / "folder.png").mkdir()
    monkeypatch.setattr(theory_command, "theory_costs", lambda *_: pytest.fail("computed first"))
    path = tmp_path / place
    assert main([*GIVEN, "--plot", str(path)]) == 2
    assert str(path) in error_of(capsys)


def test_a_refused_figure_leaves_the_old_one(capsys, tmp_path):
    path = tmp_path / "cost.png"
    path.write_text("old")
    assert main([*GIVEN, "--plot", str(path), "--kappa-max", "1"]) == 2
    assert "kappa" in error_of(capsys)
    assert path.read_text() == "old"
    assert main([*GIVEN, "--plot", str(tmp_path / "new.png"), "--kappa-max", "nan"]) == 2
    assert not (tmp_path / "new.png").exists()


def test_a_figure_without_matplotlib(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main([*GIVEN, "--plot", str(tmp_path / "cost.png")]) == 2
    assert "pip install 'biloop[report]'" in error_of(capsys)


# errors


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("--mu", "20", "mu = 20.0 > L = 10.0"),
        ("--mu", "0", "mu must be a finite number > 0, got 0.0"),
        ("--mu", "1e-300", "L/mu"),
        ("--L", "-3", "-3.0"),
        ("--L", "nan", "nan"),
        ("--rho", "inf", "inf"),
        ("--M", "ten", "'--M': 'ten' is not a number"),
        ("--M", "1e200", "M = 1e200"),
        ("--eps", "-0.01", "eps must be a finite number > 0, got -0.01"),
        ("--eps", "0", "got 0.0"),
        ("--gap", "-1", "gap must be a finite number >= 0, got -1.0"),
        ("--y-distance", "nan", "nan"),
        ("--N", "0", "N must be an integer >= 1, got 0"),
        ("--Q", "2.5", "'--Q': '2.5' is not an integer"),
        ("--plot", "cost.doc", "cost.doc"),
        ("--bogus", "1", "--bogus"),
    ],
)
def test_bad_input_is_one_sentence_and_2(capsys, option, value, named):
    assert main(with_option(option, value)) == 2
    assert named in error_of(capsys)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["theroy"], "theroy"),
        (["theory"], "--L"),
        ([*GIVEN, "extra"], "extra"),
        (["theory", "--L"], "--L"),
    ],
)
def test_bad_usage_is_one_sentence_and_2(capsys, arguments, named):
    assert main(arguments) == 2
    assert named in error_of(capsys)


@pytest.mark.parametrize("place", [0, -1])
def test_debug_adds_the_traceback(capsys, place):
    arguments = with_option("--mu", "20")
    arguments.insert(place if place == 0 else len(arguments), "--debug")
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.splitlines()[-1] == "biloop: mu must be at most L, got mu = 20.0 > L = 10.0"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (RunFailed(SimpleNamespace(message="The run\ndiverged.")), "biloop: The run diverged.\n"),
        (OSError(28, "No space left"), "OSError: [Errno 28] No space left (--debug shows where)"),
        (KeyError("x"), "KeyError: 'x' (--debug shows where)"),
    ],
)
def test_a_failed_run_is_one_sentence_and_1(monkeypatch, capsys, error, sentence):
    def fail(*_):
        raise error

    monkeypatch.setattr(theory_command, "theory_costs", fail)
    assert main(GIVEN) == 1
    assert sentence in error_of(capsys)


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_the_extra(module):
    done = python(
        f"import sys; sys.modules[{module!r}] = None; from biloop.cli.main import main; main()"
    )
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.decode().splitlines() == [
        "biloop: the command line needs typer and rich: pip install 'biloop[cli]'"
    ]


def test_a_terminal_without_greek():
    code = f"import sys; from biloop.cli.main import main; sys.exit(main({GIVEN!r}))"
    done = python(code, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"N-Q-loop AID" in done.stdout


def test_as_a_program(tmp_path):
    command = [sys.executable, "-m", "biloop", "theory", "--L", "1", "--mu", "2"]
    done = subprocess.run([*command, "--rho", "1", "--M", "1"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "biloop: mu must be at most L, got mu = 2.0 > L = 1.0\n"


# help

COMMANDS = [[], *([command.callback.__name__] for command in app.registered_commands)]


MINUTES = {"compare", "reproduce"}  # their examples are only read here; tests of their own run them


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: " ".join(c) or "biloop")
def test_the_examples_of_the_help_run(monkeypatch, capsys, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    for file in ("no-loop.npz", "n-loop.npz"):  # what the example of `plot` draws
        bl.Trace({name: np.ones(3) for name in COLUMNS}).save(file)
    assert main([*command, "--help"]) == 0
    assert "Example: biloop" in capsys.readouterr().out
    group = typer.main.get_command(app)
    shown = group.commands[command[0]] if command else group
    examples = re.findall(r"Example: biloop (.*)", shown.epilog)
    assert examples
    for example in examples:
        arguments = shlex.split(example)
        assert arguments[: len(command)] == command
        if MINUTES & set(command):
            shown.make_context(command[0], arguments[1:])  # raises if an option is not known
        else:
            assert main(arguments) == 0, capsys.readouterr().err


def test_without_arguments_it_helps(capsys):
    assert main([]) == 0
    assert "Usage: biloop" in capsys.readouterr().out
