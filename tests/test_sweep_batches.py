"""Which cells run side by side, what they share, and how many of them fit into memory."""

import os
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import biloop as bl
from biloop.sweeps import batches, driver, memory, plan
from biloop.sweeps.axes import make_axes
from biloop.sweeps.cells import Cell, make_cells
from biloop.sweeps.paths import replaced, value_at

from .sweeping import INPUTS, METHOD, OUTER, PAIRS, PROBLEM, TOGETHER, X, Y, noisy_problem, sweep


def cells_of(over=None, seeds=None, problem=PROBLEM, method=METHOD, x0=X, y0=Y, outer=0.1):
    def check(problem, method):
        assert isinstance(problem, bl.Problem)
        assert isinstance(method, bl.Method)

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


def test_starts_of_a_seed_may_be_numbers():
    cells = cells_of({}, range(2), x0=lambda seed: 0.5 * seed)
    assert [float(cell.x0) for cell in cells] == [0.0, 0.5]


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


@pytest.fixture(scope="module")
def swept():
    return sweep()


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


def test_what_is_wider_than_half_of_what_failed_is_split_too():
    """Nine did not fit: at most five go together from there on, in this program."""
    wide, narrow = plan.Planned(0, tuple(range(9)), 9), plan.Planned(0, tuple(range(9, 16)), 7)
    other = plan.Planned(1, tuple(range(9)), 9)
    assert [p.width for p in plan.halve([other, wide, narrow, other], wide)] == [9, 5, 5, 4, 4, 9]


def test_lanes_are_as_many_as_half_of_the_memory_holds(monkeypatch):
    """50 bytes a lane."""
    for half, lanes in ((149, 2), (150, 3), (199, 3), (200, 4), (49, 1)):
        monkeypatch.setattr(memory, "free_bytes", lambda half=half: 2 * half)
        assert memory.lanes_that_fit(lambda width: 50 * width, 4) == lanes


def test_the_time_that_is_left_is_judged_by_the_steps_of_all_cells(monkeypatch):
    """After ten seconds two of eight cells are there, and four have made half of their steps."""
    shown, clock = [], iter([0.0, 10.0])
    monkeypatch.setattr(driver.time, "monotonic", lambda: next(clock))
    line = SimpleNamespace(show=shown.append)
    driver._Watch(line, [], 8).update(2, 4, k=5, steps=10)
    assert shown == ["cells 2/8  4 at k 5/10  0:10 left"]


SHARDED = textwrap.dedent(
    """
    import jax, numpy as np
    import biloop as bl
    from jax.sharding import Mesh
    from tests.sweeping import noisy_problem, spread_sweep

    mesh = Mesh(np.array(jax.devices()), ("samples",))
    one, two = spread_sweep(noisy_problem), spread_sweep(lambda s: bl.shard(noisy_problem(s), mesh))
    for a, b in zip(one.runs, two.runs, strict=True):
        np.testing.assert_allclose(a.x, b.x, rtol=1e-12)
        np.testing.assert_allclose(a.trace["value"], b.trace["value"], rtol=1e-12)
    assert two.seconds < two.compile_seconds  # nothing compiled on the way
    print(len(jax.devices()), "devices")
    """
)


@pytest.mark.slow
def test_data_on_several_devices():
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_ENABLE_X64": "1"}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | flags
    command = [sys.executable, "-c", SHARDED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout == "2 devices\n", done.stderr


def test_paths_lead_through_dictionaries_and_sequences():
    tree = {"a": 1, "b": (2, [3, bl.Cost(4, 5)])}
    assert value_at(tree, "['b'][1][1].products") == 5
    assert replaced(tree, "['b'][1][1].products", 9) == {"a": 1, "b": (2, [3, bl.Cost(4, 9)])}
    assert list(replaced(tree, "['a']", 9)) == ["a", "b"]
    x0 = {"bias": X, "rest": 2 * X}
    first, second = cells_of({'x0["bias"]': [X, 3 * X]}, x0=x0)
    assert second.x0["rest"] is first.x0["rest"]
    np.testing.assert_array_equal(second.x0["bias"], 3 * X)
