"""Proximal steps that are found, step by step, and what a loop of them says that it spent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl

CURVED = jnp.asarray([1.0, 4.0])


def inner(x, y):
    return 0.5 * jnp.sum(CURVED * y**2) - jnp.vdot(x, y)


def outer(x, y):
    return jnp.sum(y)


BOWL = bl.Problem(inner, outer)
X, Y = jnp.asarray([1.0, 2.0]), jnp.asarray([3.0, -1.0])


def run(solver, problem=BOWL, x=X, y=Y, kept=0.0):
    state = solver.init(y)
    if kept:
        state = state._replace(kept=jnp.asarray(kept))
    return solver(problem, x, y, state, 0)


@pytest.mark.parametrize("steps", [1, 4, 5, 6, 12])
def test_each_step_is_the_shortest_that_a_secant_has_shown(steps):
    """α ← min(α, ‖s‖/‖e‖); after five curvatures the next loop begins with ⁵⁄₄ of it.

    That which an earlier loop had found counts as the first of them.
    """
    y, alpha, last = np.asarray(Y), 0.3, None
    for _ in range(steps):
        d = CURVED * y - X
        if last is not None:
            alpha = min(alpha, np.linalg.norm(y - last[0]) / np.linalg.norm(d - last[1]))
        last = y, d
        y = y - alpha * d
    found, state, info = run(bl.ProximalGradient("auto", steps), kept=0.3)
    np.testing.assert_allclose(found, y, rtol=1e-12)
    np.testing.assert_allclose(state.kept, (1.25 if steps >= 5 else 1.0) * alpha, rtol=1e-12)
    assert int(info.steps) == steps
    assert bl.ProximalGradient("auto", steps).proximal_step(state, found) == state.kept


def test_where_nothing_curves_each_step_is_four_times_the_last():
    """The first is a thousandth of y: 1 − 10⁻³ (1 + 4 + 16 + 64)."""
    flat = bl.Problem(lambda x, y: jnp.sum(y), outer)
    y, _, _ = run(bl.ProximalGradient("auto", 4), flat, jnp.ones(1), jnp.ones(1))
    np.testing.assert_allclose(y, 1 - 0.085, rtol=1e-12)


def test_a_first_step_moves_y_little_also_where_the_proximal_map_does_the_moving():
    """∇g is 10⁻⁶, so that 1000 · 10⁻⁶ is a thousandth of y; |y| asks for less: 1000/16⁵."""
    lasso = bl.Problem(lambda x, y: 1e-6 * jnp.sum(y), outer, prox=bl.prox.L1(1.0))
    y, _, _ = run(bl.ProximalGradient("auto", 1), lasso, jnp.ones(1), jnp.ones(1))
    np.testing.assert_allclose(1 - y, 1000 / 16**5 * (1 + 1e-6), rtol=1e-9)


def test_a_step_beyond_the_domain_is_taken_back_to_a_sixteenth():
    """y − 2√y is no number where a step of 100 leads: 100/16 is the next."""
    walled = bl.Problem(lambda x, y: jnp.sum(y - 2 * jnp.sqrt(y)), outer)
    for solver in (bl.ProximalGradient("auto", 30), bl.FISTA("auto", 60)):
        y, _, _ = run(solver, walled, jnp.ones(1), jnp.asarray([2.0]), kept=100.0)
        np.testing.assert_allclose(y, 1.0, rtol=1e-6)


def test_fista_follows_its_recursion():
    """z ← y⁺ + (t − 1)/t⁺ (y⁺ − y), with t⁺ = (1 + √(1 + 4t²))/2 from t = 1."""
    y = z = np.asarray(Y)
    t = 1.0
    for _ in range(4):
        after, t_next = z - 0.1 * (CURVED * z - X), (1 + np.sqrt(1 + 4 * t**2)) / 2
        y, z, t = after, after + (t - 1) / t_next * (after - y), t_next
    np.testing.assert_allclose(run(bl.FISTA(0.1, 4))[0], y, rtol=1e-12)


@pytest.mark.parametrize("step_size", [0.1, "auto"])
def test_of_few_steps_one_is_left_to_judge_the_last_y(step_size):
    _, _, info = run(bl.FISTA(step_size, 3, tolerance=1e-12))
    assert (int(info.steps), int(info.result)) == (3, bl.Status.UNCONVERGED)
    assert np.isfinite(info.residual)


LOOPS = {
    "budget": bl.FISTA(0.2, 7),
    "tolerance": bl.FISTA(0.2, 100, tolerance=1e-5),
    "adaptive": bl.FISTA("auto", "auto"),
    "plain": bl.ProximalGradient("auto", "auto"),
}


@pytest.mark.parametrize("name", LOOPS)
def test_gradients_are_those_that_were_made(name):
    made = []

    def counted(x, y):
        jax.debug.callback(lambda: made.append(1))
        return inner(x, y)

    _, _, info = jax.jit(lambda: run(LOOPS[name], bl.Problem(counted, outer)))()
    jax.effects_barrier()
    assert int(info.cost.gradients) == int(info.steps) == len(made)
