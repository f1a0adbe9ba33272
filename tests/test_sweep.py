"""Sweeps: every cell is its own run, shares what it can, and spoils nothing when it fails."""

import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import redirect_stdout

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import biloop as bl
from biloop.run.trace import COLUMNS
from biloop.sweeps import batches, driver, memory, plan
from biloop.sweeps.axes import Axis, make_axes
from biloop.sweeps.cells import Cell, make_cells
from biloop.sweeps.lockstep import advance
from biloop.sweeps.paths import replaced, value_at

from .helpers import random_quadratic
from .test_documents import CODE, ROOT, words

QUADRATIC = random_quadratic(q=5, p=3)
PROBLEM = QUADRATIC.problem
X, Y = QUADRATIC.start()
METHOD = bl.AID(bl.GradientDescent(0.1, steps=4), bl.Richardson(0.1, steps=3))
PAIRS = [(0.1, 0.05), (0.02, 0.1)]
OUTER = [0.05, 0.01]
STEPS = 12
TOGETHER = ("inner.step_size", "linear.step_size")


def start(seed):
    return jax.random.normal(jax.random.key(seed), X.shape)


def sweep(pairs=PAIRS, method=METHOD, **changes):
    """Two pairs of step sizes × two outer step sizes × two seeds: eight cells, one program."""
    settings = {"over": {TOGETHER: pairs, "outer": OUTER}, "seeds": range(2), "steps": STEPS}
    return bl.sweep(PROBLEM, start, Y, method, **(settings | changes))


def single(label, **limits):
    """The run that a cell of `sweep` stands for."""
    inner = bl.GradientDescent(label["inner.step_size"], steps=4)
    method = bl.AID(inner, bl.Richardson(label["linear.step_size"], steps=3))
    settings = {"outer": label["outer"], "steps": STEPS} | limits
    return bl.solve(PROBLEM, start(label["seed"]), Y, method, **settings)


def same(a, b, tolerance=1e-10):
    """The same run but for rounding and time."""
    assert (a.status, a.steps, a.cost) == (b.status, b.steps, b.cost)
    for part in ("x", "y", "v"):
        np.testing.assert_allclose(getattr(a, part), getattr(b, part), tolerance, tolerance)
    for column in COLUMNS:
        if column != "seconds":
            np.testing.assert_allclose(a.trace[column], b.trace[column], tolerance, tolerance)


@pytest.fixture(scope="module")
def swept():
    return sweep()


def test_every_cell_is_its_own_run(swept):
    assert swept.shape == (2, 2, 2)
    for label, run in zip(swept.labels, swept.runs, strict=True):
        same(run, single(label))
        assert run.status is bl.Status.COMPLETED
        assert run.message == "All steps were done."


@pytest.mark.parametrize(
    "make",
    [
        lambda a: bl.AID(
            bl.GradientDescent(a, steps=10, tolerance=0.1),
            bl.Richardson(0.1, steps=10, tolerance=0.1),
        ),
        lambda a: bl.ITD(bl.GradientDescent(a, steps=5)),
    ],
    ids=["AID to tolerance", "ITD"],
)
def test_other_methods(make):
    """A tolerance ends the loops of the cells after different numbers of steps."""
    found = bl.sweep(
        PROBLEM, X, Y, make(0.1), over={"inner.step_size": [0.1, 0.05]}, outer=0.05, steps=8
    )
    for a, run in zip([0.1, 0.05], found.runs, strict=True):
        same(run, bl.solve(PROBLEM, X, Y, make(a), outer=0.05, steps=8))


