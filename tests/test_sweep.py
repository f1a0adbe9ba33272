"""Sweeps: every cell is its own run, shares what it can, and spoils nothing when it fails."""

import os
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop.sweeps import driver

from .helpers import quadratic_inner, quadratic_outer
from .sweeping import (
    INPUTS,
    METHOD,
    OUTER,
    PAIRS,
    PROBLEM,
    STEPS,
    TOGETHER,
    X,
    Y,
    least_squares,
    noisy_problem,
    same,
    single,
    start,
    sweep,
    validation,
)


@pytest.fixture(scope="module")
def swept():
    return sweep()


def test_every_cell_is_its_own_run(swept):
    assert swept.shape == (2, 2, 2)
    for label, run in zip(swept.labels, swept.runs, strict=True):
        same(run, single(label))
        assert run.status is bl.Status.COMPLETED
        assert run.message.startswith("All steps were done.")


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
        assert run.steps == alone.steps == len(run.trace) == 2
        assert run.message == alone.message
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
    """h is larger than 10 at the start, so that 1e308 times it is beyond all numbers."""
    x, outer = 100 * X, [0.05, 1e308]
    found = bl.sweep(PROBLEM, x, Y, METHOD, over={"outer": outer}, steps=STEPS)
    for step_size, run in zip(outer, found.runs, strict=True):
        alone = bl.solve(PROBLEM, x, Y, METHOD, outer=step_size, steps=STEPS)
        assert (run.status, run.steps) == (alone.status, alone.steps)
        np.testing.assert_allclose(run.x, alone.x, rtol=1e-10)
        np.testing.assert_array_equal(run.trace["result"], alone.trace["result"])
    fine, bad = found.runs
    assert fine.status is bl.Status.COMPLETED
    assert (bad.status, bad.steps, len(bad.trace)) == (bl.Status.UPDATE_NOT_FINITE, 0, 1)
    np.testing.assert_array_equal(bad.x, x)


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


class Counted:
    """A problem whose inner function counts how often it is traced."""

    def __init__(self):
        self.traces = 0
        self.problem = bl.Problem(
            self._inner, quadratic_outer, PROBLEM.inner_data, PROBLEM.outer_data
        )

    def _inner(self, x, y, d):
        self.traces += 1
        return quadratic_inner(x, y, d)


def test_other_numbers_compile_nothing():
    counted = Counted()

    def again(pairs, steps, **limits):
        over = {TOGETHER: pairs, "outer": OUTER}
        bl.sweep(
            counted.problem,
            start,
            Y,
            METHOD,
            over=over,
            seeds=range(2),
            steps=steps,
            batch=8,
            **limits,
        )  # to find the batch itself, it would trace a step
        return counted.traces

    before = again(PAIRS, 12)
    assert again([(0.03, 0.04), (0.05, 0.06)], 7, budget=10**6) == before
    assert again([(0.03, 0.04), (0.05, 0.06)], 400) == before > 0  # more than one chunk


def test_loop_sizes_share_one_program():
    def traces(**axes):
        counted = Counted()
        bl.sweep(counted.problem, X, Y, METHOD, over=axes | {"outer": OUTER}, steps=STEPS)
        return counted.traces

    axes = {"inner.steps": [1, 5], "linear.steps": [0, 3]}
    first = {path: values[:1] for path, values in axes.items()}
    assert traces(**axes) == traces(**first)
    axes |= {"outer": OUTER}
    found = bl.sweep(PROBLEM, X, Y, METHOD, over=axes, steps=STEPS)
    for label, run in zip(found.labels, found.runs, strict=True):
        N, Q = (jnp.asarray(label[f"{loop}.steps"]) for loop in ("inner", "linear"))
        method = bl.AID(bl.GradientDescent(0.1, N), bl.Richardson(0.1, Q))
        same(run, bl.solve(PROBLEM, X, Y, method, outer=label["outer"], steps=STEPS))
        assert run.cost == bl.Cost(STEPS * (int(N) + 2), STEPS * (int(Q) + 1))


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


def test_data_of_several_processes_are_refused(monkeypatch):
    monkeypatch.setattr(type(X), "is_fully_addressable", False)
    with pytest.raises(ValueError, match="sweep runs in one process"):
        sweep()


def test_batches_give_the_same_numbers(swept):
    found = sweep(batch=3)  # 3 + 3 + 2, the last one filled up
    for a, b in zip(found.runs, swept.runs, strict=True):
        same(a, b, tolerance=1e-12)


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
        ({"over": {"inner.steps": [2, 10**400]}}, ValueError, "inner.steps.*at most 10000000"),
        ({"over": {"inner.steps": [np.array([X])]}}, TypeError, "steps must be"),
        ({"over": {"inner.step_size": [0.1, jax.random.key(0)]}}, TypeError, "must be a number"),
        ({"over": {"inner.step_size": [np.array([None])]}}, TypeError, "must be a"),
        ({"over": {"outer": [0.0]}}, ValueError, "outer step size must be"),
        ({"over": {"inner.step_size": 0.1}}, TypeError, "must be a list"),
        ({"over": {"inner.step_size": []}}, ValueError, "has no values"),
        ({"over": {"inner.step_size": [0.1, 0.1]}}, ValueError, "has 0.1 twice"),
        ({"over": {TOGETHER: [(0.1,)]}}, ValueError, "needs 2 values, got"),
        ({"over": {TOGETHER: PAIRS, "inner.step_size": [1]}}, ValueError, "on two axes"),
        ({"over": ["outer"]}, TypeError, "over must be a dictionary from paths to values"),
        ({"over": {"outer": {(1, 2): 0.1}}}, TypeError, "must be numbers or words, got"),
        ({"over": {3: [1]}}, TypeError, "of over is a path or a tuple of paths"),
        ({"over": {"seed": [1]}}, ValueError, "given by seeds="),
        ({"over": {"steps": [1]}}, ValueError, "write 'method.steps'"),
        ({"over": {"x0": [X, jnp.full(3, jnp.nan)]}}, ValueError, "x0 has entries that are NaN"),
        ({"over": {"x0": [X, jnp.zeros(2)]}}, ValueError, "cannot be evaluated at these x and y"),
        ({"seeds": 5}, TypeError, r"such as range\(5\), got 5"),
        ({"seeds": [0.5]}, TypeError, "must be integers, got 0.5"),
        ({"seeds": []}, ValueError, "seeds is empty"),
        ({"seeds": range(2)}, TypeError, "nothing depends on them"),
        ({"x0": start}, TypeError, "x0 is a function of the seed: give the seeds"),
        ({"x0": lambda: X, "seeds": [0]}, TypeError, "x0 must be a function of the seed"),
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


def test_one_cell_without_axes():
    found = bl.sweep(PROBLEM, X, Y, METHOD, outer=0.1, steps=3)
    assert found.shape == ()
    assert found["value"].shape == (3,)
    same(found.run(), bl.solve(PROBLEM, X, Y, METHOD, outer=0.1, steps=3))
