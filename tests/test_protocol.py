"""What every method must do, over one table: jit once, vmap, scan, dtypes, pytrees."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import biloop as bl

from .helpers import METHODS, STEP, logistic_problem, random_quadratic, relative_error, tree_problem

# One of each kind runs always, the variants of a kind with the slow tests.
ALWAYS = {
    "AID, gradient descent",
    "AID, gradient descent to tolerance",
    "AID, optax adam",
    "AID, cg",
    "AID, dense",
    "AID, lineax cg",
    "AID, automatic",
    "ITD, gradient descent",
    "ITD, sqrt",
    "ITD, forward",
    "Exact",
}
assert set(METHODS) >= ALWAYS

pytestmark = pytest.mark.parametrize(
    "name",
    [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in METHODS],
)


def run(method, problem, x, y):
    return method(problem, x, method.init(problem, x, y), 0)


def shape_and_type(leaf):
    return jnp.shape(leaf), jnp.result_type(leaf)


def test_jit_compiles_once_for_many_numbers(name):
    """Step sizes and data are arguments. (An optax transformation is compiled in, as it says.)"""
    traces = []

    # A lineax solver holds functions, which plain jax.jit does not take as arguments.
    @(eqx.filter_jit if "lineax" in name else jax.jit)
    def hypergradient(method, problem, x, state, k):
        traces.append(name)
        return method(problem, x, state, k)

    step_sizes = (STEP,) * 3 if "optax" in name else (0.05, 0.08, STEP)
    for k, step_size in enumerate(step_sizes):
        quadratic = random_quadratic(seed=k)
        x, y = quadratic.start(seed=k)
        method, problem = METHODS[name](step_size), quadratic.problem
        state = method.init(problem, x, y)
        h, after, info = hypergradient(method, problem, x, state, jnp.asarray(k))
        assert jax.tree.map(shape_and_type, after) == jax.tree.map(shape_and_type, state)
        assert h.shape == x.shape
        assert int(info.result) <= bl.Status.UNCONVERGED
    assert len(traces) == 1


def test_vmap_equals_a_loop(name):
    quadratic = random_quadratic()
    method, problem = METHODS[name](), quadratic.problem
    starts = [quadratic.start(seed) for seed in range(3)]
    xs, ys = (jnp.stack(s) for s in zip(*starts, strict=True))
    one = jax.jit(lambda x, y: run(method, problem, x, y))
    many = jax.jit(jax.vmap(lambda x, y: run(method, problem, x, y)))
    h, state, info = many(xs, ys)
    for i, (x, y) in enumerate(starts):
        h_i, state_i, info_i = one(x, y)
        assert relative_error(h[i], h_i) < 1e-9
        assert relative_error(state.y[i], state_i.y) < 1e-9
        if name == "Exact":  # goes on until rounding stops it, and a batch is rounded otherwise
            continue
        assert int(info.cost.gradients[i]) == int(info_i.cost.gradients)
        # lineax stabilises its CG whenever any element of a batch is due.
        assert int(info.cost.products[i]) == int(info_i.cost.products)


def test_scan_and_solve_take_the_same_steps(name):
    quadratic = random_quadratic()
    method, problem = METHODS[name](), quadratic.problem
    x, y = quadratic.start()

    def outer_step(carry, k):
        x, state = carry
        h, state, info = method(problem, x, state, k)
        return (x - 0.01 * h, state), info

    start = (x, method.init(problem, x, y))
    (x_scan, _), info = jax.jit(lambda c: jax.lax.scan(outer_step, c, jnp.arange(5)))(start)
    solved = bl.solve(problem, x, y, method, outer=0.01, steps=5)
    assert relative_error(solved.x, x_scan) < 1e-12
    np.testing.assert_allclose(solved.trace["value"], info.value, rtol=1e-10)
    assert solved.cost.gradients == int(np.sum(info.cost.gradients))
    assert solved.cost.products == int(np.sum(info.cost.products))


def test_float32_stays_float32_and_is_close_to_float64(name):
    results = {}
    for dtype in (np.float32, np.float64):
        problem, x, y = logistic_problem(dtype=dtype)
        method = METHODS[name](0.5)
        h, state, info = eqx.filter_jit(run)(method, problem, x, y)
        assert h.dtype == info.value.dtype == dtype
        floats = [a for a in jax.tree.leaves(state) if jnp.issubdtype(a.dtype, jnp.floating)]
        assert {leaf.dtype for leaf in floats} == {np.dtype(dtype)}
        results[dtype] = h
    single, double = (np.asarray(results[t], np.float64) for t in (np.float32, np.float64))
    # BOME goes nowhere here: its multiplier is 0 at first, and f is no function of x.
    assert np.linalg.norm(single - double) <= 2e-3 * np.linalg.norm(double)


def test_pytrees_agree_with_flat_vectors(name):
    problem, x, y = tree_problem()
    flat_x, unravel_x = ravel_pytree(x)
    flat_y, unravel_y = ravel_pytree(y)
    flat = bl.Problem(
        lambda x, y, *d: problem.inner(unravel_x(x), unravel_y(y), *d),
        lambda x, y, *d: problem.outer(unravel_x(x), unravel_y(y), *d),
        problem.inner_data,
        problem.outer_data,
    )
    method = METHODS[name]()
    h, state, _ = eqx.filter_jit(run)(method, problem, x, y)
    h_flat, _, _ = eqx.filter_jit(run)(method, flat, flat_x, flat_y)
    assert jax.tree.structure(h) == jax.tree.structure(x)
    assert jax.tree.structure(state.y) == jax.tree.structure(y)
    assert relative_error(h, h_flat) < 1e-9