def test_failing_cells_are_marked_and_do_not_touch_the_others(swept):
    found = sweep([PAIRS[0], (500.0, 0.1)])
    bad = found.sel({"inner.step_size": 500.0})
    for label, run in zip(bad.labels, bad.runs, strict=True):
        alone = single(label)
        assert run.status is alone.status is bl.Status.DIVERGED
        assert run.steps == alone.steps == len(run.trace) - 1
        assert "The inner step size 500 is above the largest stable one" in run.message
        assert np.all(np.isfinite(run.x))
        assert np.all(np.isfinite(run.v))
        np.testing.assert_allclose(run.y, alone.y, rtol=1e-6)
    good = found.sel({"inner.step_size": 0.1})
    for a, b in zip(good.runs, swept.sel({"inner.step_size": 0.1}).runs, strict=True):
        same(a, b, tolerance=0)
    assert found.best("value")["inner.step_size"] == 0.1
    values = found["value"]
    assert values.shape == (2, 2, 2, STEPS)
    assert np.isnan(values[1]).any(axis=-1).all()
    assert not np.isnan(values[0]).any()
    assert "4 COMPLETED, 4 DIVERGED" in repr(found)


def test_an_x_that_is_not_finite_fails_where_its_own_run_does():
    found = sweep(over={TOGETHER: PAIRS, "outer": [0.05, 1e308]})
    for label, run in zip(found.labels, found.runs, strict=True):
        alone = single(label)
        assert (run.status, run.steps) == (alone.status, alone.steps)
        np.testing.assert_allclose(run.x, alone.x, rtol=1e-10)
        assert run.trace["result"][-1] == alone.trace["result"][-1]
    assert found.sel({"outer": 1e308}).runs[0].status.failed


def test_divergence_without_overflow_is_noticed():
    found = sweep([PAIRS[0], (0.5, 0.1)], steps=4)
    assert found.sel({"inner.step_size": 0.5}).runs[0].status is bl.Status.DIVERGED
    assert found.sel({"inner.step_size": 0.1}).runs[0].status is bl.Status.COMPLETED


@pytest.mark.parametrize("limits", [{"epsilon": 0.5}, {"budget": 40}, {"budget": bl.Cost(13, 99)}])
def test_cells_end_where_their_own_runs_end(limits):
    found = sweep(steps=60, **limits)
    for label, run in zip(found.labels, found.runs, strict=True):
        same(run, single(label, steps=60, **limits))
    if "epsilon" in limits:
        assert len({run.steps for run in found.runs}) > 2
    else:
        assert {run.status for run in found.runs} == {bl.Status.BUDGET_SPENT}


def test_other_numbers_compile_nothing(swept):
    compiled = advance._cached._cache_size()
    sweep([(0.03, 0.04), (0.05, 0.06)], steps=7, epsilon=1e-3, budget=10**6)
    sweep([(0.03, 0.04), (0.05, 0.06)], steps=400)  # more than one chunk
    assert advance._cached._cache_size() == compiled


def test_loop_sizes_share_one_program():
    axes = {"inner.steps": [1, 5], "linear.steps": [0, 3], "outer": OUTER}
    compiled = advance._cached._cache_size()
    found = bl.sweep(PROBLEM, X, Y, METHOD, over=axes, steps=STEPS)
    assert advance._cached._cache_size() == compiled + 1
    for label, run in zip(found.labels, found.runs, strict=True):
        N, Q = (jnp.asarray(label[f"{loop}.steps"]) for loop in ("inner", "linear"))
        method = bl.AID(bl.GradientDescent(0.1, N), bl.Richardson(0.1, Q))
        same(run, bl.solve(PROBLEM, X, Y, method, outer=label["outer"], steps=STEPS))
        assert run.cost == bl.Cost(STEPS * (int(N) + 2), STEPS * (int(Q) + 1))


def cells_of(over=None, seeds=None, problem=PROBLEM, method=METHOD, x0=X, y0=Y, outer=0.1):
    def check(problem, method):
        assert isinstance(problem, bl.Problem)
        assert isinstance(method, bl.Hypergradient)

    return make_cells(Cell(problem, method, outer, x0, y0, None), make_axes(over, seeds), check)


