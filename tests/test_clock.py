"""How a run ends depends on what it computes, and not on how fast: no clock, no load, no resume."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop.run.progress import duration

from .helpers import random_quadratic

QUADRATIC = random_quadratic()
X, Y = QUADRATIC.start()
A = jnp.asarray(np.random.default_rng(3).normal(size=(24, 3)))
T = A @ jnp.asarray([1.0, -2.0, 0.5])
ROWS = bl.Problem(
    lambda x, y, A, t: 0.5 * jnp.mean((A @ y - t) ** 2) + 0.5 * jnp.sum(jnp.exp(x) * y**2),
    lambda x, y, A, t: 0.5 * jnp.mean((A @ y - t) ** 2),
    (A, T),
    (A[:12], T[:12]),
)
DOWN = bl.Problem(
    lambda x, y: 0.5 * jnp.sum((y - x) ** 2), lambda x, y: -jnp.sum(y**2) - jnp.sum(x)
)
FLAT = bl.Problem(
    lambda x, y: 0.5 * jnp.sum((y - 1) ** 2) + 0.5 * jnp.exp(x) * jnp.sum(y**2),
    lambda x, y: 0.5 * jnp.sum((y - 1) ** 2),
)
KINK = bl.Problem(
    lambda x, y: 0.5 * jnp.sum((y - x) ** 2), lambda x, y: jnp.sum(jnp.abs(y - 1.0) ** 1.5)
)
WELL = bl.Problem(
    lambda x, y: jnp.sum(0.25 * y**4 - 0.5 * y**2 - x * y), lambda x, y: jnp.sum((y + 0.3) ** 2)
)
TWO, THREE = jnp.zeros(2), jnp.zeros(3)


def pair(inner, linear, N=5):
    return bl.schemes.n_q_loop(N, N, inner_step=inner, linear_step=linear)


def solve(problem, x, y, method=None, **more):
    return lambda **also: bl.solve(problem, x, y, method, **more, **also)


L = QUADRATIC.L
RUNS = {
    "inner loop": solve(QUADRATIC.problem, X, Y, pair(2.02 / L, 0.1), outer=0.05, steps=105),
    "linear loop": solve(QUADRATIC.problem, X, Y, pair(0.1, 2.02 / L), outer=1e-6, steps=300),
    "outer step": solve(QUADRATIC.problem, X, Y, pair(0.1, 0.1), outer=50.0, steps=10_000),
    "unbounded": solve(DOWN, TWO + 1.0, TWO, pair(0.5, 0.5), outer=0.2, steps=300),
    "unbounded, auto": solve(DOWN, TWO + 1.0, TWO, pair(0.5, 0.5), steps=300),
    "plateau": solve(FLAT, jnp.asarray(2.0), TWO),
    "settled": solve(KINK, TWO, TWO, pair(0.5, 0.5, 30), outer=0.4),
    "by itself": solve(ROWS, THREE, THREE),
    "two wells": solve(WELL, TWO, TWO + 0.1),
    "batches": solve(ROWS, THREE, THREE, bl.schemes.soba((4, 4), 5.0, 0.1), outer=1e-12, steps=900),
    "growing": solve(ROWS, THREE, THREE, bl.schemes.auto(batch=4), steps=30),
    "epsilon": solve(
        QUADRATIC.problem, X, Y, pair(0.1, 0.02, 1), outer=0.1, steps=400, epsilon=1e-3
    ),
    "patience": solve(
        ROWS, THREE, THREE, pair(0.1, 0.1), outer=0.3, steps=400,
        watch=lambda x, y: float(jnp.sum((x + 0.1) ** 2)), watch_every=3, patience=2,
    ),
}  # fmt: skip


def clock(seed):
    """A time that runs now a million times as fast as before, now as slow."""
    rng = np.random.default_rng(seed)
    ticks = itertools.accumulate(10.0 ** rng.uniform(-6, 1) for _ in itertools.count())
    return lambda: next(ticks)


def same(one, other):
    assert (one.status, one.message, one.steps) == (other.status, other.message, other.steps)
    for name in one.trace.columns:
        if name != "seconds":
            np.testing.assert_array_equal(one.trace[name], other.trace[name], err_msg=name)
    for name in ("x", "y", "value"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_ends_the_same_by_any_clock(name, monkeypatch):
    runs = []
    for seed in range(4):
        monkeypatch.setattr("time.perf_counter", clock(seed))
        runs.append(RUNS[name]())
        same(runs[0], runs[-1])


@pytest.mark.parametrize("name", ["inner loop", "plateau", "settled", "by itself", "epsilon"])
def test_a_run_ends_the_same_however_often_it_is_resumed(name, tmp_path):
    """Nothing that decides when it is looked at gets lost; and called once more it has ended."""
    whole = RUNS[name]()
    while True:
        # The first chunk has one step, the second ends at the next checkpoint: twelve at most.
        lives = iter([False, True])
        run = RUNS[name](checkpoint=tmp_path, every=11, callback=lambda _: next(lives))  # noqa: B023
        if run.status is not bl.Status.STOPPED:
            break
    same(whole, run)
    if not run.status.failed:
        same(whole, RUNS[name](checkpoint=tmp_path))


def test_a_sweep_judges_where_a_run_is_small_or_grows(monkeypatch):
    """One linear step: h is small long before it is right, in each lane at another k."""
    over = {"outer": [0.03, 0.1, 0.2], "linear.step_size": [0.005, 0.02, 2.3 / L]}
    sweeps = []
    for seed in range(3):
        monkeypatch.setattr("time.perf_counter", clock(seed))
        sweeps.append(
            bl.sweep(QUADRATIC.problem, X, Y, pair(0.1, 0.1, 1), over=over, steps=300, epsilon=1e-3)
        )
        for one, other in zip(sweeps[0].runs, sweeps[-1].runs, strict=True):
            same(one, other)
    assert {run.status.name for run in sweeps[0].runs} >= {"CONVERGED", "DIVERGED"}


def test_durations_are_those_of_a_clock():
    told = [duration(seconds) for seconds in (9.9, 75.0, 3723.0, 90061.0)]
    assert told == ["0:09", "1:15", "1:02:03", "25:01:01"]
