"""A method that is not in the library works wherever one of the library does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from examples.custom_method import Momentum, main

from .helpers import advanced

ROOT = Path(__file__).parents[1]
STEPS, KILLED = 300, 120
CHILD = f"""
import os, signal, sys
import jax
jax.config.update("jax_enable_x64", True)
from tests.test_custom_method import solve_momentum

def kill(progress):
    if progress.k >= {KILLED}:
        os.kill(os.getpid(), signal.SIGKILL)

solve_momentum(checkpoint=sys.argv[1], every=10, callback=kill)
"""


def quadratic():
    return bl.problems.quadratic(16.0, p=4, q=6)


def method(decay=0.9):
    loops = bl.schemes.n_q_loop(N=5, Q=5, inner_step=0.5, linear_step=0.5)
    return Momentum(loops, decay)


def solve_momentum(decay=0.9, **given):
    made = quadratic()
    return bl.solve(made.problem, made.x0, made.y0, method(decay), outer=0.2, steps=STEPS, **given)


def by_hand(decay, beta, steps):
    """The same in NumPy: AID with N = Q = 5, then m and x."""
    made = quadratic()
    A, B, c, D, t, E = (getattr(made, name) for name in "ABcDtE")
    x, y = np.asarray(made.x0), np.asarray(made.y0)
    v, m = np.zeros_like(y), np.zeros_like(x)
    for _ in range(steps):
        for _ in range(5):
            y = y - 0.5 * (A @ y - B @ x - c)
        for _ in range(5):
            v = v - 0.5 * (A @ v - D @ (y - t))
        m = decay * m + (1 - decay) * (E @ x + B.T @ v)
        x = x - beta * m
    return x


def test_solve_runs_it():
    run = solve_momentum()
    np.testing.assert_allclose(run.x, by_hand(0.9, 0.2, STEPS), rtol=1e-9)
    assert run.status is bl.Status.COMPLETED
    assert run.cost == bl.Cost(STEPS * 7, STEPS * 6)  # those of the method that it wraps


def test_sweep_varies_its_numbers():
    made, decays = quadratic(), [0.0, 0.5, 0.9]
    swept = bl.sweep(
        made.problem, made.x0, made.y0, method(), over={"decay": decays}, outer=0.2, steps=50
    )
    for decay, run in zip(decays, swept.runs, strict=True):
        np.testing.assert_allclose(run.x, by_hand(decay, 0.2, 50), rtol=1e-9)


def test_its_failure_is_told_and_explained():
    made = quadratic()
    loops = bl.schemes.n_q_loop(N=20, Q=5, inner_step=1e3, linear_step=0.5)
    run = bl.solve(made.problem, made.x0, made.y0, Momentum(loops), outer=0.2, steps=50)
    assert run.status.failed
    assert "inner step size 1000 is above the largest stable one" in run.message
    assert np.isfinite(run.x).all()


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "saved")], cwd=ROOT, env=environment
    )
    assert child.returncode == -signal.SIGKILL
    resumed = solve_momentum(checkpoint=tmp_path / "saved", every=10)
    whole = solve_momentum()
    assert np.array_equal(resumed.x, whole.x)
    assert np.array_equal(resumed.trace["value"], whole.trace["value"])
    # It did go on, and did not begin again: the first rows bear the times of the killed run.
    assert resumed.steps == STEPS


def test_the_example_runs(capsys):
    main()
    said = capsys.readouterr().out
    assert "solve: COMPLETED" in said
    assert said.count("sweep: decay=") == 3
    assert "compare: N-Q-loop AID (N = 5, Q = 5)" in said
    assert "compare: Momentum (decay = 0." in said


def test_a_batch_of_states_is_a_state():
    """The protocol of a method: pure, so that it can be compiled and differentiated through."""
    made = quadratic()
    mine = method()
    state = mine.init(made.problem, made.x0, made.y0)
    h, after, info = advanced(mine, made.problem, made.x0, state, jnp.zeros((), jnp.int32))
    assert h.shape == made.x0.shape
    assert after.y.shape == made.y0.shape
    assert int(info.result) == pytest.approx(0)