def test_which_cells_share_a_program_and_a_group():
    def sizes(cells):
        return [list(map(len, program.groups())) for program in batches.programs(cells)]

    assert sizes(cells_of({"inner.steps": [1, 2, 3], "outer": OUTER})) == [[2, 2, 2]]
    itd = bl.ITD(bl.GradientDescent(0.1, 2))
    assert sizes(cells_of({"inner.steps": [1, 2], "outer": OUTER}, method=itd)) == [[2], [2]]
    roomy = bl.ITD(bl.GradientDescent(0.1, 2), max_steps=5)
    assert sizes(cells_of({"inner.steps": [1, 2], "outer": OUTER}, method=roomy)) == [[2, 2]]
    assert sizes(cells_of({"warm_start_v": [True, False]})) == [[1], [1]]
    assert sizes(cells_of({"outer": {"adam": optax.adam(0.1), "plain": 0.1}})) == [[1], [1]]
    assert sizes(cells_of({"method": {"AID": METHOD, "ITD": itd}, "x0": [X, 2 * X]})) == [[2], [2]]
    assert sizes(cells_of({"inner": [METHOD.inner, bl.Nesterov(0.1, 0.5, 3)]})) == [[1], [1]]


def least_squares(x, y, inputs, targets):
    return jnp.mean((inputs @ y - targets) ** 2) + jax.nn.sigmoid(x) * jnp.sum(y**2)


def validation(x, y, inputs, targets):
    return jnp.mean((inputs @ y - targets) ** 2)


INPUTS = np.random.default_rng(0).normal(size=(300, 40))


def noisy_problem(seed):
    """The same inputs for all seeds, as new arrays; targets that differ."""
    targets = np.random.default_rng(seed).normal(size=300)
    data = (INPUTS.copy(), targets)
    return bl.Problem(least_squares, validation, inner_data=data, outer_data=data)


def test_data_that_cells_share_are_not_copied():
    axes = {"inner.step_size": [0.1, 0.2], "outer": [0.1, 0.2, 0.3]}
    start = {"x0": jnp.zeros(()), "y0": jnp.zeros(40)}
    cells = cells_of(axes, range(3), problem=noisy_problem, **start)
    (program,) = batches.programs(cells)
    assert list(map(len, program.groups())) == [18]
    batch = program.batch(program.indices, 18)
    inputs, targets = batch.shared.problem.inner_data
    assert inputs is cells[0].problem.inner_data[0] is cells[-1].problem.inner_data[0]
    assert targets is None
    inputs, targets = batch.varying.problem.inner_data
    assert inputs is None
    assert targets.shape == (18, 300)

    # Nothing that the program keeps is as large as the inputs of all cells.
    assert plan._needs(program, program.indices, 18) < 18 * INPUTS.nbytes


def test_problems_and_starts_of_a_seed():
    axes = {"problem.outer_data[1]": [np.zeros(300), np.ones(300)]}
    method = bl.AID(bl.GradientDescent(0.1, 4), bl.Richardson(0.1, 3))
    found = bl.sweep(
        noisy_problem, 0.0, lambda s: s * jnp.ones(40), method, over=axes, seeds=[3, 5], outer=0.1,
        steps=5,
    )  # fmt: skip
    assert found.axes == {"problem.outer_data[1]": [0, 1], "seed": [3, 5]}
    for label, run in zip(found.labels, found.runs, strict=True):
        inner_data = noisy_problem(label["seed"]).inner_data
        outer_data = (INPUTS, np.full(300, 1.0 * label["problem.outer_data[1]"]))
        problem = bl.Problem(least_squares, validation, inner_data, outer_data)
        y0 = label["seed"] * jnp.ones(40)
        same(run, bl.solve(problem, 0.0, y0, method, outer=0.1, steps=5))


