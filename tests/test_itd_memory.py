"""The memory modes of ITD: the same hypergradient, the promised bytes, and the choice of "auto"."""

import functools
import os
import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import biloop as bl
from biloop.compilation import device_memory
from biloop.methods import unroll_bytes

from .helpers import logistic_problem, random_quadratic, relative_error, stepped
from .test_cost import run_and_count


@eqx.filter_jit
def call(method, problem, x, y):
    return method(problem, x, method.init(problem, x, y), 0)


@functools.cache
def softmax_problem(samples, features, classes, dtype=np.float32, seed=0):
    """A weight per training sample, as in data cleaning; ∇_y g has the transpose of X in it."""
    rng = np.random.default_rng(seed)
    X, V = rng.normal(size=(2, samples, features)).astype(dtype)
    T, U = np.eye(classes, dtype=dtype)[rng.integers(classes, size=(2, samples))]

    def losses(W, X, T):
        logits = X @ W
        return jax.nn.logsumexp(logits, axis=1) - jnp.sum(logits * T, axis=1)

    def inner(x, W, X, T):
        return jnp.mean(jax.nn.sigmoid(x) * losses(W, X, T)) + 1e-3 * jnp.sum(W**2)

    def outer(x, W, V, U):
        return jnp.mean(losses(W, V, U))

    problem = bl.Problem(inner, outer, inner_data=(X, T), outer_data=(V, U))
    return problem, jnp.zeros(samples, dtype), jnp.zeros((features, classes), dtype)


@functools.cache
def network_problem():
    """A small network, whose activations are larger than its weights; a penalty for each layer."""
    rng = np.random.default_rng(0)
    X, V = rng.normal(size=(2, 300, 20))
    t, u = np.sin(X[:, 0]), np.sin(V[:, 0])

    def predict(y, X):
        return jnp.tanh(X @ y["in"]) @ y["out"]

    def inner(x, y, X, t):
        penalty = jnp.exp(x[0]) * jnp.sum(y["in"] ** 2) + jnp.exp(x[1]) * jnp.sum(y["out"] ** 2)
        return jnp.mean((predict(y, X) - t) ** 2) + penalty

    def outer(x, y, V, u):
        return jnp.mean((predict(y, V) - u) ** 2)

    problem = bl.Problem(inner, outer, inner_data=(X, t), outer_data=(V, u))
    y = {"in": rng.normal(size=(20, 32)) / 5, "out": rng.normal(size=32) / 5}
    return problem, jnp.full(2, -3.0), jax.tree.map(jnp.asarray, y)


def temporaries(method, problem, x, y):
    """What XLA sets aside beside arguments and results, without running anything."""
    compiled = jax.jit(method.__call__).lower(problem, x, method.init(problem, x, y), 0).compile()
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize(
    "inner",
    [
        bl.GradientDescent(step_size="auto", steps=11),  # takes its last step anew
        bl.Optax(optax.adam(0.1), steps=11),  # has an integer in its state
    ],
    ids=["auto", "adam"],
)
def test_modes_agree_to_rounding(inner):
    problem, x, y = logistic_problem()
    reference, state, info = call(bl.ITD(inner), problem, x, y)
    alone, _, _ = eqx.filter_jit(inner)(problem, x, y, inner.init(y), 0)
    assert relative_error(state.y, alone) < 1e-14
    for memory_mode in ("store", "sqrt"):
        h, state_here, info_here = call(bl.ITD(inner, memory=memory_mode), problem, x, y)
        assert relative_error(h, reference) < 1e-13
        assert relative_error(state_here.y, state.y) < 1e-14
        assert relative_error(info_here.residuals.inner, info.residuals.inner) < 1e-13
        assert int(info_here.result) == 0


@pytest.mark.slow
def test_truncated_modes_agree_to_rounding():
    problem, x, y = logistic_problem()
    inner = bl.GradientDescent(step_size=0.5, steps=11)
    reference, _, _ = call(bl.ITD(inner, truncate=4), problem, x, y)
    h, _, info = call(bl.ITD(inner, truncate=4, memory="store"), problem, x, y)
    assert relative_error(h, reference) < 1e-13
    assert info.cost == (11 + 2, 2 * 4)


def GD(steps):
    return bl.GradientDescent(step_size=0.1, steps=steps)


