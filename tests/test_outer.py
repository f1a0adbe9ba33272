"""Outer steps: gradient descent, optax, projections."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import biloop as bl
from biloop.outer import as_outer_step

from .helpers import random_quadratic, relative_error

VALUE = jnp.asarray(1.0)  # f(x, y), which these steps do not look at
vectors = arrays(np.float64, 5, elements=st.floats(-100, 100))


def test_a_number_is_gradient_descent():
    step = as_outer_step(0.25)
    x, _, accepted = step.step(jnp.ones(3), jnp.full(3, 2.0), VALUE, step.init(jnp.ones(3)))
    assert accepted
    np.testing.assert_array_equal(x, np.full(3, 0.5))


@pytest.mark.parametrize(
    "transformation",
    [optax.sgd(0.1), optax.adam(0.05), optax.chain(optax.clip(1.0), optax.sgd(0.1, momentum=0.5))],
    ids=["sgd", "adam", "chain"],
)
def test_optax_steps_are_those_of_optax(transformation):
    quadratic = random_quadratic()
    x, y = quadratic.start()
    method = bl.AID(
        bl.GradientDescent(step_size=0.1, steps=3), bl.Richardson(step_size=0.1, steps=3)
    )
    run = bl.solve(quadratic.problem, x, y, method, outer=transformation, steps=6)

    hypergradient = jax.jit(method)
    own, state = method.init(quadratic.problem, x, y), transformation.init(x)
    for k in range(6):
        h, own, _ = hypergradient(quadratic.problem, x, own, k)
        with jax.numpy_dtype_promotion("standard"):
            updates, state = transformation.update(h, state, x)
            x = optax.apply_updates(x, updates)
    assert relative_error(run.x, x) < 1e-12


@given(x=vectors, z=vectors)
@pytest.mark.parametrize(
    "onto",
    [
        bl.Box(-1.0, 2.0),
        bl.Box(jnp.arange(5.0) - 3, jnp.arange(5.0)),
        bl.Ball(2.0),
        bl.Ball(0.5, jnp.arange(5.0)),
    ],
    ids=["box", "box of arrays", "ball", "ball with center"],
)
def test_projection(onto, x, z):
    """The projection p of x: in the set, itself projected to itself, and ⟨x − p, z − p⟩ ≤ 0."""
    p = np.asarray(onto.project(jnp.asarray(x)))
    np.testing.assert_allclose(onto.project(jnp.asarray(p)), p, rtol=1e-12, atol=1e-12)
    other = np.asarray(onto.project(jnp.asarray(z)))
    scale = 1 + np.linalg.norm(x) * np.linalg.norm(other)
    assert (x - p) @ (other - p) <= 1e-10 * scale


def test_points_inside_are_not_moved_by_a_bit():
    x = jnp.asarray(np.random.default_rng(0).uniform(0.05, 0.35, size=12))
    for onto in (bl.Box(0.0, 1.0), bl.Ball(1.0), bl.Ball(1.0, jnp.full(12, 0.3))):
        np.testing.assert_array_equal(onto.project(x), x)


def test_projection_of_pytrees():
    x = {"a": jnp.asarray([3.0, 4.0]), "b": [jnp.asarray(12.0)]}
    inside = bl.Ball(6.5).project(x)
    np.testing.assert_allclose(inside["a"], [1.5, 2.0])
    np.testing.assert_allclose(inside["b"][0], 6.0)
    boxed = bl.Box({"a": jnp.zeros(2), "b": [0.0]}, 3.5).project(x)
    np.testing.assert_allclose(boxed["a"], [3.0, 3.5])
    np.testing.assert_allclose(boxed["b"][0], 3.5)


def test_projected_run_ends_at_the_constrained_minimiser():
    """On the box the optimality condition is x = Π(x − ∇Φ(x))."""
    quadratic = random_quadratic()
    x, y = quadratic.start()
    box = bl.Box(-0.1, 0.05)
    run = bl.solve(quadratic.problem, x, y, bl.Exact(), outer=bl.Projected(0.05, box), steps=2000)
    h = quadratic.hypergradient(np.asarray(run.x))
    np.testing.assert_allclose(run.x, np.clip(run.x - h, -0.1, 0.05), atol=1e-10)
    assert np.any((np.asarray(run.x) == -0.1) | (np.asarray(run.x) == 0.05))


def test_a_scheduled_step_is_that_of_its_iteration():
    """1/(k + 1) along −1: 1 + ½ + ⅓ + ¼."""
    run = bl.solve(
        bl.Problem(lambda x, y: jnp.sum(y**2), lambda x, y: jnp.sum(y**2) + jnp.sum(x)),
        jnp.zeros(1),
        jnp.zeros(1),
        bl.AID(bl.GradientDescent(0.1, 1), bl.CG(1)),
        outer=bl.schedules.Power(1.0, -1.0),
        steps=4,
    )
    np.testing.assert_allclose(run.x, -25 / 12)


def test_projected_optax():
    step = bl.Projected(optax.adam(10.0), bl.Ball(1.0))
    x = jnp.ones(4) / 4
    state = step.init(x)
    x, _, accepted = step.step(x, jnp.ones(4), VALUE, state)
    assert accepted
    assert np.linalg.norm(x) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: bl.Box(1.0, 0.0), ValueError, "empty"),
        (lambda: bl.Box(float("nan"), 0.0), ValueError, "NaN"),
        (lambda: bl.Ball(0.0), ValueError, "radius must be .* greater than 0"),
        (lambda: bl.Projected(0.1, "box"), TypeError, "Box or Ball"),
        (lambda: bl.Projected("fast", bl.Ball(1.0)), TypeError, "outer must be a step size"),
    ],
)
def test_bad_sets_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()