def test_large_data_split_the_cells_instead_of_being_copied(monkeypatch):
    monkeypatch.setattr(batches, "_LARGE", 8 * 300)
    cells = cells_of({"outer": OUTER}, range(3), problem=noisy_problem, x0=0.0, y0=jnp.zeros(40))
    (program,) = batches.programs(cells)
    assert program.groups() == [[0, 3], [1, 4], [2, 5]]
    batch = program.batch([1, 4], 2)
    assert batch.shared.problem.inner_data[1] is cells[1].problem.inner_data[1]
    # Where each cell has data of its own there is nothing to save.
    cells = cells_of({}, range(3), problem=noisy_problem, x0=0.0, y0=jnp.zeros(40))
    assert batches.programs(cells)[0].groups() == [[0, 1, 2]]


SHARDED = textwrap.dedent(
    """
    import jax, numpy as np
    import biloop as bl
    from jax.sharding import Mesh
    from tests.test_sweep import noisy_problem, spread_sweep

    mesh = Mesh(np.array(jax.devices()), ("samples",))
    one, two = spread_sweep(noisy_problem), spread_sweep(lambda s: bl.shard(noisy_problem(s), mesh))
    for a, b in zip(one.runs, two.runs, strict=True):
        np.testing.assert_allclose(a.x, b.x, rtol=1e-12)
        np.testing.assert_allclose(a.trace["value"], b.trace["value"], rtol=1e-12)
    assert two.seconds < two.compile_seconds  # nothing compiled on the way
    print(len(jax.devices()), "devices")
    """
)


def spread_sweep(problem):
    over = {"outer": [0.1, 0.2]}
    return bl.sweep(problem, 0.0, jnp.zeros(40), METHOD, over=over, seeds=[0, 1], steps=20)


