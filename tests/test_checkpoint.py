"""Checkpoints: killed at any moment, damaged, foreign, or on a full disk."""

import os
import random
import resource
import signal
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import biloop as bl
from biloop import checkpoint as checkpoints

from .helpers import random_quadratic

QUADRATIC = random_quadratic()
X, Y = QUADRATIC.start()


def solve(folder, steps=60, every=10, step_size=0.1, x=X, outer=None, data=None):
    quadratic = QUADRATIC if data is None else data
    method = bl.AID(
        bl.GradientDescent(step_size=step_size, steps=3), bl.Richardson(step_size=0.1, steps=2)
    )
    outer = optax.adam(0.05) if outer is None else outer
    return bl.solve(
        quadratic.problem, x, Y, method, outer=outer, steps=steps, checkpoint=folder, every=every
    )


def same_bits(a, b):
    np.testing.assert_array_equal(a.x, b.x)
    np.testing.assert_array_equal(a.y, b.y)
    np.testing.assert_array_equal(a.v, b.v)
    for column in a.trace.columns:
        if column != "seconds":
            np.testing.assert_array_equal(a.trace[column], b.trace[column])
    assert a.cost == b.cost


def test_resumed_run_ends_in_the_same_bits(tmp_path):
    whole = solve(None, steps=60)
    solve(tmp_path, steps=35)
    resumed = solve(tmp_path, steps=60)
    same_bits(whole, resumed)
    assert np.all(np.diff(resumed.trace["seconds"]) > 0)


def test_a_finished_run_is_returned_as_it_was(tmp_path):
    first = solve(tmp_path)
    again = solve(tmp_path)
    same_bits(first, again)
    np.testing.assert_array_equal(first.trace["seconds"], again.trace["seconds"])


@pytest.mark.parametrize("limits", [{"budget": 50}, {"epsilon": 1e-3}])
def test_a_run_that_ended_early_does_not_go_on(tmp_path, limits):
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum((y - x) ** 2), lambda x, y: 0.5 * jnp.sum((y - 1) ** 2)
    )
    method, zero = bl.schemes.no_loop(0.5, 0.5), jnp.zeros(2)
    runs = [
        bl.solve(problem, zero, zero, method, outer=0.1, steps=99, checkpoint=tmp_path, **limits)
        for _ in range(3)
    ]
    assert runs[0].steps < 99
    for again in runs[1:]:
        same_bits(runs[0], again)
        assert again.status is runs[0].status


def test_half_precision_survives(tmp_path):
    problem = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: jnp.sum((y - 1) ** 2))
    x = jnp.zeros(3, jnp.bfloat16)
    method = bl.ITD(bl.GradientDescent(step_size=0.3, steps=3))
    whole = bl.solve(problem, x, x, method, outer=0.1, steps=8)
    for steps in (4, 8):
        resumed = bl.solve(
            problem, x, x, method, outer=0.1, steps=steps, checkpoint=tmp_path, every=2
        )
    assert resumed.x.dtype == jnp.bfloat16
    np.testing.assert_array_equal(whole.x, resumed.x)


KILLED = textwrap.dedent(
    """
    import sys
    import tests.conftest
    from tests.test_checkpoint import solve
    print("started", flush=True)
    run = solve(sys.argv[1], steps=int(sys.argv[2]), every=7)
    print("finished", flush=True)
    """
)


@pytest.mark.slow
def test_sigkill_at_any_moment_many_times(tmp_path):
    _killed_and_resumed(tmp_path, steps=20_000, kills=12)


def test_sigkill_at_any_moment(tmp_path):
    _killed_and_resumed(tmp_path, steps=4000, kills=2)


