"""The base loop: it converges, it stops where it should, and its trace tells the truth."""

import io
import os
import signal
import threading
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import biloop as bl
import biloop.run.progress
from biloop.run.progress import ProgressLine, time_left

from .helpers import (
    logistic_problem,
    quadratic_inner,
    quadratic_outer,
    random_quadratic,
    relative_error,
    stepped,
)

QUADRATIC = random_quadratic()
X, Y = QUADRATIC.start()
METHOD = bl.AID(
    bl.GradientDescent(step_size=1 / QUADRATIC.L, steps=20),
    bl.Richardson(step_size=1 / QUADRATIC.L, steps=20),
)


def solve(**changes):
    settings = {"outer": 0.1, "steps": 30} | changes
    return bl.solve(QUADRATIC.problem, X, Y, METHOD, **settings)


def best_x(quadratic):
    """Φ is quadratic: its minimiser from its gradient at the origin and the unit vectors."""
    p = quadratic.B.shape[1]
    g0 = quadratic.hypergradient(np.zeros(p))
    H = np.stack([quadratic.hypergradient(e) - g0 for e in np.eye(p)], axis=1)
    return np.linalg.solve(H, -g0)


@pytest.mark.parametrize(
    "method",
    [METHOD, bl.schemes.no_loop(0.1, 0.1), bl.AID(METHOD.inner, bl.CG(steps=6)), bl.Exact()],
    ids=["N-Q-loop", "no loop", "cg", "exact"],
)
def test_finds_the_minimiser(method):
    run = bl.solve(QUADRATIC.problem, X, Y, method, outer=0.05, steps=20_000, epsilon=1e-20)
    assert run.status is bl.Status.CONVERGED
    assert relative_error(run.x, best_x(QUADRATIC)) < 1e-8
    assert relative_error(run.y, QUADRATIC.minimiser(best_x(QUADRATIC))) < 1e-8


def test_long_itd_finds_the_minimiser_and_short_itd_does_not():
    """The paper's point about ITD: with N = 1 an error remains however long the run."""
    ends = {}
    for N in (1, 60):
        method = bl.ITD(bl.GradientDescent(step_size=1 / QUADRATIC.L, steps=N))
        ends[N] = bl.solve(QUADRATIC.problem, X, Y, method, outer=0.05, steps=5000).x
    assert relative_error(ends[60], best_x(QUADRATIC)) < 1e-2
    assert relative_error(ends[1], best_x(QUADRATIC)) > 0.1


def test_trace_has_one_row_per_step():
    run = solve(label="mine")
    trace = run.trace
    assert len(trace) == run.steps == 30
    assert trace.label == "mine"
    np.testing.assert_array_equal(trace["k"], np.arange(30))
    np.testing.assert_array_equal(trace["gradients"], 22 * np.arange(1, 31))
    np.testing.assert_array_equal(trace["products"], 21 * np.arange(1, 31))
    assert np.all(np.diff(trace["seconds"]) > 0)
    assert trace["seconds"][-1] == pytest.approx(run.seconds)
    assert run.cost == trace.cost == bl.Cost(22 * 30, 21 * 30)
    assert type(run.cost.gradients) is int
    h = QUADRATIC.hypergradient(run.x)
    assert trace["hypergradient_norm"][-1] == pytest.approx(np.linalg.norm(h), rel=0.3)


def test_values_are_those_of_f_at_the_iterates():
    seen = []
    solve(steps=1, callback=lambda p: seen.append(p) and None)
    run = solve(steps=1)
    _, state, _ = stepped(METHOD, QUADRATIC.problem, X, Y)
    value = QUADRATIC.problem.outer(X, state.y, *QUADRATIC.problem.outer_data)
    assert run.trace["value"][0] == pytest.approx(float(value))
    assert seen[0].value == pytest.approx(float(value))