@pytest.mark.slow
def test_data_on_several_devices():
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_ENABLE_X64": "1"}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | flags
    command = [sys.executable, "-c", SHARDED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout == "2 devices\n", done.stderr


def test_data_of_several_processes_are_refused(monkeypatch):
    monkeypatch.setattr(type(X), "is_fully_addressable", False)
    with pytest.raises(ValueError, match="sweep runs in one process"):
        sweep()


def test_batches_give_the_same_numbers(swept):
    found = sweep(batch=3)  # 3 + 3 + 2, the last one filled up
    for a, b in zip(found.runs, swept.runs, strict=True):
        same(a, b, tolerance=1e-12)


def test_the_batch_is_as_wide_as_memory_allows(monkeypatch):
    served = batches.programs(cells_of({TOGETHER: PAIRS, "outer": np.linspace(0.01, 0.1, 10)}))
    needs = {width: plan._needs(served[0], served[0].indices, width) for width in (1, 7, 8, 20)}
    assert needs[8] - needs[7] == pytest.approx((needs[20] - needs[1]) / 19, rel=0.01)
    state = 8 * (X.size + 2 * Y.size) + 8  # x, y, v; the number of rows and the code
    assert needs[8] - needs[7] > 2 * state  # before and after a step
    for free, widths in [
        (2 * needs[20], [20]),
        (2 * needs[8], [7, 7, 7]),  # three of seven rather than 8, 8 and 4
        (0, [1] * 20),
    ]:
        monkeypatch.setattr(memory, "free_bytes", lambda free=free: free)
        assert [planned.width for planned in plan.make_plan(served, None)] == widths
    assert sorted(i for planned in plan.make_plan(served, 6) for i in planned.indices) == [
        *range(20)
    ]


def test_the_memory_of_a_program_is_what_it_keeps_at_one_time():
    def chain(x):
        y = jnp.stack([x, x])  # 16 bytes per entry of x
        z = jnp.sin(y)  # y and z: 32, and after that only z
        w = lax.fori_loop(0, 3, lambda _, w: jnp.cos(w * 2), z)  # w, and within a product and a cos
        return jnp.sum(w)

    n = 1000
    peak = memory.peak_bytes(jax.make_jaxpr(chain)(jnp.zeros(n)).jaxpr)
    assert 64 * n <= peak <= 65 * n


def test_free_memory_is_that_of_the_machine_or_its_container(monkeypatch, tmp_path):
    assert 2**20 < memory.free_bytes() < 2**50
    monkeypatch.setattr(memory, "Path", lambda path: tmp_path / path.lstrip("/"))
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    assert memory.free_bytes() == half  # a system that tells nothing more
    for name, text in [
        ("proc/meminfo", "MemTotal: 4096 kB\nMemAvailable: 2048 kB\n"),
        ("sys/fs/cgroup/memory.max", "max\n"),
        ("sys/fs/cgroup/memory.current", "400000\n"),
    ]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory.free_bytes() == 2048 * 1024
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("1000000\n")
    assert memory.free_bytes() == 600_000


def test_a_batch_that_runs_out_of_memory_is_halved(monkeypatch, swept):
    widths = []

    def run_batch(batch, *rest):
        widths.append(batch.width)
        if batch.width > 4:
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return swept.runs[batch.indices[0] : batch.indices[-1] + 1]

    monkeypatch.setattr(driver, "run_batch", run_batch)
    found = sweep()
    assert widths == [8, 4, 4]
    assert all(run.x is other.x for run, other in zip(found.runs, swept.runs, strict=True))
    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        sweep(batch=8)


class Killed(BaseException):
    pass


def same_bits(a, b):
    for one, other in zip(a.runs, b.runs, strict=True):
        same(one, other, tolerance=0)


def test_a_sweep_that_was_killed_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    whole = sweep(batch=3)
    update, moments = driver._Watch.update, []

    def killed_in_the_second_batch(self, finished, running, k, steps):
        moments.append((finished, k))
        if finished == 3 and k == 10:
            raise Killed

    monkeypatch.setattr(driver._Watch, "update", killed_in_the_second_batch)
    with pytest.raises(Killed):
        sweep(batch=3, checkpoint=tmp_path, every=5)
    moments.clear()
    monkeypatch.setattr(
        driver._Watch, "update", lambda self, *here: moments.append(here) or update(self, *here)
    )
    resumed = sweep(checkpoint=tmp_path, every=5)  # in the batches it began with
    same_bits(resumed, whole)
    assert min(k for finished, _, k, _ in moments if finished == 3) > 5
    assert not [here for here in moments if here[0] == 0]

    moments.clear()
    again = sweep(checkpoint=tmp_path)
    assert not moments
    same_bits(again, whole)
    np.testing.assert_array_equal(again["seconds"], resumed["seconds"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pairs": [(0.1, 0.05), (0.02, 0.2)]}, "other axes"),
        ({"seeds": [1, 2]}, "other axes"),
        ({"epsilon": 1e-3}, "another epsilon"),
        ({"v0": jnp.ones_like(Y)}, "another v0"),
        ({"method": bl.AID(METHOD.inner, METHOD.linear, warm_start_v=False)}, "another method"),
    ],
)
def test_another_sweep_is_refused(tmp_path, change, words):
    sweep(checkpoint=tmp_path, steps=3)
    with pytest.raises(ValueError, match=words):
        sweep(checkpoint=tmp_path, **({"steps": 3} | change))
    longer = sweep(checkpoint=tmp_path, steps=5)
    assert [run.steps for run in longer.runs] == [5] * 8


def test_a_damaged_plan_is_refused(tmp_path):
    sweep(checkpoint=tmp_path, steps=1)
    (tmp_path / plan.FILE).write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"damaged.*Delete the folder to start the sweep anew"):
        sweep(checkpoint=tmp_path, steps=1)


KILLED = textwrap.dedent(
    """
    import sys
    import tests.conftest
    from tests.test_sweep import sweep
    print("started", flush=True)
    sweep(steps=int(sys.argv[2]), batch=3, checkpoint=sys.argv[1], every=50)
    print("finished", flush=True)
    """
)