@pytest.mark.parametrize(
    ("method", "gradients", "products"),
    [
        (bl.ITD(GD(9), memory="store"), 9 + 2, 18),
        (bl.ITD(GD(9), memory="store", truncate=4), 9 + 2, 8),
        # Segments of ⌈√N⌉ steps; all but the last one are run again, with or without keeping
        # linearisations, of which a whole segment takes less than N iterates from N = 9 on.
        (bl.ITD(GD(5), memory="sqrt"), 5 + 3 + 2, 10),
        (bl.ITD(GD(9), memory="sqrt"), 9 + 6 + 2, 18),
        (bl.ITD(GD(9), memory="auto", memory_limit=2**20), 9 + 2, 18),
    ],
    ids=["store", "store truncated", "sqrt 5", "sqrt 9", "auto"],
)
def test_costs_are_what_ran(method, gradients, products):
    K = 2
    run, counted_gradients, counted_products = run_and_count(method, K)
    assert run.cost.gradients == counted_gradients == K * gradients
    assert run.cost.products == counted_products == K * products


def test_bytes_are_counted_by_what_each_mode_keeps():
    """In letters: C carried, D an iterate, R a linearisation, of nine steps in three segments."""
    sizes = unroll_bytes.Sizes(
        carry=10, iterate=20, linearisation=30, inner=40, once=5, outer=7, x=100, p=3
    )
    work = (5 + 30 + 2 * 10) + 100  # a step of the way back takes more than ∇f; and h
    every = {"store": 9 * 30 + work, "recompute": 9 * 20 + work}
    assert unroll_bytes.predict(sizes, 9, whole=False) == every
    every |= {"sqrt": 3 * 10 + 3 * 30 + work, "forward": 3 * (2 * 10 + 40 + 100) + work}
    assert unroll_bytes.predict(sizes, 9, whole=True) == every
    large = sizes._replace(outer=10**6)
    assert unroll_bytes.predict(large, 9, whole=False)["store"] == 9 * 30 + 10**6 + 100


def test_segments_keep_linearisations_where_that_takes_less_than_all_iterates():
    sizes = unroll_bytes.Sizes(
        carry=100, iterate=100, linearisation=100, inner=0, once=0, outer=0, x=8, p=1
    )
    assert unroll_bytes.segments(sizes, 100) == (10, 10, True)
    assert unroll_bytes.segments(sizes._replace(linearisation=900), 100) == (10, 10, True)
    assert unroll_bytes.segments(sizes._replace(linearisation=901), 100) == (10, 10, False)
    assert unroll_bytes.segments(sizes, 1) == (1, 1, False)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["plain", "jitted"])
def test_store_keeps_the_data_once(wrap):
    """Also a copy of it that the user's function makes, and also inside a jitted function."""
    N, n, d = 50, 200, 40
    X = jnp.asarray(np.random.default_rng(0).normal(size=(n, d)))

    @wrap
    def inner(x, y, X):
        scaled = jnp.exp(x) * X
        return jnp.mean(jnp.cosh(scaled @ y)) + jnp.sum(y**2)

    problem = bl.Problem(inner, lambda x, y: jnp.sum(y), inner_data=(X,))
    x, y = jnp.zeros(()), jnp.ones(d) / d
    method = bl.ITD(bl.GradientDescent(0.01, N), memory="store")
    assert method.predict_bytes(problem, x, y)["store"] < 5 * X.nbytes + N * 10 * 8 * (n + d)
    assert temporaries(method, problem, x, y) < 5 * X.nbytes + N * 10 * 8 * (n + d)


def agree(predicted, found):
    """What the documentation promises: a factor of 1.6, and 16 kB for what does not grow."""
    return found / 1.6 - 2**14 < predicted < 1.6 * found + 2**14


@pytest.mark.parametrize(
    "settings",
    [{"memory": "store"}, {"memory": "sqrt"}, {"memory": "forward"}, {"truncate": 20}],
    ids=["store", "sqrt", "forward", "truncated"],
)
def test_predicted_bytes_are_those_of_the_compiler(settings):
    problem, x, y = network_problem()
    method = bl.ITD(bl.Optax(optax.adam(0.1), steps=150), **settings)
    predicted = method.predict_bytes(problem, x, y)[method.memory]
    assert agree(predicted, temporaries(method, problem, x, y))


@pytest.mark.parametrize(("mode", "most"), [("store", 250e6), ("recompute", 40e6), ("sqrt", 10e6)])
def test_a_thousand_steps_of_softmax_regression(mode, most):
    """2000 × 784 samples in ten classes, float32: what XLA sets aside over the data."""
    problem, x, y = softmax_problem(2000, 784, 10)
    method = bl.ITD(bl.GradientDescent(step_size=0.1, steps=1000), memory=mode)
    found = temporaries(method, problem, x, y)
    assert found <= most
    assert agree(method.predict_bytes(problem, x, y)[mode], found)