def test_value_y_and_v_are_those_at_the_last_x():
    """What one more outer step would start with, for no cost and no row."""
    run, longer = solve(steps=30), solve(steps=31)
    assert run.value == longer.trace["value"][30]
    assert run.value == pytest.approx(
        float(QUADRATIC.problem.outer(run.x, run.y, *QUADRATIC.problem.outer_data))
    )
    assert relative_error(run.y, QUADRATIC.minimiser(run.x)) < 1e-2
    assert relative_error(run.v, QUADRATIC.adjoint(QUADRATIC.minimiser(run.x))) < 1e-2
    assert len(run.trace) == 30
    itd = bl.solve(QUADRATIC.problem, X, Y, bl.ITD(METHOD.inner), outer=0.1, steps=1)
    assert itd.v is None


def test_epsilon_stops_where_h_is_small_and_keeps_that_x():
    run = solve(steps=5000, epsilon=1e-6)
    assert run.status is bl.Status.CONVERGED
    norms = run.trace["hypergradient_norm"]
    assert norms[-1] ** 2 <= 1e-6
    assert np.all(norms[:-1] ** 2 > 1e-6)
    # x is the point at which the last h was taken, and was not moved after that.
    before = solve(steps=run.steps - 1)
    np.testing.assert_array_equal(run.x, before.x)
    assert run.value == run.trace["value"][-1] == before.value
    assert not np.array_equal(run.x, solve(steps=run.steps).x)


def test_h_is_halved_in_each_of_many_steps_and_epsilon_is_small_enough():
    """Φ = ½x², and steps of one half: ‖h‖ = 2⁻ᵏ, also where the record of a chunk is full."""
    problem = bl.Problem(lambda x, y: 0.5 * (y - x) ** 2, lambda x, y: 0.5 * x**2)
    method = bl.schemes.no_loop(1.0, 1.0)
    run = bl.solve(problem, 1.0, 0.0, method, outer=0.5, steps=50, epsilon=2.0**-20)
    assert run.status is bl.Status.CONVERGED
    np.testing.assert_array_equal(run.trace["hypergradient_norm"], 0.5 ** np.arange(11))
    long = bl.solve(problem, 1.0, 0.0, method, outer=1e-3, steps=9000)
    np.testing.assert_allclose(long.trace["value"], 0.5 * (1 - 1e-3) ** (2 * np.arange(9000)))


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (100, 3),  # 43 per outer step: 129 ≥ 100 after the third
        (86, 2),  # spent to the last
        (bl.Cost(44, 10**6), 2),
        (bl.Cost(10**6, 22), 2),
        (bl.Cost(10**6, 42), 2),  # spent to the last product
        (bl.Cost(10**12, 10**12), 30),
        (10**12, 30),
    ],
)
def test_budget(budget, expected):
    run = solve(budget=budget)
    assert run.steps == len(run.trace) == expected
    assert run.status is (bl.Status.BUDGET_SPENT if expected < 30 else bl.Status.COMPLETED)


def test_time_budget():
    started = time.perf_counter()
    run = solve(steps=10**9, seconds=0.5, outer=1e-3)
    assert run.status is bl.Status.TIME_SPENT
    assert 0.5 <= run.seconds < 1.5
    assert time.perf_counter() - started < 10


def test_chunks_do_not_change_the_bits(monkeypatch):
    whole = solve(steps=100)
    monkeypatch.setattr(biloop.run.progress, "_CHUNK_SECONDS", 1e-9)  # one step per chunk
    single = solve(steps=100)
    np.testing.assert_array_equal(whole.x, single.x)
    for column in ("value", "hypergradient_norm", "inner_residual", "gradients"):
        np.testing.assert_array_equal(whole.trace[column], single.trace[column])


def test_numbers_and_data_do_not_compile_again():
    traces = []

    def inner(x, y, d):
        traces.append("inner")
        return quadratic_inner(x, y, d)

    def run(seed, step_size, outer, steps, epsilon):
        quadratic = random_quadratic(seed, q=9, p=3)
        data = quadratic.problem.inner_data
        problem = bl.Problem(inner, quadratic_outer, inner_data=data, outer_data=data)
        method = bl.AID(
            bl.GradientDescent(step_size=step_size, steps=4),
            bl.Richardson(step_size=step_size, steps=4),
        )
        start = quadratic.start()
        run = bl.solve(problem, *start, method, outer=outer, steps=steps, epsilon=epsilon)
        assert run.status is bl.Status.CONVERGED

    run(0, 0.1, 0.1, 500, 1e-1)
    before = len(traces)
    run(1, 0.05, 0.2, 5000, 1e-3)
    assert len(traces) == before > 0


