"""Networks of other libraries as y, and optimizers below whose state is carried on."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import biloop as bl

X = np.random.default_rng(0).normal(size=(20, 3))
TARGETS = np.sin(X[:, 0])
DATA = (X[:10], TARGETS[:10]), (X[10:], TARGETS[10:])
ADAM = optax.adam(0.01)


def problem_of(predict):
    def inner(x, y, X, T):
        squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
        return jnp.mean(jax.nn.sigmoid(x) * (predict(y, X) - T) ** 2) + 1e-2 * squares

    return bl.Problem(inner, lambda x, y, X, T: jnp.mean((predict(y, X) - T) ** 2), *DATA)


def solve(problem, y, steps=3):
    method = bl.AID(bl.Optax(ADAM, 10, carry_state=True), bl.CG(5, indefinite="damp"))
    return bl.solve(problem, jnp.zeros(10), y, method, outer=0.5, steps=steps)


def test_adam_below_goes_on_with_its_moments():
    problem = problem_of(lambda y, X: X @ y)
    state, y = ADAM.init(jnp.zeros(3)), jnp.zeros(3)
    gradient = jax.jit(lambda y: jax.grad(problem.inner, 1)(jnp.zeros(10), y, *DATA[0]))
    for _ in range(20):  # two loops of ten steps at one x
        with jax.numpy_dtype_promotion("standard"):
            updates, state = ADAM.update(gradient(y), state)
        y = y + updates
    solver = bl.Optax(ADAM, 10, carry_state=True)
    found, kept = jnp.zeros(3), solver.init(jnp.zeros(3))
    for k in range(2):
        found, kept, _ = solver(problem, jnp.zeros(10), found, kept, k)
    np.testing.assert_allclose(found, y, rtol=1e-10)


@pytest.mark.slow
def test_flax_networks_come_back_as_they_were_given():
    linen = pytest.importorskip("flax.linen")  # in the bench extra
    from flax import nnx

    class Dense(linen.Module):
        @linen.compact
        def __call__(self, z):
            return linen.Dense(1)(jnp.tanh(linen.Dense(6)(z)))[:, 0]

    class Network(nnx.Module):
        def __init__(self, rngs):
            self.a, self.b = nnx.Linear(3, 6, rngs=rngs), nnx.Linear(6, 1, rngs=rngs)
            self.dropout = nnx.Dropout(0.1, rngs=rngs)

        def __call__(self, z):
            return self.b(jnp.tanh(self.a(z)))[:, 0]

    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        net = Dense()
        params = net.init(jax.random.key(1), X)
        run = solve(problem_of(net.apply), params)
        assert jax.tree.structure(run.y) == jax.tree.structure(params)
        assert run.value < run.trace["value"][0]

        graph, params, rest = nnx.split(Network(nnx.Rngs(0)), nnx.Param, ...)
        run = solve(problem_of(lambda y, X: nnx.merge(graph, y, rest)(X)), params)
        assert jax.tree.structure(run.y) == jax.tree.structure(params)
        assert run.value < run.trace["value"][0]


@pytest.mark.slow
def test_dropout_and_batch_statistics_of_flax_are_functions_of_a_copy():
    """As docs/start/network.md has it: two evaluations agree, and what was given stays."""
    linen = pytest.importorskip("flax.linen")  # in the bench extra
    from flax import nnx

    class Dense(linen.Module):
        @linen.compact
        def __call__(self, z):
            z = linen.BatchNorm(use_running_average=False)(linen.Dense(6)(z))
            return linen.Dense(1)(linen.Dropout(0.2, deterministic=False)(jnp.tanh(z)))[:, 0]

    class Network(nnx.Module):
        def __init__(self, rngs):
            self.a, self.b = nnx.Linear(3, 6, rngs=rngs), nnx.Linear(6, 1, rngs=rngs)
            self.mean, self.dropout = nnx.BatchNorm(6, rngs=rngs), nnx.Dropout(0.2, rngs=rngs)

        def __call__(self, z):
            return self.b(self.dropout(jnp.tanh(self.mean(self.a(z)))))[:, 0]

    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        net, key = Dense(), jax.random.key(1)
        made = net.init({"params": key, "dropout": key}, X)

        def apply(y, X):
            variables = {"params": y, "batch_stats": made["batch_stats"]}
            given = {"rngs": {"dropout": key}, "mutable": ["batch_stats"]}
            return net.apply(variables, X.astype("f"), **given)[0]

        model = Network(nnx.Rngs(0))
        model.train()
        graph, params, rest = nnx.split(model, nnx.Param, ...)

        def merged(y, X):
            return nnx.merge(graph, y, rest, copy=True)(X.astype("f"))

        for predict, y in ((apply, made["params"]), (merged, params)):
            problem = problem_of(predict)
            run = solve(problem, y)
            assert run.value < run.trace["value"][0]
            again = problem.outer(run.x, run.y, *DATA[1])
            np.testing.assert_allclose(run.value, again, rtol=1e-5)


class Model(eqx.Module):
    """A variable of which only the array is one; the other part stays as it is given."""

    w: jax.Array
    activation: Callable = jnp.abs


def f(x, y):
    return jnp.sum(y.activation(y.w))


def distance(x, y):
    return 0.5 * jnp.sum((y.w - x) ** 2)


MODELS = {  # a problem, a step from y = 0 in closed form as a multiple of x
    "T": (bl.Problem.fixed_point(lambda x, y: Model(y.w + 2 * x), f), bl.FixedPoint(1), 2.0),
    "start": (
        bl.Problem(distance, f, start=lambda x: Model(3 * x)), bl.GradientDescent(0.5, 1), 2.0
    ),
    "prox": (
        bl.Problem(distance, f, prox=lambda x, z, step: Model(0.5 * z.w - x)),
        bl.ProximalGradient(0.5, 1),
        -0.75,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_what_a_function_of_the_problem_makes_of_a_model_is_used(name):
    problem, inner, multiple = MODELS[name]
    x, y = jnp.asarray([1.0, -2.0]), Model(jnp.zeros(2))
    run = bl.solve(problem, x, y, bl.AID(inner, bl.Richardson(0.5, 1)), outer=0.1, steps=1)
    np.testing.assert_allclose(run.trace["value"], [3 * abs(multiple)])
    assert run.y.activation is jnp.abs
