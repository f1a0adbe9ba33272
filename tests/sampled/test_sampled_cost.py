"""Rows counted while the program runs: each evaluation reports how many it was given."""

import functools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop.schemes import BY_NAME

from .common import regression

TICKS: Counter = Counter()
B, C = 4, 5  # inner and outer rows of a draw


def tick(name, rows, value, *dependencies):
    """Count an evaluation on so many rows when it runs; see tests/test_cost.py."""

    def on_host(value, *_):
        TICKS[name] += rows
        return value

    shape = jax.ShapeDtypeStruct(value.shape, value.dtype)
    return jax.pure_callback(on_host, shape, value, *dependencies, vmap_method="sequential")


@functools.cache
def counting():
    """`regression` with derivatives by hand that count."""
    plain, x, y = regression()

    def gradient(x, y, X, t):
        return tick("inner", len(X), X.T @ (X @ y - t) / len(X) + jnp.exp(x) * y)

    gradient_y = jax.custom_vjp(gradient)

    def products(kept, v):
        x, y, X, _ = kept
        cross = tick("products", len(X), jnp.exp(x) * y * v, *kept)
        hessian = tick("products", len(X), X.T @ (X @ v) / len(X) + jnp.exp(x) * v, *kept)
        return cross, hessian, None, None

    gradient_y.defvjp(lambda *a: (gradient(*a), a), products)

    def g(x, y, X, t):
        return 0.5 * jnp.mean((X @ y - t) ** 2) + 0.5 * jnp.sum(jnp.exp(x) * y**2)

    def along_x(x, y, X, t):
        return tick("inner", len(X), 0.5 * jnp.exp(x) * y**2, X, t)

    gradient_x = jax.custom_vjp(along_x)  # nobody differentiates it
    gradient_x.defvjp(lambda *a: (along_x(*a), a), lambda kept, _: (None,) * 4)
    inner = jax.custom_vjp(g)
    inner.defvjp(
        lambda *a: (g(*a), a),
        lambda kept, w: (w * gradient_x(*kept), w * gradient_y(*kept), None, None),
    )

    def f(x, y, V, u):
        return 0.5 * jnp.mean((V @ y - u) ** 2) + 0.05 * jnp.sum(x**2)

    outer = jax.custom_vjp(f)

    def outer_gradients(kept, w):
        x, y, V, u = kept
        f_x = tick("outer", len(V), 0.1 * x, *kept)
        return w * f_x, w * tick("outer", len(V), V.T @ (V @ y - u) / len(V), *kept), None, None

    outer.defvjp(lambda *a: (f(*a), a), outer_gradients)
    return bl.Problem(inner, outer, plain.inner_data, plain.outer_data), x, y


S = bl.schemes
# What a step takes, in batches, and how often all rows: (gradients of g, of f, products).
METHODS = {
    "SOBA": (S.soba((B, C), 0.1, 0.1), (1, 2, 2)),
    "SABA": (S.saba((B, C), 0.1, 0.1), (1, 2, 2)),
    "SRBA": (S.srba((B, C), 0.1, 0.1, period=3), None),
    "SPABA": (S.spaba((B, C), 0.1, 0.1, probability=0.4), None),
    "STORM": (bl.SingleLoop(S.soba((B, C)).samples, 0.1, 0.1, bl.Storm(0.1)), (2, 4, 4)),
    "FSLA": (S.fsla((B, C)), (1, 3, 3)),
    "stocBiO": (S.stocbio((B, C), 0.1, 0.1, N=3, Q=2), (3, 2, 3)),
    "AmIGO": (S.amigo((B, C), 0.1, 0.1, N=3, Q=2), (3, 2, 3)),
    "BSA": (S.bsa((B, C), terms=4), None),
    "MRBO": (S.mrbo((B, C), Q=2), (2, 4, 6)),
    "VRBO": (S.vrbo((B, C), N=2, Q=2, period=3), None),
    "F2SA": (S.f2sa((B, C)), (4, 2, 0)),
    "F3SA": (S.f3sa((B, C), T=2), (12, 6, 0)),
    "F2SA-2": (S.f2sa_2((B, C)), (4, 4, 0)),
    "PZOBO": (S.pzobo((B, C), N=3), (6, 2, 0)),
    "HOZOG": (S.hozog((B, C), N=3), (6, 0, 0)),
    "STABLE": (S.stable((B, C), mu=0.1), (1, 2, 12)),
    "split": (
        bl.SingleLoop(
            S.soba((B, C)).samples,
            0.1,
            None,
            dict.fromkeys("yx", bl.Plain()),
            linear=bl.Neumann(0.1, 2),
        ),
        None,
    ),
    "differences": (
        bl.SingleLoop(S.soba((B, C)).samples, 0.1, 0.1, derivatives=bl.Differences()),
        (5, 2, 0),
    ),
}
ALWAYS = {"split", "SABA", "SRBA", "stocBiO", "F3SA", "PZOBO"}
K = 4


