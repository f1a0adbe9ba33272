"""What is said of a run, of one that fails and of one that only looks so: no more than is so."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl


@pytest.mark.parametrize(("scale", "flat"), [(1e-3, 1e-6), (1e3, -1e-6)])
def test_a_flat_direction_is_no_negative_curvature(scale, flat):
    curvatures = jnp.asarray([scale, scale * flat])
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum(curvatures * y**2) - x * jnp.sum(y),
        lambda x, y: 0.5 * jnp.sum((y - 1.0) ** 2),
    )
    method = bl.AID(bl.GradientDescent(3.0 / scale, 2000), bl.CG(3))  # 2²⁰⁰⁰ in the first loop
    run = bl.solve(problem, 1.0, jnp.zeros(2), method, outer=1e-9, steps=1)
    assert run.status is bl.Status.DIVERGED
    assert f"is above the largest stable one, {2 / scale:.4g}," in run.message
    assert "not convex" not in run.message


def test_an_h_that_has_fallen_again_has_not_grown():
    """1, then 5000 for a step, then 1 until f is not finite."""

    def outer(x, y):
        here = jax.lax.stop_gradient(x)
        slope = jnp.where((here > 1.0) & (here < 2.0), 5e3, 1.0)
        return jnp.where(here > 501.25, jnp.nan, 0.0) - slope * (x - here) + jnp.sum(y)

    problem = bl.Problem(lambda x, y: 0.5 * jnp.sum(y**2), outer)
    run = bl.solve(problem, 0.95, jnp.zeros(1), bl.Exact(), outer=0.1, steps=20)
    assert run.status.failed
    np.testing.assert_allclose(np.max(run.trace["hypergradient_norm"][:-1]), 5e3)
    assert "grew" not in run.message


class Said(NamedTuple):
    y: jax.Array


class Scripted(bl.Method):
    """A method whose f, ‖h‖ and residuals are those of a list, one after the other."""

    value: jax.Array
    size: jax.Array
    inner: jax.Array
    linear: jax.Array

    def init(self, problem, x, y):
        return Said(y)

    def __call__(self, problem, x, state, k):
        at = jnp.minimum(k, len(self.value) - 1)
        residuals = bl.methods.Residuals(self.inner[at], self.linear[at])
        info = bl.methods.Info(self.value[at], bl.Cost(1, 1), jnp.asarray(0, jnp.int32), residuals)
        return jnp.full_like(x, self.size[at]), state, info


SILENT = bl.Problem(lambda x, y: 0.5 * jnp.sum(y**2), lambda x, y: jnp.sum(y))


def told(value=(1.0, 1.0, 1.0), size=(1.0, 1.0, 1.0), inner=(0.0,) * 3, linear=(0.0,) * 3):
    method = Scripted(*(jnp.asarray(each) for each in (value, size, inner, linear)))
    return bl.solve(SILENT, jnp.zeros(1), jnp.zeros(1), method, outer=1e-9, steps=len(value))


@pytest.mark.parametrize("loop", ["inner", "linear"])
def test_a_residual_that_has_fallen_again_has_not_grown(loop):
    assert "grew" not in told(**{loop: (1e-3, 10.0, 1e-2)}).message
    assert f"The {loop} residual grew from 0.001 to 10." in told(**{loop: (1e-3, 1e-3, 10)}).message


@pytest.mark.parametrize(
    ("value", "size", "unbounded"),
    [
        ((1.0, 10.0, 2e6), (1.0, 10.0, 2e6), True),
        ((1.0, 10.0, 2e6), (1.0, 10.0, 9e5), False),  # both have to grow
        ((1.0, 10.0, 9e5), (1.0, 10.0, 2e6), False),
        ((0.0, 1.0, 2.0), (1.0, 10.0, 2e6), False),  # nothing is many times nothing
        ((1.0, 9e6, 2e6), (1.0, 10.0, 2e6), False),  # it is falling again
        ((1.0, 10.0, 2e6), (1.0, 9e6, 2e6), False),
    ],
)
def test_a_run_is_unbounded_while_f_and_h_both_grow(value, size, unbounded):
    assert (told(value, size).status is bl.Status.UNBOUNDED) == unbounded


def test_where_a_step_is_taken_back_no_run_has_converged():
    """However small h is there: f is five times as large as at first."""
    lists = (1.0, 0.5, 5.0, 0.4), (1.0, 0.5, 1e-9, 0.3), (0.0,) * 4, (0.0,) * 4
    method = Scripted(*map(jnp.asarray, lists))
    run = bl.solve(SILENT, jnp.ones(1), jnp.zeros(1), method, outer="auto", steps=4, epsilon=1e-6)
    np.testing.assert_array_equal(run.trace["result"], [0, 0, bl.Status.UNDONE, 0])
    assert run.status is bl.Status.COMPLETED


class Steep(Scripted):
    """One whose inner step is said to be 3, where g bears 2."""

    def stability(self, L):
        return [("inner", 3.0, 2 / L)]


def test_a_divergence_is_told_with_what_the_residual_was_at_first():
    lists = (1.0, 1.0, 1.0), (1.0, 1.0, 1.0), (2e-3, 1e-3, 10.0), (0.0, 0.0, 0.0)
    method = Steep(*map(jnp.asarray, lists))
    run = bl.solve(SILENT, jnp.zeros(1), jnp.zeros(1), method, outer=1e-9, steps=3)
    assert run.status is bl.Status.DIVERGED
    assert "The inner step size 3 is above the largest stable one, 2," in run.message
    assert "Its residual grew from 0.002 to 10." in run.message