def test_callback_sees_progress_and_can_stop():
    seen = []

    def callback(p):
        seen.append(p.k)
        return p.k >= 3

    run = solve(steps=10**6, callback=callback)
    assert run.status is bl.Status.STOPPED
    assert seen == sorted(seen)
    assert run.steps == seen[-1]


def test_ctrl_c_returns_what_was_done():
    before = signal.getsignal(signal.SIGINT)
    threading.Timer(0.6, os.kill, (os.getpid(), signal.SIGINT)).start()
    run = solve(steps=10**9, outer=1e-3)
    assert run.status is bl.Status.INTERRUPTED
    assert 0 < run.steps < 10**9
    assert len(run.trace) == run.steps
    assert np.all(np.isfinite(run.x))
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_is_not_lost_where_the_run_ends_by_itself():
    """A loop over runs would go on: it is told by the status, or raised where that is a failure."""
    press = lambda _: os.kill(os.getpid(), signal.SIGINT)  # noqa: E731
    run = solve(steps=1, callback=press)
    assert run.status is bl.Status.INTERRUPTED
    assert run.steps == 1
    far = bl.schemes.n_loop(5, inner_step=1e200, linear_step=0.1)
    with pytest.raises(KeyboardInterrupt, match="NOT_FINITE"):
        bl.solve(QUADRATIC.problem, X, Y, far, outer=0.1, steps=30, callback=press)


@pytest.mark.parametrize("before", [signal.default_int_handler, signal.SIG_IGN])
def test_the_second_ctrl_c_does_not_wait_for_the_chunk(before):
    """Also where a shell that runs it in the background lets Ctrl-C be ignored."""
    pressed = []

    def twice(_):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            pressed.append(True)  # the signal is delivered before the next line

    outside = signal.signal(signal.SIGINT, before)
    try:
        with pytest.raises(KeyboardInterrupt):
            solve(steps=1, callback=twice)
        assert len(pressed) <= 2
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, outside)


def test_a_handler_that_is_not_of_python_is_left_alone(monkeypatch):
    """There is no way to put it back."""
    monkeypatch.setattr(signal, "getsignal", lambda _: None)
    assert solve(steps=1).status is bl.Status.COMPLETED


def test_runs_in_a_thread_that_gets_no_signals():
    runs = []
    thread = threading.Thread(target=lambda: runs.append(solve()))
    thread.start()
    thread.join()
    assert runs[0].status is bl.Status.COMPLETED


def test_v0_is_where_the_adjoint_starts():
    v = jnp.asarray(QUADRATIC.adjoint(QUADRATIC.minimiser(X)))
    method = bl.AID(
        bl.GradientDescent(step_size=1 / QUADRATIC.L, steps=400),
        bl.Richardson(step_size=1 / QUADRATIC.L, steps=1),
    )
    run = bl.solve(QUADRATIC.problem, X, Y, method, v0=v, outer=0.1, steps=1)
    assert run.trace["linear_residual"][0] < 1e-10


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.grad])
def test_inside_a_transformation_it_says_what_to_use_instead(transform):
    """The tracer may come in by x0 or by the data."""

    def through_the_start(x):
        return bl.solve(QUADRATIC.problem, x, Y, bl.Exact(), outer=0.1, steps=1).x

    def through_the_data(a):
        problem = bl.Problem(
            lambda x, y, a: 0.5 * jnp.sum((y - a) ** 2),
            lambda x, y: jnp.sum(y),
            inner_data=(a,),
        )
        return bl.solve(problem, X, Y, bl.Exact(), outer=0.1, steps=1).x

    for function in (through_the_start, through_the_data):
        with pytest.raises(TypeError, match="use sweep"):
            transform(function)(X)


