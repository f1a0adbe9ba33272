"""Checkpoints: killed at any moment, damaged, foreign, or on a full disk."""

import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import biloop as bl
from biloop.run import checkpoint as checkpoints

from .helpers import random_quadratic
from .killing import killed_until_done
from .npz import read_npz, write_npz

QUADRATIC = random_quadratic()
X, Y = QUADRATIC.start()
ADAM = optax.adam(0.05)  # a new one would be compiled again


class Stopped(Exception):
    pass


def solve(folder, steps=60, every=10, step_size=0.1, x=X, outer=ADAM, data=None, **options):
    quadratic = QUADRATIC if data is None else data
    method = bl.AID(
        bl.GradientDescent(step_size=step_size, steps=3), bl.Richardson(step_size=0.1, steps=2)
    )
    return bl.solve(
        quadratic.problem,
        x,
        Y,
        method,
        outer=outer,
        steps=steps,
        checkpoint=folder,
        every=every,
        **options,
    )


def same_bits(a, b):
    np.testing.assert_array_equal(a.x, b.x)
    np.testing.assert_array_equal(a.y, b.y)
    np.testing.assert_array_equal(a.v, b.v)
    for column in a.trace.columns:
        if column != "seconds":
            np.testing.assert_array_equal(a.trace[column], b.trace[column])
    assert a.cost == b.cost


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_resumed_run_ends_in_the_same_bits(tmp_path):
    whole = solve(None, steps=60)
    solve(tmp_path, steps=35)
    resumed = solve(tmp_path, steps=60)
    same_bits(whole, resumed)
    assert np.all(np.diff(resumed.trace["seconds"]) > 0)


@pytest.mark.parametrize("many", [1, 8, 20])
def test_rows_in_the_second_file_come_back(tmp_path, monkeypatch, many):
    monkeypatch.setattr(checkpoints, "MANY", many)
    for steps in (25, 47, 60):
        resumed = solve(tmp_path, steps=steps)
    assert names(tmp_path) == [checkpoints.FILE, checkpoints.ROWS]
    same_bits(solve(None, steps=60), resumed)
    np.testing.assert_array_equal(resumed.trace["k"], np.arange(60))


def test_killed_between_the_rows_and_the_state(tmp_path, monkeypatch):
    """The rows are there, and do not count; the next life writes its own over them."""
    monkeypatch.setattr(checkpoints, "MANY", 8)
    write = checkpoints.write_npz

    def killed(path, arrays, meta):
        if meta["steps"] == 30:
            raise Stopped
        write(path, arrays, meta)

    monkeypatch.setattr(checkpoints, "write_npz", killed)
    with pytest.raises(Stopped):
        solve(tmp_path)
    monkeypatch.setattr(checkpoints, "write_npz", write)
    assert first_k(tmp_path, steps=40) <= 30
    same_bits(solve(tmp_path), solve(None))


def test_what_is_written_grows_as_the_trace_does(tmp_path, monkeypatch):
    """To write the whole trace at each save would make it four times as much."""
    monkeypatch.setattr(checkpoints, "MANY", 64)

    def written(steps):
        before = bytes_written()
        solve(tmp_path / str(steps), steps=steps, every=20)
        return bytes_written() - before

    written(20)
    assert written(4000) < 2.2 * written(2000)


def bytes_written():
    with open("/proc/self/io") as file:
        return int(file.read().split("wchar:")[1].split()[0])


@pytest.mark.parametrize("k", [10, 20, 30])
def test_saved_in_every_interval(tmp_path, k):
    def stop(p):
        if p.k == k:
            raise Stopped

    with pytest.raises(Stopped):
        solve(tmp_path, callback=stop)
    assert first_k(tmp_path) > k


def test_saved_at_the_end_with_the_time_it_took(tmp_path):
    first = solve(tmp_path, steps=35)
    assert first_k(tmp_path, steps=36) == 36
    resumed = solve(tmp_path, steps=60)
    assert resumed.trace["seconds"][34] == first.seconds == first.trace["seconds"][-1]


def test_a_resumed_run_adds_to_the_time_of_the_first(tmp_path):
    solve(tmp_path, steps=35)
    arrays, meta = read_npz(tmp_path / checkpoints.FILE)
    arrays["rows"]["seconds"] += 1e3  # more than any machine needs for the rest
    write_npz(tmp_path / checkpoints.FILE, arrays, meta)
    spent = solve(tmp_path, steps=60, seconds=900)  # 1000 are gone
    assert (spent.status, spent.steps) == (bl.Status.TIME_SPENT, 35)
    resumed = solve(tmp_path, steps=60)
    assert resumed.seconds > 1e3
    assert np.all(np.diff(resumed.trace["seconds"]) > 0)


def first_k(folder, **options):
    """Where a run goes on: the first k that its callback sees."""
    seen = []
    solve(folder, callback=lambda p: seen.append(p.k), **options)
    return seen[0]


def test_fewer_steps_than_were_done_are_refused(tmp_path):
    done = solve(tmp_path, steps=40)
    with pytest.raises(ValueError, match="holds 40 steps of this run, more than the 39 asked for"):
        solve(tmp_path, steps=39)
    same_bits(solve(tmp_path, steps=40), done)


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
    _killed_and_resumed(tmp_path, steps=1500, kills=2)


def _killed_and_resumed(folder, steps, kills):
    killed_until_done(KILLED, folder / checkpoints.FILE, folder, steps, kills=kills)
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


def test_random_keys_in_the_outer_state_survive(tmp_path):
    def update(h, key, x):
        return -0.05 * (h + 0.01 * jax.random.normal(key, h.shape)), jax.random.split(key)[0]

    noisy = optax.GradientTransformation(lambda x: jax.random.key(0), update)
    whole = solve(None, steps=30, outer=noisy)
    for steps in (12, 30):
        resumed = solve(tmp_path, steps=steps, outer=noisy)
    same_bits(whole, resumed)


def test_a_failed_run_leaves_the_last_checkpoint(tmp_path):
    """Called again it fails again, from there, with the same rows: nothing is appended twice."""
    runs = [solve(tmp_path, steps=10_000, every=10, outer=1e3) for _ in range(2)]
    assert runs[0].status.failed
    same_bits(*runs)
    assert runs[0].message == runs[1].message


def test_every_is_checked(tmp_path):
    with pytest.raises(ValueError, match="every must be an integer of at least 1, got 0"):
        solve(tmp_path, every=0)
