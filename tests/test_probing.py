"""Kinks of g: what its program says of them, and what is found where it does not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop.inner.kinks import across, has_no_kinks
from biloop.run.probing import around, jump

A = jnp.asarray(np.random.default_rng(0).normal(size=(6, 3)))
SMOOTH = {
    "a quadratic": lambda x, y: jnp.mean((A @ y - 1.0) ** 2) + jnp.exp(x) * jnp.sum(y**2),
    "a network": lambda x, y: jnp.sum(jax.nn.gelu(A @ y) + jax.nn.sigmoid(A @ y)),
    "softmax": lambda x, y: -jnp.sum(jax.nn.log_softmax(A @ y)) + x * jnp.sum(y**2),
    "called": lambda x, y: jax.jit(lambda y: jnp.sum(jnp.exp(y)))(y) + x * jnp.sum(y**2),
    "a kink in x alone": lambda x, y: jnp.abs(x) * jnp.sum(y**2),
    "a kink that is not differentiated": lambda x, y: (
        jax.lax.stop_gradient(jnp.max(y)) * jnp.sum(y) + jnp.sum(y**2)
    ),
}
UNKNOWN = {
    "absolute": lambda x, y: jnp.sum(jnp.abs(y)) + x * jnp.sum(y**2),
    "called absolute": lambda x, y: jax.jit(lambda y: jnp.sum(jnp.abs(y)))(y) + jnp.sum(y**2),
    "a maximum": lambda x, y: jnp.sum(jnp.maximum(A @ y, 0.0)),
    "a choice": lambda x, y: jnp.sum(jnp.where(y > 0, y, 2 * y)),
    "a root of a square": lambda x, y: jnp.sum(jnp.sqrt(y**2)),
    "rounded": lambda x, y: jnp.sum(y.astype(jnp.int32).astype(y.dtype) * y),
    "a rectifier": lambda x, y: jnp.sum(jax.nn.relu(y)),
    "in a loop": lambda x, y: jax.lax.fori_loop(0, 2, lambda _, s: jnp.abs(s), jnp.sum(y)),
}


@pytest.mark.parametrize("name", SMOOTH | UNKNOWN)
def test_programs_of_powers_and_exponentials_have_no_kinks(name):
    problem = bl.Problem((SMOOTH | UNKNOWN)[name], lambda x, y: jnp.sum(y))
    assert has_no_kinks(problem, jnp.ones(()), jnp.ones(3)) == (name in SMOOTH)


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_the_jump_of_a_gradient_is_found(scale):
    """∇g = 2y + sign(y − 1): it jumps by 2 at y = 1, close to y."""
    inner = lambda x, y: scale * jnp.sum(y**2 + jnp.abs(y - 1.0))  # noqa: E731
    problem = bl.Problem(inner, lambda x, y: jnp.sum(y))
    at = problem, jnp.zeros(()), jnp.asarray([1.2])
    found = jump(*at, around(*at))
    np.testing.assert_allclose(found, 2 * scale, rtol=1e-3)


def test_where_there_is_a_prox_kinks_are_its_own():
    inner = lambda x, y: jnp.sum(y**2 + jnp.abs(y - 1.0))  # noqa: E731
    problem = bl.Problem(inner, lambda x, y: jnp.sum(y), prox=bl.prox.L1(0.1))
    at = problem, jnp.zeros(()), jnp.asarray([1.2])
    assert jump(*at, around(*at)) == 0.0


def test_a_smooth_gradient_has_no_jump_although_its_program_does_not_say_so():
    problem = bl.Problem(lambda x, y: jnp.sum(jnp.logaddexp(y, 0.0)), lambda x, y: jnp.sum(y))
    at = problem, jnp.zeros(()), jnp.ones(3)
    assert not has_no_kinks(*at)
    assert jump(*at, around(*at)) == 0.0


def test_what_is_around_a_point_is_that_of_the_closed_form():
    """g = ½ yᵀDy, f = cᵀy: ‖Dy‖, the curvature along it, and ‖c‖."""
    D, c, y = jnp.asarray([1.0, 4.0]), jnp.asarray([3.0, 4.0]), jnp.asarray([2.0, 1.0])
    problem = bl.Problem(lambda x, y: 0.5 * jnp.sum(D * y**2), lambda x, y: c @ y)
    seen, d = around(problem, jnp.zeros(()), y), D * y
    np.testing.assert_allclose(seen.gradient, jnp.linalg.norm(d))
    np.testing.assert_allclose(seen.curvature, d @ (D * d) / (d @ d), rtol=1e-9)
    np.testing.assert_allclose(seen.outer_gradient, 5.0)


def test_a_gradient_that_vanishes_on_a_kink_is_no_minimum_to_differentiate():
    """∇_y |y − x| is 0 at y = x alone, and so is all that JAX knows of its derivatives."""
    at = jnp.array([1.0, 2.0])
    for kink in (jnp.abs, lambda r: jnp.maximum(r, -2 * r)):
        ystar = bl.argmin(lambda x, y, kink=kink: jnp.sum(kink(y - x)))
        assert jnp.all(jnp.isnan(jax.jit(jax.jacrev(ystar))(at, at)))
        assert jnp.all(jnp.isnan(jax.jit(jax.jacfwd(ystar))(at, at)))
    smooth = bl.argmin(lambda x, y: jnp.sum(jnp.maximum(y - x, 0) ** 2 + jnp.abs(y - x) ** 2))
    derivative = jax.jit(jax.jacrev(smooth))(at, 0 * at)
    np.testing.assert_allclose(derivative, jnp.eye(2), atol=1e-12)


def test_kinks_of_sums_of_entries_are_seen_as_well():
    """Where entries move to and fro by the same, these sums do not change."""
    kinks = (lambda y: jnp.abs(jnp.sum(y)), lambda y: jnp.maximum(y[0] - y[2], 0.0))
    for kink in kinks:
        problem = bl.Problem(lambda x, y, k=kink: k(y - x), lambda x, y: jnp.sum(y))
        at = jnp.array([1.0, 2.0, 3.0, 4.0])
        assert across(problem, at, at, 0 * at) > 0.5


def test_a_run_that_ends_on_a_kink_says_so():
    """y* = x while |x − 1| ≤ 2, so ∇Φ = 2(x − 3) there; but at x = 1 h is 0, and H is I."""
    inner = lambda x, y: jnp.sum(2 * jnp.abs(y - x) + 0.5 * (y - 1.0) ** 2)  # noqa: E731
    problem = bl.Problem(inner, lambda x, y: jnp.sum((y - 3.0) ** 2))
    method = bl.AID(bl.GradientDescent(0.1, 5), bl.CG(5))
    run = bl.solve(problem, jnp.ones(2), jnp.ones(2), method, outer=0.1, steps=2)
    assert run.status is bl.Status.UNCONVERGED
    assert "jumps" in run.message
