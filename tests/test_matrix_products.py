"""Products that are turned round give the same numbers, wherever in a program they stand."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import biloop as bl
from biloop import matrix_products
from biloop.compilation import compiled, rearranged

X = jnp.asarray(np.random.default_rng(0).normal(size=(6, 5)))
W = jnp.asarray(np.random.default_rng(1).normal(size=(5, 3)))


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch):
    monkeypatch.setattr(matrix_products, "LARGE", 1)


def loss(X, W):
    return jnp.sum(jnp.tanh(X @ W) ** 2)


def gradient(X, W):
    return jax.grad(loss, argnums=1)(X, W)


def hessian_product(X, W):
    return jax.jvp(lambda W: gradient(X, W), (W,), (jnp.cos(W),))[1]


def in_a_scan(X, W):
    return lax.scan(lambda W, _: (W - 0.1 * gradient(X, W), jnp.sum(W)), W, length=3)


def in_a_while_loop(X, W):
    return lax.while_loop(lambda W: jnp.sum(W * W) > 1, lambda W: W - 0.1 * gradient(X, W), W)


def in_a_branch(X, W):
    return lax.cond(jnp.sum(W) > 0, gradient, lambda X, W: W, X, jnp.abs(W))


def recomputed(X, W):
    step = jax.checkpoint(lambda W: W - 0.1 * gradient(X, W))
    return jax.grad(lambda W: loss(X, step(step(W))))(W)


def in_many_lanes(X, W):
    return jax.vmap(in_a_scan, in_axes=(None, 0))(X, jnp.stack([W, 2 * W]))


def of_a_vector(X, W):
    return X.T @ (X @ W[:, 0])


def of_columns(X, W):
    return X.T @ (X @ W)


def with_a_rule_of_its_own(X, W):
    return gradient(X, jax.nn.relu(W)) + jax.nn.logsumexp(X.T @ (X @ W))


PROGRAMS = [
    gradient,
    hessian_product,
    in_a_scan,
    in_a_while_loop,
    in_a_branch,
    recomputed,
    in_many_lanes,
    of_a_vector,
    of_columns,
    with_a_rule_of_its_own,
]


def slow_products(program):
    """How often the compiled program has X as the first factor and sums over its rows."""
    text = jax.jit(program).lower(X, W).compile().as_text()
    operands = dict(re.findall(r"(%[\w.-]+) = (f64\[[\d,]*\])", text))
    products = re.findall(r" dot\((%[\w.-]+), [^)]*\), lhs_contracting_dims=\{0\}", text)
    return sum(operands[name] == "f64[6,5]" for name in products)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_numbers_are_the_same(program):
    before, after = jax.jit(program)(X, W), compiled(program)(X, W)
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    "program", [gradient, hessian_product, in_a_scan, of_columns], ids=lambda p: p.__name__
)
def test_no_slow_product_is_left(program):
    assert slow_products(program) > 0
    assert slow_products(rearranged(program)) == 0


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("precision", [None, ("high", "highest")])
def test_any_axis_of_the_small_factor(first, axis, precision):
    shape = [2, 2]
    shape.insert(axis, len(X))
    R = jnp.arange(float(np.prod(shape))).reshape(shape)

    def program(X, R):
        if first:
            return lax.dot_general(X, R, (((0,), (axis,)), ((), ())), precision=precision)
        return lax.dot_general(R, X, (((axis,), (0,)), ((), ())), precision=precision)

    found = rearranged(program)(X, R)
    axes = (0, axis) if first else (axis, 0)
    expected = np.tensordot(*((X, R) if first else (R, X)), axes=axes)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_what_is_not_an_array_goes_through():
    def program(X, W, *, name):
        return {"value": gradient(X, W), "name": name, "nothing": None}

    found = eqx.filter_jit(rearranged(program))(X, W, name="g")
    assert found["name"] == "g"
    assert found["nothing"] is None
    np.testing.assert_allclose(found["value"], gradient(X, W), rtol=1e-12)


@pytest.mark.parametrize(
    "method",
    [
        bl.schemes.n_q_loop(3, 2, inner_step=0.01, linear_step=0.01),
        bl.schemes.n_n_loop(3, inner_step=0.01),
    ],
    ids=["AID", "ITD"],
)
def test_a_run_is_the_same(method, monkeypatch):
    def run():
        # Other functions each time, or the second run would be given the program of the first.
        problem = bl.Problem(
            lambda x, W, X: loss(X, W) + jnp.exp(x) * jnp.sum(W**2),
            lambda x, W, X: loss(X, W - 1),
            (X,),
            (X,),
        )
        return bl.solve(problem, jnp.zeros(()), W, method, outer=0.01, steps=3, progress=False)

    turned = run()
    monkeypatch.setattr(matrix_products, "LARGE", 10**9)
    as_it_was = run()
    np.testing.assert_allclose(turned.y, as_it_was.y, rtol=1e-12)
    np.testing.assert_allclose(turned.x, as_it_was.x, rtol=1e-12)