@pytest.mark.slow
def test_sigkill_at_any_moment(tmp_path):
    steps, deaths = 30_000, 0
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    for wait in (2.0, 2.5, 3.0, 3.5, 600.0):
        command = [sys.executable, "-c", KILLED, str(tmp_path), str(steps)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout.readline() == b"started\n"
            try:
                process.wait(wait)
            except subprocess.TimeoutExpired:
                process.kill()
                deaths += 1
            else:
                break
    assert process.returncode == 0
    assert deaths > 0
    same_bits(sweep(steps=steps, checkpoint=tmp_path), sweep(steps=steps, batch=3))


def test_ctrl_c_keeps_what_was_done(monkeypatch, swept):
    update = driver._Watch.update

    def interrupt(self, finished, running, k, steps):
        if finished:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        update(self, finished, running, k, steps)

    monkeypatch.setattr(driver._Watch, "update", interrupt)
    found = sweep(batch=3)
    assert [run.status.name for run in found.runs] == ["COMPLETED"] * 3 + ["INTERRUPTED"] * 5
    assert 0 < found.runs[3].steps < STEPS
    done = found.runs[3].trace["value"]
    np.testing.assert_allclose(done, swept.runs[3].trace["value"][: len(done)], rtol=1e-12)
    assert [run.steps for run in found.runs[6:]] == [0, 0]
    np.testing.assert_array_equal(found.runs[7].x, start(1))
    assert np.isnan(found.last("value").ravel()[-1])
    assert found.best()["inner.step_size"] == 0.1


def test_progress_line(monkeypatch, capfd):
    monkeypatch.setattr("biloop.run.progress._PATIENCE", 0.0)
    sweep(progress=True)
    assert "cells 0/8  8 at k " in capfd.readouterr().err
    sweep()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"over": {"inner.stepsize": [0.1]}}, ValueError, "nearest path is 'inner.step_size'"),
        ({"over": {"inner.step": [0.1]}}, ValueError, "There is no 'inner.step' to vary"),
        ({"over": {"linar.steps": [1]}}, ValueError, "nearest path is 'linear.steps'"),
        ({"over": {"problem.inner_data[3]": [X]}}, ValueError, r"nearest .*inner_data\[0\]"),
        ({"over": {"inner.step_size": [0.1, -1.0]}}, ValueError, "cannot be -1.0: .*greater than"),
        ({"over": {"inner.step_size": ["a"]}}, TypeError, "cannot be 'a': .*must be a number"),
        ({"over": {"inner.steps": [2, 0]}}, ValueError, "cannot be 0: .*at least 1"),
        ({"over": {"outer": [0.0]}}, ValueError, "outer step size must be"),
        ({"over": {"inner.step_size": 0.1}}, TypeError, "must be a list"),
        ({"over": {"inner.step_size": []}}, ValueError, "has no values"),
        ({"over": {"inner.step_size": [0.1, 0.1]}}, ValueError, "has 0.1 twice"),
        ({"over": {TOGETHER: [(0.1,)]}}, ValueError, "needs 2 values, got"),
        ({"over": {TOGETHER: PAIRS, "inner.step_size": [1]}}, ValueError, "on two axes"),
        ({"over": ["outer"]}, TypeError, "over must be a dictionary from paths to values"),
        ({"over": {"outer": {(1, 2): 0.1}}}, TypeError, "must be numbers or words, got"),
        ({"over": {3: [1]}}, TypeError, "path or a tuple of paths"),
        ({"over": {"seed": [1]}}, ValueError, "given by seeds="),
        ({"over": {"steps": [1]}}, ValueError, "write 'method.steps'"),
        ({"over": {"x0": [X, jnp.full(3, jnp.nan)]}}, ValueError, "x0 has entries that are NaN"),
        ({"over": {"x0": [X, jnp.zeros(2)]}}, ValueError, "cannot be evaluated at these x and y"),
        ({"seeds": 5}, TypeError, r"such as range\(5\), got 5"),
        ({"seeds": [0.5]}, TypeError, "must be integers, got 0.5"),
        ({"seeds": []}, ValueError, "seeds is empty"),
        ({"seeds": range(2)}, TypeError, "nothing depends on them"),
        ({"x0": start}, TypeError, "x0 is a function of the seed: give the seeds"),
        ({"outer": None}, TypeError, "outer is missing"),
        ({"batch": 0}, ValueError, "batch must be an integer of at least 1, got 0"),
        ({"steps": 0}, ValueError, "steps must be an integer of at least 1, got 0"),
        ({"method": METHOD.inner}, TypeError, "method must be AID, ITD or another"),
        ({"problem": lambda seed: seed, "seeds": [0]}, TypeError, "must be a biloop.Problem"),
    ],
)
def test_bad_arguments(changes, error, words):
    settings = {"problem": PROBLEM, "method": METHOD, "x0": X, "y0": Y, "outer": 0.1, "steps": 2}
    with pytest.raises(error, match=words):
        bl.sweep(**(settings | changes))


