"""What every sampled scheme must do: compile once, keep dtypes and structures, run side by side."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import biloop as bl

from ..helpers import relative_error, tree_problem
from .common import path, regression

S = bl.schemes
METHODS = {s.name: s.function for s in S.TABLE if s.sampled} | {
    "STABLE": lambda batch, key=0: S.stable(batch, mu=0.01, key=key),
    "RSVRB": lambda batch, key=0: S.rsvrb(batch, mu=0.01, key=key),
    "mixture": lambda batch, key=0: bl.SingleLoop(
        S.soba(batch, key=key).samples,
        0.1,
        0.1,
        {"y": bl.Saga(), "vx": bl.Storm(0.1)},
        derivatives=bl.Differences(1e-2),
    ),
    "moves": lambda batch, key=0: bl.SingleLoop(
        S.soba(batch, key=key).samples, 0.1, 0.1, bl.Storm(0.1), moves=2
    ),
}
ALWAYS = {"SABA", "mixture"}
pytestmark = pytest.mark.parametrize(
    "name",
    [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in METHODS],
)


def test_compiles_once_and_keeps_its_state(name):
    traces = []

    @eqx.filter_jit
    def step(method, problem, x, state, k):
        traces.append(name)
        return method(problem, x, state, k)

    for seed in range(3):
        problem, x, y = regression(seed)
        method = METHODS[name](batch=(4, 5), key=seed)
        state = method.init(problem, x, y)
        h, after, info = step(method, problem, x, state, jnp.asarray(seed))
        shapes = lambda tree: jax.tree.map(lambda a: (a.shape, a.dtype), tree)  # noqa: E731
        assert shapes(after) == shapes(state)
        assert h.shape == x.shape
        assert int(info.result) == 0
        assert info.samples is not None
        assert info.cost == (0, 0)
    assert len(traces) == 1


def test_float32_stays_float32_and_is_close_to_float64(name):
    found = []
    for dtype in (np.float32, np.float64):
        problem, x, y = regression(dtype=dtype)
        xs, ys, _, h, info = path(METHODS[name](batch=(4, 5)), problem, x, y, 8)
        assert xs.dtype == ys.dtype == h.dtype == info.value.dtype == dtype
        found.append(h)
    if name not in ("PZOBO", "HOZOG"):  # normal numbers of another type are other numbers
        assert relative_error(*found) < (0.1 if name == "mixture" else 1e-4)  # of differences


def test_pytrees_agree_with_flat_vectors(name):
    if name in ("PZOBO", "HOZOG"):
        pytest.skip("normal numbers are drawn leaf by leaf")
    problem, x, y = tree_problem()
    (flat_x, unravel_x), (flat_y, unravel_y) = ravel_pytree(x), ravel_pytree(y)
    flat = bl.Problem(
        lambda x, y, *d: problem.inner(unravel_x(x), unravel_y(y), *d),
        lambda x, y, *d: problem.outer(unravel_x(x), unravel_y(y), *d),
        problem.inner_data,
        problem.outer_data,
    )
    method = METHODS[name](batch=(4, 3))
    found, expected = path(method, problem, x, y, 6)[0], path(method, flat, flat_x, flat_y, 6)[0]
    last = jax.tree.map(lambda leaf: leaf[-1], found)
    assert jax.tree.structure(last) == jax.tree.structure(x)
    assert relative_error(ravel_pytree(last)[0], expected[-1]) < 1e-9


def test_vmap_over_keys_is_a_loop(name):
    problem, x, y = regression()

    @jax.jit
    @jax.vmap
    def many(key):
        method = METHODS[name](batch=(4, 5), key=key)
        _, state, _ = method(problem, x, method.init(problem, x, y), 0)
        return method(problem, x, state, 1)[0]

    keys = jax.random.split(jax.random.key(0), 3)
    for key, h in zip(keys, many(keys), strict=True):
        found = path(METHODS[name](batch=(4, 5), key=key), problem, x, y, 2, 0.0)[3][1]
        assert relative_error(found, h) < 1e-9