@pytest.mark.parametrize(
    "name",
    [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in METHODS],
)
def test_rows_are_counted_to_the_last_one(name):
    method, expected = METHODS[name]
    problem, x, y = counting()
    TICKS.clear()
    seen = []

    def callback(_):
        jax.effects_barrier()
        seen.append(dict(TICKS))

    run = bl.solve(problem, x, y, method, outer=0.05, steps=K, callback=callback)
    columns = [int(run.trace[f"{n}_samples"][-1]) for n in ("inner", "outer", "product")]
    counted = [seen[-1].get(n, 0) for n in ("inner", "outer", "products")]
    assert counted == columns
    assert run.cost.gradients == pytest.approx(columns[0] / 24 + columns[1] / 20, rel=1e-15)
    assert run.cost.products == pytest.approx(columns[2] / 24, rel=1e-15)
    if expected is not None:
        assert columns == [K * n * size for n, size in zip(expected, (B, C, B), strict=True)]


TABLE = {
    "SOBA": {}, "MA-SOBA": {}, "SABA": {}, "SRBA": {}, "FSLA": {}, "MRBO": {"Q": 2}, "F2SA": {},
    "AmIGO": {"N": 3, "Q": 2}, "stocBiO": {"N": 3, "Q": 2}, "VRBO": {"N": 3, "Q": 2}, "F3SA": {},
    "F2SA-2": {}, "PZOBO": {"N": 3}, "HOZOG": {"N": 3},
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_the_table_says_what_a_step_costs(name):
    """In evaluations on a batch, in a step that does not see all rows."""
    scheme, lengths = BY_NAME[name], TABLE[name]
    problem, x, y = regression()
    method = scheme.function(batch=(B, C), **lengths)
    state = method.init(problem, x, y)
    spent = jax.jit(lambda k: method(problem, x, state, k)[2].samples)(jnp.asarray(1))
    assert spent is not None
    cost = scheme.cost(lengths.get("N", 1), lengths.get("Q", 1))
    assert int(spent.inner) // B + int(spent.outer) // C == cost.gradients
    assert int(spent.products) // B == cost.products


def test_a_refresh_takes_all_rows_that_are_ever_drawn():
    """n + 2m gradients and 2n products in steps 0, 3, …; twice a batch in the others."""
    problem, x, y = regression(n=26, m=22)  # 2 rows are left over on both levels
    method = S.srba((B, C), 0.1, 0.1, period=3)
    run = bl.solve(problem, x, y, method, outer=0.05, steps=6)
    inner = np.diff(run.trace["inner_samples"], prepend=0)
    np.testing.assert_array_equal(inner, [24, 8, 8, 24, 8, 8])
    np.testing.assert_array_equal(np.diff(run.trace["outer_samples"], prepend=0)[:2], [40, 20])
    np.testing.assert_array_equal(np.diff(run.trace["product_samples"], prepend=0)[:2], [48, 16])
    assert "2 of the 26 inner" in run.message
    assert "Blocks(size=4)" in run.message


@pytest.mark.parametrize(
    ("budget", "steps"), [(7, 7), (7.5, 8), (0.5, 1), (bl.Cost(100, 2), 6), (bl.Cost(2, 99), 3)]
)
def test_a_budget_in_passes_ends_where_it_should(budget, steps):
    """A step of SOBA takes 4/24 + 2 · 5/20 = 2/3 gradients and 2 · 4/24 = 1/3 products."""
    problem, x, y = regression()
    run = bl.solve(problem, x, y, S.soba((B, C), 0.1, 0.1), outer=0.05, budget=budget)
    assert (run.status, run.steps) == (bl.Status.BUDGET_SPENT, steps)


def test_nothing_overflows():
    """More rows than 32 bits count, in one run and in one chunk of it."""
    n = 2**21
    problem = bl.Problem(
        lambda x, y, a: jnp.mean(a) * (y - x) ** 2, lambda x, y: y**2, (np.ones(n, np.float32),)
    )
    start = jnp.float32(1.0)
    method = S.amigo(None, 0.1, 0.1, N=1, Q=1)
    run = bl.solve(problem, start, start, method, outer=0.01, steps=1200)
    assert run.trace["inner_samples"][-1] == 1200 * n > 2**31
    assert run.cost == (1200 + 2 * 1200, 2 * 1200)
    short = bl.solve(problem, start, start, method, outer=0.01, budget=bl.Cost(1e9, 2300))
    assert (short.status.name, short.steps) == ("BUDGET_SPENT", 1150)
