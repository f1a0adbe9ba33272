"""y trained anew with the x that was learned, where training it further does not help any more."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import biloop as bl


def outer(x, y, X, T):
    return jnp.mean((jax.vmap(y)(X) - T) ** 2)


def inner(x, y, X, T):
    return jnp.mean(jax.nn.sigmoid(x) * (jax.vmap(y)(X) - T) ** 2)


def noisy(n, width, seed=0, scale=1.0):
    """Few samples, four of them wrong, and a network that can learn them all by heart.

    In inputs of different scales Newton's method is ahead of gradients.
    """
    key = jax.random.key(seed)
    X = np.asarray(jax.random.normal(key, (2 * n, 3)))
    T = np.sin(2 * X[:, 0]) * X[:, 1] + np.where(np.arange(2 * n) < 4, 3.0, 0.0)
    X = X * np.array([1.0, scale, scale**2])
    net = eqx.filter_jit(eqx.nn.MLP)(3, "scalar", width, 1, activation=jnp.tanh, key=key)
    return bl.Problem(inner, outer, (X[:n], T[:n]), (X[n:], T[n:])), np.zeros(n), net


def test_training_anew_finds_less_and_ends_at_the_best(tmp_path):
    problem, x0, y0 = noisy(15, 8, seed=23, scale=10.0)
    run = bl.solve(problem, x0, y0)
    values, results = run.trace["value"], run.trace["result"]
    back = results == bl.Status.UNDONE
    ends = [k for k in range(4, len(back)) if back[k - 3 : k + 1].all()]  # of trainings
    assert run.status is bl.Status.SETTLED
    assert len(ends) > 2
    first = values[ends[0] - 4]  # the last point that was kept, where a run ended before
    assert first > 1.3 * run.value
    assert run.value == min(values[end - 4] for end in ends)
    assert run.value < values[ends[-1] - 4]  # else there is nothing to tell of trainings
    found = problem.outer(run.x, run.y, *problem.outer_data)
    np.testing.assert_allclose(run.value, found, rtol=1e-6)

    began = [end + 1 for end in ends[:-1]]
    assert f"from k = {began[-1]} on" in run.message
    at = int(run.message.split("those of k = ")[1].split(",")[0])
    assert values[at] == run.value

    # A run whose steps end at one that was taken back ends before it.
    short = bl.solve(problem, x0, y0, steps=ends[1] - 1)
    assert short.trace["result"][-1] == bl.Status.UNDONE
    assert short.value == values[ends[1] - 4] < values[ends[1] - 2]
    found = problem.outer(short.x, short.y, *problem.outer_data)
    np.testing.assert_allclose(short.value, found, rtol=1e-6)

    # Killed in a training, it goes on to the same bits.
    stop = bl.solve(problem, x0, y0, checkpoint=tmp_path, callback=lambda at: at.k > began[1])
    assert stop.status is bl.Status.STOPPED
    assert began[1] < stop.steps < len(values)
    resumed = bl.solve(problem, x0, y0, checkpoint=tmp_path)
    assert resumed.message == run.message
    assert resumed.value == run.value
    assert eqx.tree_equal((resumed.x, resumed.y), (run.x, run.y))


def test_where_x_has_not_moved_training_anew_would_do_the_same():
    newton = replace(bl.schemes.auto(), derivatives=bl.Autodiff(recompute=False))
    run = bl.solve(*noisy(15, 8), newton)  # by whom y is trained, as something is chosen
    back = run.trace["result"] == bl.Status.UNDONE
    np.testing.assert_array_equal(back, [False, *[True] * 4] * 2)  # each begins at x0
    assert run.status is bl.Status.SETTLED
    assert run.value == run.trace["value"][5] < run.trace["value"][0]
