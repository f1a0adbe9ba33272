"""biloop compare, solve and problems: what they print and write, and how they refuse."""

import importlib
import json
import os
import pkgutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

import biloop as bl
from biloop.cli import compare as compare_command
from biloop.cli import solve as solve_command
from biloop.cli.cache import keep_compiled
from biloop.cli.main import main
from biloop.problems import load

RIDGE = '''
"""A problem of a user."""
import jax.numpy as jnp
import numpy as np
import biloop as bl


def inner(x, y, A, b):
    return 0.5 * jnp.mean((A @ y - b) ** 2) + 0.5 * jnp.exp(x) * jnp.sum(y**2)


def outer(x, y, A, b):
    return 0.5 * jnp.mean((A @ y - b) ** 2)


rng = np.random.default_rng(0)
A, V = rng.normal(size=(2, 30, 4))
b, t = A @ np.ones(4) + rng.normal(size=30), V @ np.ones(4)
problem = bl.Problem(inner, outer, inner_data=(A, b), outer_data=(V, t))
x0, y0 = jnp.zeros(()), jnp.zeros(4)
elsewhere = jnp.ones(())
vector = bl.Problem(lambda x, y: y**2, lambda x, y: jnp.sum(y))


class Made:
    problem, x0, y0 = problem, x0, y0


def made():
    """Ridge regression with one penalty.

    More about it.
    """
    return Made()


def as_tuple():
    return problem, x0, y0


def fails():
    raise RuntimeError("no data")


number = 3.0
'''


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("BILOOP_CACHE", "off")


