"""Sharded problems: many devices and many processes give what one device gives."""

import json
import os
import re
import runpy
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop.run.checksum import checksum
from biloop.run.processes import ALONE, Processes

from .distributed.cleaning import CLASSES, FEATURES, N, Q, X, cleaning, sampled_methods, solve

ROOT = Path(__file__).parent.parent
PATHS = os.pathsep.join([str(ROOT), *sys.path])
ROUNDING = 1e-12  # relative, in double precision after 20 outer steps
Y_SIZE = f"[{CLASSES},{FEATURES}]"


@contextmanager
def started(commands, environments):
    """Start programs side by side; none of them outlives this."""
    processes = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": PATHS} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command, environment in zip(commands, environments, strict=True)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def running(module, *arguments):
    """Start a program of tests/distributed once for each tuple of arguments."""
    program = [sys.executable, "-m", f"tests.distributed.{module}"]
    return started([[*program, *map(str, each)] for each in arguments], [{}] * len(arguments))


def findings(module, *arguments):
    """What the programs found, by name; they must end well."""
    with running(module, *arguments) as processes:
        return [_findings(process) for process in processes]


def _findings(process):
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {line.pop("finding"): line for line in lines}


def both(folder, task):
    """The arguments of two processes that meet at a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [(number, port, folder, task) for number in (0, 1)]


@pytest.fixture(scope="module")
def alone():
    return solve(cleaning())


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eight")
    return findings("eight_devices", (folder, "quick"))[0]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return findings("two_processes", *both(tmp_path_factory.mktemp("two"), "quick"))


def test_eight_devices_give_the_trajectory_of_one(eight):
    for where in ("x copied", "x split"):
        assert eight[where]["error"] < ROUNDING
        assert eight[where]["steps"] == 20


def test_parameters_of_a_network_may_be_split(eight):
    found = eight["y split"]
    assert found["error"] < ROUNDING < found["moved"]
    assert found["shapes"] == [[16, 3], [3, 4]]


def test_variables_stay_where_they_were(eight):
    assert (eight["x copied"]["x"], eight["x copied"]["y"]) == ("()", "()")
    assert (eight["x split"]["x"], eight["x split"]["y"]) == ("('data',)", "()")


def test_later_chunks_compile_nothing(eight):
    counts = eight["traced"]["after_each_chunk"]
    assert len(counts) > 1
    assert len(set(counts)) == 1


def test_communication_is_of_the_size_of_y(eight):
    """One all-reduce for ∇_y f, one in each step of both loops; the rest are single numbers.

    Of a loop on few numbers the last step stands apart, so that each is in the program twice. x_i
    is computed where sample i is and copied to all devices once, at the end of a chunk.
    """
    assert N > 1
    assert Q > 1
    found = eight["sent, x copied"]["found"]
    assert found.pop(f"all-reduce f64{Y_SIZE}") == 1 + 2 + 2
    assert found.pop(f"all-gather f64[{len(X)}]") == 1
    assert all(sent.startswith("all-reduce ") and sent.endswith("[]") for sent in found), found


def test_communication_where_x_acts_through_the_data(eight):
    """Two all-reduces of the size of x more, for ∇_x f and for the cross product."""
    found = eight["sent, x in the features"]["found"]
    assert found.pop(f"all-reduce f64{Y_SIZE}") == 1 + 2 + 2
    assert found.pop(f"all-reduce f64[{FEATURES}]") == 2
    assert all(sent.startswith("all-reduce ") and sent.endswith("[]") for sent in found), found


def test_checkpoints_on_eight_devices(eight):
    assert eight["resumed"] == {"steps": 20, "same": True, "x": "('data',)"}
    assert eight["resumed on more devices"]["error"] < ROUNDING
    assert "another problem" in eight["other data"]["message"]


def test_layouts(eight):
    assert eight["specs"] == {
        "kept": "('data', 'model')",
        "one axis": "('data',)",
        "nested": "()",
        "all axes": "(('data', 'model'),)",
    }
    assert not any("Explicit" in types for types in eight["axis types"]["types"])


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_checksums_do_not_depend_on_the_devices(eight, dtype):
    found = eight[f"checksums of {dtype}"]
    assert found["alone"] == found["split"]


def test_samples_that_do_not_split_evenly_are_refused(eight):
    assert "drop 3 to keep 64, or add 5 to make 72" in eight["67 samples"]["message"]
    assert "over 8 devices: add 3 to make 8." in eight["5 samples"]["message"]


def test_the_code_of_the_document_and_the_example_run(eight):
    assert eight["scaling.md"]["devices"] == 8
    assert eight["its run"]["status"] == "COMPLETED"
    assert eight["its run"]["gain"] < 1
    assert "8 devices: All steps were done." in eight["example"]["printed"]
    assert eight["example"]["x"] == "('data',)"
    assert eight["example"]["noisy"] < 0.35 < 0.5 < eight["example"]["clean"]


def test_two_processes_give_the_trajectory_of_one(two, alone):
    for found in two:
        run = found["run"]
        assert (run["status"], run["steps"]) == ("COMPLETED", 20)
        np.testing.assert_allclose(run["x"], alone.x, rtol=ROUNDING)
        np.testing.assert_allclose(run["y"], alone.y, rtol=1e3 * ROUNDING)
        np.testing.assert_allclose(run["value"], alone.trace["value"], rtol=ROUNDING)


def test_each_process_holds_only_its_own_rows(two):
    assert [found["rows"]["held"] for found in two] == [[16, 16], [16, 16]]


@pytest.mark.parametrize("run", ["run", "stopped", "resumed", "interrupted", "out of time"])
def test_processes_agree_in_every_number(two, run):
    """Clocks included: chunks of different lengths would be different programs."""
    assert two[0][run] == two[1][run]


def test_what_one_process_wants_all_of_them_do(two):
    assert two[0]["stopped"]["status"] == "STOPPED"
    assert two[0]["interrupted"]["status"] == "INTERRUPTED"
    assert two[0]["out of time"]["status"] == "TIME_SPENT"
    assert two[0]["stopped"]["steps"] < 20


def test_only_the_first_process_writes(two):
    assert two[0]["checkpoints"]["written"] > 1
    assert two[1]["checkpoints"]["written"] == 0
    assert two[0]["progress"]["shown"] > 0
    assert two[1]["progress"]["shown"] == 0


def test_processes_resume_to_the_same_bits(two):
    for found in two:
        for quantity in ("x", "y", "value"):
            assert found["resumed"][quantity] == found["run"][quantity]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("start", "x0 differs between the processes"),
        ("step size", "outer differs between the processes"),
        ("limits", "The processes differ; this one has steps=2"),
        ("only one watches", "The processes differ; this one has steps="),
        ("compare", "compare runs in one process, but an array of shape"),
        ("other N", "The method of this run differs between the processes"),
        ("other schedule", "The method of this run differs between the processes"),
        ("other warm start", "The method of this run differs between the processes"),
        ("other method", "differs between the processes"),
        ("other optimizer", "The outer step of this run differs between the processes"),
        ("other constant", "The problem (outer function) of this run differs between"),
        ("data", r"data[0] differs between the processes"),
        ("rows in different numbers", "Each must have equally many rows"),
        ("uneven", "7 samples, which do not split evenly over 2 devices"),
        ("other mesh", "lies on another mesh, with parts in other processes"),
        ("folder", "must be on a file system that all of them share"),
    ],
)
def test_all_processes_refuse_what_differs(two, what, words):
    for found in two:
        assert found[what]["type"] == "ValueError"
        assert words in found[what]["message"]


def test_a_failure_in_one_process_is_a_failure_in_all(two):
    assert two[1]["callback"]["type"] == "ZeroDivisionError"
    assert two[0]["no folder"]["type"] == "FileExistsError"
    assert "steps must be an integer of at least 1" in two[1]["refused by one"]["message"]
    assert "cannot be evaluated" in two[1]["start of another shape"]["message"]
    there = ("callback", "refused by one", "start of another shape")
    for found, what in (*((two[0], what) for what in there), (two[1], "no folder")):
        assert found[what]["type"] == "RuntimeError"
        assert "Another process failed" in found[what]["message"]


@pytest.mark.slow
def test_other_methods_and_the_rest_of_the_library_on_eight_devices(tmp_path):
    (found,) = findings("eight_devices", (tmp_path, "slow"))
    for name in ("CG", "ITD", "ITD, sqrt"):
        assert found[name]["error"] < ROUNDING
    for name in ("SABA", "SRBA", "stocBiO"):
        for where in ("copied", "split"):
            on_batches = found[f"{name} on batches, x {where}"]
            assert on_batches["error"] < ROUNDING
            assert on_batches["moved"] > 1.0
    np.testing.assert_allclose(found["estimates"]["many"], found["estimates"]["alone"], rtol=1e-9)
    assert found["failure"]["status"] == "DIVERGED"
    only_y, with_x = found["sent, x split"]["found"], found["sent, ITD"]["found"]
    assert with_x.pop(f"all-reduce f64[{FEATURES}]") == 2  # ∇_x f, and in each step of the way back
    # ∇_y f, and what a loop evaluates twice, as its last step stands apart: ∇_y g, and the product
    # with H of AID; the way back of ITD has it once.
    for sent, times in ((only_y, 5), (with_x, 4)):
        assert sent.pop(f"all-reduce f64{Y_SIZE}") == times
        assert all(s.startswith("all-reduce ") and s.endswith("[]") for s in sent), sent


@pytest.mark.slow
def test_whole_data_and_failures_in_two_processes(tmp_path, alone):
    first, second = findings("two_processes", *both(tmp_path, "slow"))
    for name in ("run", "ITD", "estimates", "failure"):
        assert first[name] == second[name]
    np.testing.assert_allclose(first["run"]["x"], alone.x, rtol=ROUNDING)
    assert first["failure"]["status"] == "DIVERGED"
    assert "try" in first["failure"]["message"]
    for name, method in sampled_methods().items():
        on_batches = f"{name} on batches"
        assert first[on_batches] == second[on_batches]
        one = solve(cleaning(per_sample=True), method)
        assert np.ptp(one.x) > 1.0  # it has moved
        np.testing.assert_allclose(first[on_batches]["x"], one.x, rtol=ROUNDING, atol=ROUNDING)
        np.testing.assert_allclose(first[on_batches]["y"], one.y, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_others_with_an_error(tmp_path, killed):
    with running("two_processes", *both(tmp_path, "forever")) as processes:
        victim, survivor = processes[killed], processes[1 - killed]
        while "running" not in (line := victim.stdout.readline()):
            assert line, victim.stderr.read()
        victim.kill()
        since = time.monotonic()
        _, errors = survivor.communicate(timeout=200)
        assert time.monotonic() - since < 150  # JAX 0.6 takes 100 seconds to notice
        assert survivor.returncode != 0
        assert "another task died" in errors or "Connection closed" in errors


@pytest.mark.slow
def test_the_example_finds_the_other_processes_under_slurm():
    slurm = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_NODELIST": "localhost"}
    slurm |= {"SLURM_NTASKS": "2", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
    numbers = [{"SLURM_PROCID": str(i), "SLURM_LOCALID": str(i)} for i in (0, 1)]
    command = [sys.executable, str(ROOT / "examples" / "sharded.py"), "--join"]
    with started([command] * 2, [slurm | number for number in numbers]) as processes:
        outputs = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert "2 processes, 2 devices: All steps were done." in outputs[0][0]
    assert "2048 on each device" in outputs[0][0]
    assert "All steps" not in outputs[1][0]


def test_predictions_of_the_document_follow_from_its_model():
    """From the measured work in each row, which the benchmark printed, to the rest of the row."""
    scaling = runpy.run_path(str(ROOT / "benchmarks" / "scaling.py"))
    text = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [\d,]+ \| (\d+) \| ([\d.]+) \| (.*) \|$", text, flags=re.M)
    assert [int(devices) for devices, *_ in rows] == [1, 2, 8, 64] * 2
    for devices, work, printed in rows:
        for cell, link in zip(printed.split(" | "), scaling["LINKS"], strict=True):
            seconds = scaling["communication_seconds"](int(devices), 10, 31400, link)
            assert abs(float(cell.split()[0]) - float(work) - 1e3 * seconds) < 2e-3


def test_a_mesh_of_one_device_gives_the_same_bits(alone):
    mesh = jax.make_mesh((1,), ("data",))
    run = solve(bl.shard(cleaning(), mesh))
    np.testing.assert_array_equal(run.x, alone.x)
    np.testing.assert_array_equal(run.y, alone.y)


def test_data_are_sharded_before_they_become_a_problem():
    problem, mesh = cleaning(), jax.make_mesh((1,), ("data",))
    data = bl.shard(problem.inner_data, mesh)
    again = bl.Problem(problem.inner, problem.outer, data, problem.outer_data)
    assert again.inner_data[0] is data[0]


def test_arrays_of_functions_and_single_numbers_are_copied():
    mesh = jax.make_mesh((1,), ("data",))
    inner = jax.tree_util.Partial(lambda a, x, y, s: jnp.sum(a * y) * s, np.ones(3))
    problem = bl.shard(bl.Problem(inner, inner, (2.0,), (2.0,)), mesh)
    arrays = jax.tree.leaves(problem)
    assert len(arrays) == 4
    assert {type(array.sharding).__name__ for array in arrays} == {"NamedSharding"}


def test_what_cannot_be_sharded_is_refused():
    mesh = jax.make_mesh((1,), ("data",))
    with pytest.raises(TypeError, match=r"mesh must be a jax.sharding.Mesh, got int"):
        bl.shard(cleaning(), 8)
    with pytest.raises(TypeError, match="a Problem or a tuple of data, got ndarray"):
        bl.shard(X, mesh)
    with pytest.raises(ValueError, match=r"no axis 'rows'; its axes are \('data',\)"):
        bl.shard(cleaning(), mesh, over="rows")


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "bool", "complex64"])
def test_checksum_sees_every_change(dtype):
    a = np.arange(12).reshape(3, 4).astype(dtype)
    b, c = a.copy(), a.copy()
    b[2, 3] = not a[2, 3] if dtype == "bool" else a[2, 3] + 1
    c[0, :2] = a[0, 1::-1]  # the same entries in another order
    sums = {tuple(checksum(jnp.asarray(array)).tolist()) for array in (a, b, c)}
    assert len(sums) == 3


def test_checksum_tells_zeros_apart():
    """The bits count, as they do for a run that is resumed to the same bits."""
    zeros = jnp.zeros(3)
    assert checksum(zeros).tolist() != checksum(-zeros).tolist()


def test_one_process_agrees_with_itself():
    for processes in (ALONE, Processes(jax.make_mesh((1,), ("data",)))):
        assert processes.first
        assert not processes.several
        assert processes.largest(1.5, 0.0) == (1.5, 0.0)
        assert processes.together(lambda: True)
        with pytest.raises(KeyError):
            processes.together(lambda: {}["absent"])