def test_x64_off_uses_float32():
    jax.config.update("jax_enable_x64", False)
    try:
        quadratic = random_quadratic(dtype=np.float32)
        x, y = (jnp.asarray(a, jnp.float32) for a in quadratic.start())
        run = bl.solve(quadratic.problem, x, y, METHOD, outer=0.1, steps=300, epsilon=1e-8)
        assert run.x.dtype == jnp.float32
        assert run.trace["value"].dtype == np.float32
        assert relative_error(run.x, best_x(random_quadratic())) < 1e-3
    finally:
        jax.config.update("jax_enable_x64", True)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_leaves_work_and_stay(dtype):
    problem, x, y = logistic_problem()
    cast = lambda tree: jax.tree.map(lambda a: jnp.asarray(a, dtype), tree)  # noqa: E731
    half = bl.Problem(
        problem.inner, problem.outer, cast(problem.inner_data), cast(problem.outer_data)
    )
    method = bl.AID(bl.GradientDescent(step_size=0.5, steps=10), bl.CG(steps=4))
    run = bl.solve(half, cast(x), cast(y), method, outer=0.5, steps=40)
    assert run.status is bl.Status.COMPLETED
    assert run.x.dtype == run.y.dtype == dtype
    assert run.trace["hypergradient_norm"].dtype == np.float64  # as all records with x64
    assert run.trace["value"][-1] < run.trace["value"][0]


def test_equinox_model_as_inner_variable():
    model = eqx.nn.MLP(3, 1, 4, 1, key=jax.random.key(0))
    parameters, static = eqx.partition(model, eqx.is_inexact_array)
    rng = np.random.default_rng(0)
    data = tuple(rng.normal(size=(20, n)).astype(np.float32) for n in (3, 1))

    def predict(parameters, X):
        return jax.vmap(eqx.combine(parameters, static))(X)

    def inner(x, y, X, T):
        squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
        return jnp.mean((predict(y, X) - T) ** 2) + jnp.exp(x) * squares

    problem = bl.Problem(inner, lambda x, y, X, T: jnp.mean((predict(y, X) - T) ** 2), data, data)
    parameters = jax.tree.map(lambda a: a.astype(jnp.float32), parameters)
    method = bl.ITD(bl.GradientDescent(step_size=0.05, steps=30))
    run = bl.solve(problem, jnp.float32(-1.0), parameters, method, outer=optax.adam(0.1), steps=20)
    assert run.status is bl.Status.COMPLETED
    assert run.trace["value"][-1] < run.trace["value"][0]
    assert isinstance(run.y, eqx.nn.MLP)


def test_progress_line():
    stream = io.StringIO()
    here = bl.Progress(10, 100, X, Y, 0.123456789, 1e-3, bl.Cost(1200, 1100), 1.0)
    with ProgressLine(show=True, stream=stream) as line:
        line._next = 0.0  # the first two seconds are silent
        line.update(here, rate=2.0)
        line.update(here, rate=2.0)  # too soon to be shown again
    text = stream.getvalue()
    assert text.count("\r") == 1
    for part in ("10/100", "0.123457", "‖h‖ 0.001", "1,200", "1,100", "2 steps/s", "0:45"):
        assert part in text
    assert text.endswith("\n")


def test_the_progress_line_tells_the_limit_that_ends_the_run_first():
    here = bl.Progress(10, 2**31 - 2, X, Y, 1.0, 1e-3, bl.Cost(200, 100), 5.0)
    assert time_left(here, None, None) == np.inf
    assert time_left(here, 60.0, None) == 55.0
    assert time_left(here, 60.0, 900) == time_left(here, None, bl.Cost(10_000, 300)) == 10.0
    stream = io.StringIO()
    with ProgressLine(show=True, stream=stream) as line:
        line._next = 0.0
        line.update(here, rate=2.0, others=time_left(here, 60.0, 900))
    assert "k 10  " in stream.getvalue()
    assert "0:10 left" in stream.getvalue()


def test_no_progress_line_unless_asked_for_or_on_a_terminal(capfd):
    solve(steps=5)
    assert capfd.readouterr().err == ""
    stream = io.StringIO()
    line = ProgressLine(show=None, stream=stream)
    line._next = 0.0
    line.update(bl.Progress(1, 2, X, Y, 0.0, 0.0, bl.Cost(0, 0), 0.0), rate=1.0)
    assert stream.getvalue() == ""


def test_repr_is_one_line():
    assert repr(solve()).startswith("Run(COMPLETED, steps=30, value=")
    assert "gradients=660, products=630" in repr(solve())
    assert "\n" not in repr(solve().trace)