def _killed_and_resumed(folder, steps, kills):
    """Kill the run at random moments, writes included, until it gets through; compare the bits."""
    moments = random.Random(0)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", KILLED, str(folder), str(steps)]
    deaths = 0
    for _ in range(kills + 20):
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "started\n", process.stderr.read()
        if deaths < kills:
            file = folder / checkpoints.FILE
            before = file.stat().st_mtime_ns if file.exists() else 0
            deadline = time.monotonic() + 60
            # Wait for the first checkpoint of this life, then a random moment more.
            while process.poll() is None and time.monotonic() < deadline:
                if file.exists() and file.stat().st_mtime_ns != before:
                    break
                time.sleep(0.002)
            time.sleep(moments.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
        out, err = process.communicate(timeout=300)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, err
        deaths += 1
    assert "finished" in out
    assert deaths >= 1
    same_bits(solve(None, steps=steps), solve(folder, steps=steps, every=7))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"step_size": 0.11}, "method"),
        ({"x": X + 1}, "start"),
        ({"outer": optax.adam(0.06)}, "outer"),
        ({"outer": 0.1}, "outer"),
        ({"data": random_quadratic(seed=9)}, "problem"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_kept(tmp_path, change, part):
    solve(tmp_path, steps=20)
    before = (tmp_path / checkpoints.FILE).read_bytes()
    with pytest.raises(ValueError, match=rf"another run, with.* another {part}"):
        solve(tmp_path, **change)
    assert (tmp_path / checkpoints.FILE).read_bytes() == before


@pytest.mark.parametrize("damage", ["truncated", "flipped", "text", "empty"])
def test_a_damaged_checkpoint_is_refused_and_kept(tmp_path, damage):
    solve(tmp_path, steps=20)
    file = tmp_path / checkpoints.FILE
    content = bytearray(file.read_bytes())
    if damage == "truncated":
        content = content[: len(content) // 2]
    elif damage == "flipped":
        content[len(content) // 3] ^= 0xFF
    else:
        content = b"hello" if damage == "text" else b""
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged .*Delete it to start the run anew"):
        solve(tmp_path)
    assert file.read_bytes() == bytes(content)


def test_another_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "_FORMAT", 0)
    solve(tmp_path, steps=20)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="checkpoint format 0"):
        solve(tmp_path)


def test_a_full_disk_is_reported_and_loses_nothing(tmp_path, monkeypatch):
    solve(tmp_path, steps=20)
    good = (tmp_path / checkpoints.FILE).read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(RuntimeWarning, match="No space left on device.* The run goes on"):
        run = solve(tmp_path, steps=40)
    assert run.steps == 40
    assert "was not written" in run.message
    assert (tmp_path / checkpoints.FILE).read_bytes() == good
    assert [p.name for p in tmp_path.iterdir()] == [checkpoints.FILE]
    monkeypatch.undo()
    same_bits(solve(tmp_path, steps=40), solve(None, steps=40))


def test_a_write_that_the_system_cuts_short(tmp_path):
    """A limit on file sizes makes the kernel refuse the rest of the file, as a full disk does."""
    solve(tmp_path, steps=20)
    good = (tmp_path / checkpoints.FILE).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.warns(RuntimeWarning, match="was not written"):
            run = solve(tmp_path, steps=30)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert run.steps == 30
    assert (tmp_path / checkpoints.FILE).read_bytes() == good
    assert [p.name for p in tmp_path.iterdir()] == [checkpoints.FILE]


def test_an_unwritable_folder_is_noticed_before_the_run(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(OSError):
        solve(file / "folder")


class Target:
    """A callable with a constant of its own."""

    def __init__(self, value):
        self.value = value

    def __call__(self, x, y):
        return jnp.sum((y - self.value) ** 2)


WEIGHT = 1.0


def weighted(x, y):
    return WEIGHT * jnp.sum(y**2)


@pytest.mark.parametrize("kind", ["jitted", "object", "global"])
def test_constants_that_hide_are_noticed(tmp_path, monkeypatch, kind):
    def outer(value):
        if kind == "jitted":
            return jax.jit(lambda x, y: jnp.sum((y - value) ** 2))
        if kind == "object":
            return Target(value)
        monkeypatch.setitem(weighted.__globals__, "WEIGHT", value)
        return weighted

    def run(value, steps):
        problem = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), outer(value))
        method = bl.schemes.no_loop(0.1, 0.1)
        zero = jnp.zeros(2)
        return bl.solve(problem, zero, zero, method, outer=0.1, steps=steps, checkpoint=tmp_path)

    run(1.0, 5)
    assert run(1.0, 8).steps == 8
    with pytest.raises(ValueError, match="another problem"):
        run(2.0, 9)


def test_random_keys_in_the_outer_state_survive(tmp_path):
    def update(h, key, x):
        return -0.05 * (h + 0.01 * jax.random.normal(key, h.shape)), jax.random.split(key)[0]

    noisy = optax.GradientTransformation(lambda x: jax.random.key(0), update)
    whole = solve(None, steps=30, outer=noisy)
    for steps in (12, 30):
        resumed = solve(tmp_path, steps=steps, outer=noisy)
    same_bits(whole, resumed)


def test_a_callback_that_raises_loses_no_due_checkpoint(tmp_path):
    def raising(p):
        if p.k >= 20:
            raise RuntimeError("mine")

    method = bl.schemes.no_loop(0.1, 0.1)
    with pytest.raises(RuntimeError, match="mine"):
        bl.solve(
            QUADRATIC.problem,
            X,
            Y,
            method,
            outer=0.1,
            steps=99,
            checkpoint=tmp_path,
            every=20,
            callback=raising,
        )
    seen = []
    bl.solve(
        QUADRATIC.problem,
        X,
        Y,
        method,
        outer=0.1,
        steps=99,
        checkpoint=tmp_path,
        every=20,
        callback=lambda p: seen.append(p.k),
    )
    assert seen[0] > 20


def test_a_failed_run_leaves_the_last_checkpoint(tmp_path):
    """Called again it fails again, from there, with the same rows: nothing is appended twice."""
    runs = [solve(tmp_path, steps=10_000, every=10, outer=1e3) for _ in range(2)]
    assert runs[0].status.failed
    same_bits(*runs)
    assert runs[0].message == runs[1].message


def test_every_is_checked(tmp_path):
    with pytest.raises(ValueError, match="every must be an integer of at least 1, got 0"):
        solve(tmp_path, every=0)