def test_paths_lead_through_dictionaries_and_sequences():
    tree = {"a": 1, "b": (2, [3, bl.Cost(4, 5)])}
    assert value_at(tree, "['b'][1][1].products") == 5
    assert replaced(tree, "['b'][1][1].products", 9) == {"a": 1, "b": (2, [3, bl.Cost(4, 9)])}
    assert list(replaced(tree, "['a']", 9)) == ["a", "b"]
    x0 = {"bias": X, "rest": 2 * X}
    first, second = cells_of({'x0["bias"]': [X, 3 * X]}, x0=x0)
    assert second.x0["rest"] is first.x0["rest"]
    np.testing.assert_array_equal(second.x0["bias"], 3 * X)


def fake_run(value, status=bl.Status.COMPLETED):
    columns = {name: np.array([0, value]) for name in COLUMNS}
    trace = bl.Trace(columns)
    return bl.Run(value, 0, 0, status, "", trace.cost, trace, 2, 1.0, 0.0)


labels = st.lists(st.integers(-99, 99) | st.text(max_size=3), min_size=1, max_size=3, unique=True)


@given(st.lists(labels, max_size=3), st.data())
def test_labels_and_selections_agree_with_the_arrays(axes_labels, data):
    axes = tuple(
        Axis((f"a{n}",), tuple((v,) for v in values), tuple((v,) for v in values))
        for n, values in enumerate(axes_labels)
    )
    shape = tuple(map(len, axes_labels))
    size = int(np.prod(shape))
    values = data.draw(st.permutations(range(size)))
    whole = bl.Sweep(axes, tuple(map(fake_run, values)))
    array = np.array(values).reshape(shape)
    np.testing.assert_array_equal(whole.last("value"), array)
    np.testing.assert_array_equal(whole["value"][..., 1], array)
    assert len(whole) == size

    place = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    asked = {f"a{n}": axes_labels[n][i] for n, i in enumerate(place)}
    assert whole.run(asked).x == array[place]
    assert whole.labels[values.index(array[place])] == asked
    best = np.unravel_index(np.argmin(array), shape)
    assert whole.best() == {f"a{n}": axes_labels[n][i] for n, i in enumerate(best)}

    if shape:
        n = data.draw(st.integers(0, len(shape) - 1))
        one = whole.sel({f"a{n}": axes_labels[n][place[n]]})
        np.testing.assert_array_equal(one.last("value"), np.take(array, place[n], axis=n))
        assert list(one.axes) == [f"a{m}" for m in range(len(shape)) if m != n]
        assert all(label[f"a{n}"] == axes_labels[n][place[n]] for label in one.labels)
        kept = sorted(data.draw(st.sets(st.integers(0, shape[n] - 1), min_size=1)))
        some = whole.sel({f"a{n}": [axes_labels[n][i] for i in kept]})
        np.testing.assert_array_equal(some.last("value"), np.take(array, kept, axis=n))
        mean = whole.best(mean=f"a{n}")
        smallest = np.mean(whole.sel(mean).last("value"))
        assert smallest == pytest.approx(array.mean(axis=n).min())