def test_auto_takes_the_fastest_that_fits():
    problem, x, y = softmax_problem(300, 30, 4)
    inner = bl.GradientDescent(step_size=0.1, steps=200)
    bytes_of = bl.ITD(inner).predict_bytes(problem, x, y)
    assert list(bytes_of) == ["store", "recompute", "sqrt", "forward"]
    for mode in ("store", "recompute", "sqrt"):
        method = bl.ITD(inner, memory="auto", memory_limit=bytes_of[mode])
        assert method.mode(problem, x, y) == mode
    least = bl.ITD(inner, memory="auto", memory_limit=bytes_of["sqrt"] - 1)
    with pytest.raises(ValueError, match=f"at least {bytes_of['sqrt']} bytes.*truncate=T"):
        stepped(least, problem, x, y)


def test_auto_computes_what_its_mode_computes():
    problem, x, y = softmax_problem(60, 8, 3, np.float64)
    inner = bl.GradientDescent(step_size=0.1, steps=40)
    limit = bl.ITD(inner).predict_bytes(problem, x, y)["sqrt"]
    h, _, info = call(bl.ITD(inner, memory="auto", memory_limit=limit), problem, x, y)
    expected, _, told = call(bl.ITD(inner, memory="sqrt"), problem, x, y)
    np.testing.assert_array_equal(h, expected)
    assert info.cost == told.cost


def test_auto_without_a_limit_looks_at_what_is_free(monkeypatch):
    problem, x, y = softmax_problem(300, 30, 4)
    method = bl.ITD(bl.GradientDescent(step_size=0.1, steps=200), memory="auto")
    bytes_of = method.predict_bytes(problem, x, y)
    for free, mode in (
        (2 * bytes_of["store"], "store"),
        (2 * bytes_of["store"] - 2, "recompute"),
        (1, "sqrt"),  # nothing fits, but what is free is only a guess
    ):
        monkeypatch.setattr(unroll_bytes, "free_bytes", lambda free=free: free)
        assert method.mode(problem, x, y) == mode
    truncated = bl.ITD(method.inner, memory="auto", truncate=50)  # which "sqrt" is not made for
    assert truncated.mode(problem, x, y) == "recompute"


def test_free_memory_is_that_of_the_machine_or_its_container(monkeypatch, tmp_path):
    assert 2**20 < device_memory.free_bytes() < 2**50
    meminfo, group = tmp_path / "meminfo", tmp_path / "cgroup"
    monkeypatch.setattr(device_memory, "_MEMINFO", meminfo)
    monkeypatch.setattr(device_memory, "_GROUP", group)
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    assert device_memory.free_bytes() == half  # a system that tells nothing more
    meminfo.write_text("MemTotal: 4096 kB\nMemAvailable: 2048 kB\n", encoding="ascii")
    group.mkdir()
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("400000\n")
    assert device_memory.free_bytes() == 2048 * 1024
    (group / "memory.max").write_text("1000000\n")
    assert device_memory.free_bytes() == 600_000


@pytest.mark.parametrize(
    "inner",
    [
        bl.GradientDescent(step_size=0.1, steps=20, tolerance=1e-3),
        bl.GradientDescent(step_size=0.1, steps=bl.schedules.Power(2.0, 0.5)),
        bl.GradientDescent(step_size=0.1, steps=jnp.asarray(20)),
    ],
    ids=["tolerance", "schedule", "traced"],
)
def test_store_needs_a_known_length(inner):
    with pytest.raises(ValueError, match="plain integer and no tolerance"):
        bl.ITD(inner, memory="store", max_steps=30)
    quadratic = random_quadratic()
    x, y = quadratic.start()
    method = bl.ITD(inner, memory="auto", max_steps=30, memory_limit=2**30)
    assert "store" not in method.predict_bytes(quadratic.problem, x, y)
    assert method.mode(quadratic.problem, x, y) == "recompute"


def test_refusals_name_the_remedy():
    inner = bl.GradientDescent(step_size=0.1, steps=9)
    with pytest.raises(ValueError, match='memory_limit=100 is what memory="auto"'):
        bl.ITD(inner, memory_limit=100)
    with pytest.raises(ValueError, match=r"memory_limit must be an integer of at least 1.*, got 0"):
        bl.ITD(inner, memory="auto", memory_limit=0)
    with pytest.raises(ValueError, match=r'truncate=3.*not with memory="sqrt"'):
        bl.ITD(inner, memory="sqrt", truncate=3)
    with pytest.raises(ValueError, match=r"memory must be one of .*'auto'.*got 'none'"):
        bl.ITD(inner, memory="none")


def test_the_page_about_memory_says_what_happens():
    page = (Path(__file__).parents[1] / "docs" / "memory.md").read_text(encoding="utf-8")
    names = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), names)
    method, problem, x, y = (names[name] for name in ("method", "problem", "x", "y"))
    assert method.mode(problem, x, y) == "sqrt"
    assert list(method.predict_bytes(problem, x, y)) == ["store", "recompute", "sqrt", "forward"]