@pytest.fixture
def ridge(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ridge_file.py").write_text(RIDGE, encoding="utf-8")
    return "ridge_file.py"


def refused(arguments, capsys):
    """The sentence of a command that ends with exit status 2 before it starts."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("biloop: ")
    assert err.count("\n") == 1
    return err


# problems by name


@pytest.mark.parametrize("name", ["problem", "made", "as_tuple", "Made"])
def test_a_problem_from_a_file(ridge, name):
    found = load(f"{ridge}:{name}")
    assert found.problem.inner_data[0].shape == (30, 4)
    assert found.y0.shape == (4,)
    assert found.name == f"{ridge}:{name}"
    namespace = {"bl": bl}
    exec(found.python, namespace)  # what the report tells to run
    assert namespace["problem"].inner_data[0].shape == (30, 4)


def test_the_docstring_describes_the_problem_and_a_start_can_have_another_name(ridge):
    assert load(f"{ridge}:made").description == "Ridge regression with one penalty."
    assert float(load(f"{ridge}:problem", x0="elsewhere").x0) == 1.0


def test_a_problem_from_a_module(ridge, monkeypatch):
    monkeypatch.delitem(sys.modules, "ridge_file", raising=False)
    assert load("ridge_file:problem").y0.shape == (4,)
    assert load("biloop.problems:worst_case").problem is not None


def test_a_problem_that_ships():
    found = load("quadratic-4", seed=3)
    namespace = {"bl": bl}
    exec(found.python, namespace)
    assert np.array_equal(namespace["x0"], found.x0)
    assert not np.array_equal(load("quadratic-4").x0, found.x0)
    assert "κ = 4" in found.description


def test_an_argument_of_load_is_used_or_refused(ridge):
    with pytest.raises(ValueError, match=r"seed cannot be given for 'ridge_file\.py:problem'"):
        load(f"{ridge}:problem", seed=1)
    with pytest.raises(ValueError, match="x0 cannot be given for 'ridge', which has its own start"):
        load("ridge", x0="elsewhere")
    with pytest.raises(TypeError, match="name must be a string such as 'ridge'"):
        load(3)
    found = load(f"{ridge}:problem", x0="elsewhere")
    namespace = {"bl": bl}
    exec(found.python, namespace)
    assert float(namespace["x0"]) == 1.0


def test_no_function_hides_a_module():
    """import biloop.problems.something gives the module, whatever the package exports."""
    for package in (bl.problems, bl.data, bl.estimate, bl.cli):
        for found in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{found.name}")
            assert isinstance(vars(package)[found.name], ModuleType), found.name


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("cleaning-digit", "did you mean 'cleaning-digits'?"),
        ("ridge_file.py", "Say what to take from ridge_file.py: ridge_file.py:NAME."),
        ("nowhere.py:problem", "There is no file nowhere.py."),
        ("no.such.module:problem", "The module no.such.module cannot be imported"),
        ("ridge_file.py:problm", "ridge_file.py has no 'problm'; did you mean 'problem'?"),
        ("ridge_file.py:zzz", "ridge_file.py has no 'zzz'; it has jnp"),
        ("ridge_file.py:fails", "ridge_file.py:fails() failed: RuntimeError: no data"),
        ("ridge_file.py:number", "must be a biloop.Problem, or a function that returns"),
        ("ridge_file.py:inner", "ridge_file.py:inner() failed: TypeError"),
        ("ridge_file.py:vector", "inner must return a scalar, got shape (4,)"),
    ],
)
@pytest.mark.parametrize("command", ["compare", "solve"])
def test_a_bad_problem_gets_one_sentence(ridge, capsys, command, name, sentence):
    assert sentence in refused([command, name], capsys)


def test_a_file_that_does_not_run_and_a_start_that_is_missing(ridge, capsys, tmp_path):
    (tmp_path / "broken.py").write_text("import nothing_like_this", encoding="utf-8")
    assert "broken.py cannot be run: ModuleNotFoundError" in refused(
        ["compare", "broken.py:x"], capsys
    )
    error = refused(["compare", f"{ridge}:problem", "--x0", "missing"], capsys)
    assert "is a Problem, but there is no 'missing' beside it" in error


# bad options, before anything runs


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["compare", "--N", "1,two"], "'1,two' is no list of integers such as 1,3,10,30"),
        (["compare", "--seeds", "4-0"], "'4-0' has no seed, or one twice"),
        (["compare", "--budget", "many"], "'many' is not an integer"),
        (["compare", "--report", "file/out.html"], "cannot make the folder file"),
        (["compare", "--json", "."], "cannot write ."),
        (["solve", "quadratic-4", "--method", "n-lop"], "did you mean 'n-loop'?"),
        (["solve", "quadratic-4", "--outer", "much"], '--outer must be a number or "auto"'),
        (["solve", "quadratic-4", "--trace", "file/t.npz"], "cannot make the folder file"),
        (["solve", "quadratic-4", "--method", "n-loop", "--N", "0"], "N must be an integer"),
        (["solve", "quadratic-4", "--steps", "0"], "steps must be an integer of at least 1"),
    ],
)
def test_bad_options_are_refused_before_the_run(capsys, tmp_path, monkeypatch, arguments, sentence):
    def run(*_, **__):
        raise AssertionError("it ran")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setattr(compare_command, "compare_", run)
    if "--steps" not in arguments:
        monkeypatch.setattr(solve_command, "solve_", run)
    assert sentence in refused(arguments, capsys)


# what they do


def test_problems_lists_what_ships(capsys):
    assert main(["problems"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for entry in bl.problems.catalogue().values():
        (line,) = [line for line in lines if line.startswith(entry.name + " ")]
        assert f" {entry.x_size:,} " in line
        assert entry.description in line


def test_solve_runs_and_writes_the_trace(ridge, capsys, tmp_path):
    arguments = ["solve", f"{ridge}:problem", "--method", "n-loop", "--N", "5", "--outer", "0.1"]
    assert main([*arguments, "--steps", "20", "--trace", "out/n.npz"]) == 0
    out, err = capsys.readouterr()
    trace = bl.Trace.load(tmp_path / "out" / "n.npz")
    assert len(trace) == 20
    assert trace.label == f"{ridge}:problem, n-loop"
    assert trace.cost == bl.Cost(20 * 7, 20 * 2)
    assert "All steps were done." in out
    assert "gradients    140" in out
    assert f"{trace['value'][-1]:.6g}" in out
    assert err == f"wrote {os.path.join('out', 'n.npz')}\n"


def test_solve_tells_of_a_failed_run_and_exits_with_1(ridge, capsys, tmp_path):
    arguments = ["solve", f"{ridge}:problem", "--method", "n-loop", "--N", "5", "--outer", "0.1"]
    assert main([*arguments, "--steps", "20", "--inner-step", "1e9", "--linear-step", "1"]) == 1
    out, _ = capsys.readouterr()
    assert "The inner loop produced values that are not finite." in out
    assert (tmp_path / "trace.npz").exists()


def test_every_method_of_solve_is_one_of_the_library():
    given = {"N": 3, "Q": 4, "inner_step": 0.1, "linear_step": 0.2}
    for name, scheme in solve_command.METHODS.items():
        assert isinstance(scheme.make(**given), bl.Method), name
    assert solve_command.METHODS["n-loop"].make(**given).inner.steps(0) == 3
    assert solve_command.METHODS["q-loop"].make(**given).linear.steps(0) == 4


@dataclass
class MadeUp:
    """A comparison that was not run, and what is asked of it."""

    status: str
    command: str = ""
    setup: str = ""
    interrupted: bool = False
    asked: list = field(default_factory=list)

    @property
    def schemes(self):
        return [SimpleNamespace(status="diverged"), SimpleNamespace(status=self.status)]

    def __getattr__(self, name):
        return lambda *arguments: self.asked.append((name, *arguments))


@pytest.mark.parametrize(("status", "code"), [("converged", 0), ("diverged", 1)])
def test_compare_passes_its_options_on(ridge, capsys, monkeypatch, status, code):
    made, given = MadeUp(status), {}

    def compare(problem, x0, y0, **options):
        given.update(options)
        return made

    monkeypatch.setattr(compare_command, "compare_", compare)
    monkeypatch.setattr(compare_command, "comparison_text", lambda *_, **__: "the table")
    command = ["compare", f"{ridge}:made", "--quick", "--Q", "1,4", "--target", "1e-3"]
    files = ["--json", "r.json", "--csv", "r.csv", "--report", "r.html"]
    assert main([*command, *files]) == code
    del given["name"], given["description"]
    assert given == {
        "N": (1, 10), "Q": (1, 4), "seeds": (0, 1), "budget": 600, "target": 1e-3,
        "certificates": False,
    }  # fmt: skip
    written = [("to_json", Path("r.json")), ("to_csv", Path("r.csv")), ("report", Path("r.html"))]
    assert made.asked == [("payload",), *written]
    out, err = capsys.readouterr()
    assert (out, err) == ("the table\n", "wrote r.json\nwrote r.csv\nwrote r.html\n")


def test_the_command_of_a_comparison_repeats_what_was_asked(ridge, capsys, monkeypatch):
    class Told(MadeUp):
        def payload(self):
            return self.command

    seeds = []
    told = lambda *_, **given: seeds.append(given["seeds"]) or Told("converged")  # noqa: E731
    monkeypatch.setattr(compare_command, "compare_", told)
    monkeypatch.setattr(compare_command, "comparison_text", lambda command, *_, **__: command)
    asked = (
        f"compare {ridge}:made --N 1,2 --Q 1,3 --seeds 0-2,5 --budget 70 --batch 4 --seconds 9.0"
    )
    asked += " --target 0.1 --inner-step 0.2 --linear-step 0.3 --certificates --quick"
    assert main(asked.split()) == 0
    assert (capsys.readouterr().out, seeds) == (f"biloop {asked}\n", [(0, 1, 2, 5)])


@pytest.mark.slow
def test_compare_on_a_problem_of_a_user(ridge, capsys, tmp_path):
    files = ["--report", "out/r.html", "--json", "out/r.json", "--csv", "out/r.csv"]
    assert main(["compare", f"{ridge}:made", "--quick", *files]) == 0
    out, err = capsys.readouterr()
    assert err.count("wrote ") == 3
    payload = json.loads((tmp_path / "out" / "r.json").read_text("utf-8"))
    assert payload["problem"] == {
        "name": f"{ridge}:made",
        "dim_x": 1,
        "dim_y": 4,
        "samples": 30,
        "description": "Ridge regression with one penalty.",
    }
    assert payload["command"] == f"biloop compare {ridge}:made --quick"
    assert payload["recommendation"] in out
    namespace = {}
    exec(payload["recommendation"], namespace)  # what a user pastes
    assert namespace["run"].status.name in {"COMPLETED", "CONVERGED"}
    for sentence in payload["verdict"]:
        assert sentence.split(":")[0] in " ".join(out.split())
    assert f"{ridge}:made" in (tmp_path / "out" / "r.html").read_text("utf-8")
    before, call, _ = payload["python"].partition("comparison = bl.compare(")
    assert call
    exec(before, namespace)
    assert namespace["problem"].inner_data[0].shape == (30, 4)


def test_the_start_of_a_shipped_problem_has_no_other_name(capsys):
    for option in ("--x0", "--y0"):
        error = refused(["solve", "quadratic-4", option, "elsewhere"], capsys)
        assert f"{option[2:]} cannot be given for 'quadratic-4', which has its own start" in error


# compiled programs are kept


def no_home(monkeypatch):
    """As for a user whom the system does not know: no variable, and no entry of a home."""

    def fails():
        raise RuntimeError("Could not determine home directory.")

    for name in ("BILOOP_CACHE", "XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", fails)


def test_without_a_home_folder_commands_work_and_say_so_once(ridge, capsys, monkeypatch):
    no_home(monkeypatch)
    arguments = ["solve", f"{ridge}:problem", "--method", "no-loop", "--outer", "0.1"]
    for _ in range(2):
        assert main([*arguments, "--steps", "2"]) == 0
    _, err = capsys.readouterr()
    assert err.count("biloop: there is no home folder") == 1
    assert err.count("wrote trace.npz") == 2
    assert not Path("~").exists()


@pytest.mark.parametrize("names", [{"x0": "a"}, {"y0": "b"}, {"x0": "a", "y0": "b"}])
def test_either_start_can_have_another_name(tmp_path, names):
    lines = ["import biloop as bl", "problem = bl.Problem(lambda x, y: y**2, lambda x, y: y)"]
    lines.append("x0, y0, a, b = 1.0, 2.0, 3.0, 4.0")
    (tmp_path / "starts.py").write_text("\n".join(lines), encoding="utf-8")
    found = bl.problems.load(f"{tmp_path / 'starts.py'}:problem", **names)
    assert found.x0 == (3.0 if "x0" in names else 1.0)
    assert found.y0 == (4.0 if "y0" in names else 2.0)


def test_the_cache_can_be_moved_switched_off_and_fail(monkeypatch, tmp_path):
    import jax

    before = {
        name: getattr(jax.config, name)
        for name in ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    }
    try:
        assert keep_compiled() is None
        monkeypatch.setenv("BILOOP_CACHE", str(tmp_path / "kept"))
        assert keep_compiled() == tmp_path / "kept"
        assert (tmp_path / "kept").is_dir()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "kept")
        with monkeypatch.context() as others:  # the folder belongs to somebody else
            others.setattr("os.access", lambda *_: False)
            assert keep_compiled() is None
        (tmp_path / "file").write_text("", encoding="utf-8")
        monkeypatch.setenv("BILOOP_CACHE", str(tmp_path / "file" / "inside"))
        assert keep_compiled() is None
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