def test_labels_are_the_values_or_their_names_or_positions():
    def axis(values):
        return [label for (label,) in make_axes({"outer": values}, None)[0].labels]

    assert axis([0.1, 2, "auto"]) == [0.1, 2, "auto"]
    assert axis(np.array([0.5, 2.0])) == axis(jnp.array([0.5, 2.0])) == [0.5, 2.0]
    assert axis([0.1, optax.adam(0.1)]) == axis([X, X]) == [0, 1]
    assert axis({"plain": 0.1, "adam": optax.adam(0.1)}) == ["plain", "adam"]


def test_selection_of_paths_that_vary_together(swept):
    part = swept.sel({"linear.step_size": 0.1})
    assert part.labels[0] == {
        "inner.step_size": 0.02, "linear.step_size": 0.1, "outer": 0.05, "seed": 0,
    }  # fmt: skip
    assert swept.axes["inner.step_size, linear.step_size"] == PAIRS
    assert part.runs == swept.runs[4:]
    for wanted, sentence in [
        ({"inner.steps": 1}, "no axis 'inner.steps'; there are inner.step_size"),
        ({"outer": 7}, r"'outer' has no 7; there are \[0.05, 0.01\]"),
    ]:
        with pytest.raises(KeyError, match=sentence):
            swept.sel(wanted)
    with pytest.raises(KeyError, match="2 runs have these labels; also say seed"):
        swept.run({"outer": 0.05, "inner.step_size": 0.1})
    with pytest.raises(KeyError, match="no axis 'seeds'"):
        swept.best(mean="seeds")


def test_best_leaves_out_what_failed():
    axis = Axis(("a",), ((0,), (1,)), ((0,), (1,)))
    seed = Axis(("seed",), ((0,), (1,)), ((0,), (1,)))
    failed = fake_run(0, bl.Status.DIVERGED)
    runs = (failed, fake_run(5), fake_run(6), fake_run(7))
    assert bl.Sweep((axis, seed), runs).best() == {"a": 0, "seed": 1}
    assert bl.Sweep((axis, seed), runs).best(mean="seed") == {"a": 1}
    with pytest.raises(ValueError, match="every one failed"):
        bl.Sweep((seed,), (failed, failed)).best()


def test_table(swept):
    frame = swept.to_pandas()
    assert list(frame.columns[:4]) == ["inner.step_size", "linear.step_size", "outer", "seed"]
    assert len(frame) == len(swept) == 8
    last = frame.iloc[-1]
    run = swept.run({"inner.step_size": 0.02, "outer": 0.01, "seed": 1})
    assert last["value"] == run.trace["value"][-1]
    assert (last["status"], last["steps"]) == ("COMPLETED", STEPS)
    assert (last["gradients"], last["products"]) == run.cost
    assert frame["seconds"].sum() == pytest.approx(swept.seconds)
    assert run.trace.label == "inner.step_size=0.02, linear.step_size=0.1, outer=0.01, seed=1"
    assert "\n" not in repr(swept)
    assert "2 outer × 2 seed: 8 COMPLETED" in repr(swept)


def test_the_document_prints_what_it_says():
    document = (ROOT / "docs" / "sweep.md").read_text(encoding="utf-8")
    ((code, claim),) = CODE.findall(document)
    with redirect_stdout(io.StringIO()) as printed:
        exec(code, {})
    assert words(printed.getvalue()) == words(claim)


def test_one_cell_without_axes():
    found = bl.sweep(PROBLEM, X, Y, METHOD, outer=0.1, steps=3)
    assert found.shape == ()
    assert found["value"].shape == (3,)
    same(found.run(), bl.solve(PROBLEM, X, Y, METHOD, outer=0.1, steps=3))
