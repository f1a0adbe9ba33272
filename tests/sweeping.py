"""One sweep of eight cells, the runs that its cells stand for, and data that cells share."""

import jax
import jax.numpy as jnp
import numpy as np

import biloop as bl

from .helpers import COLUMNS, random_quadratic

QUADRATIC = random_quadratic(q=5, p=3)
PROBLEM = QUADRATIC.problem
X, Y = QUADRATIC.start()
METHOD = bl.AID(bl.GradientDescent(0.1, steps=4), bl.Richardson(0.1, steps=3))
PAIRS = [(0.1, 0.05), (0.02, 0.1)]
OUTER = [0.05, 0.01]
STEPS = 12
TOGETHER = ("inner.step_size", "linear.step_size")


def start(seed):
    return jax.random.normal(jax.random.key(seed), X.shape)


def sweep(pairs=PAIRS, method=METHOD, **changes):
    """Two pairs of step sizes × two outer step sizes × two seeds: eight cells, one program."""
    settings = {"over": {TOGETHER: pairs, "outer": OUTER}, "seeds": range(2), "steps": STEPS}
    return bl.sweep(PROBLEM, start, Y, method, **(settings | changes))


def single(label, **limits):
    """The run that a cell of `sweep` stands for."""
    inner = bl.GradientDescent(label["inner.step_size"], steps=4)
    method = bl.AID(inner, bl.Richardson(label["linear.step_size"], steps=3))
    settings = {"outer": label["outer"], "steps": STEPS} | limits
    return bl.solve(PROBLEM, start(label["seed"]), Y, method, **settings)


def same(a, b, tolerance=1e-10):
    """The same run but for rounding and time."""
    assert (a.status, a.steps, a.cost) == (b.status, b.steps, b.cost)
    assert (a.v is None) == (b.v is None)
    for part in ("x", "y", "v") if a.v is not None else ("x", "y"):
        np.testing.assert_allclose(getattr(a, part), getattr(b, part), tolerance, tolerance)
    for column in COLUMNS:
        if column != "seconds":
            np.testing.assert_allclose(a.trace[column], b.trace[column], tolerance, tolerance)


def least_squares(x, y, inputs, targets):
    return jnp.mean((inputs @ y - targets) ** 2) + jax.nn.sigmoid(x) * jnp.sum(y**2)


def validation(x, y, inputs, targets):
    return jnp.mean((inputs @ y - targets) ** 2)


INPUTS = np.random.default_rng(0).normal(size=(300, 40))


def noisy_problem(seed):
    """The same inputs for all seeds, as new arrays; targets that differ."""
    targets = np.random.default_rng(seed).normal(size=300)
    data = (INPUTS.copy(), targets)
    return bl.Problem(least_squares, validation, inner_data=data, outer_data=data)


def same_bits(a, b):
    for one, other in zip(a.runs, b.runs, strict=True):
        same(one, other, tolerance=0)


def spread_sweep(problem):
    over = {"outer": [0.1, 0.2]}
    return bl.sweep(problem, 0.0, jnp.zeros(40), METHOD, over=over, seeds=[0, 1], steps=20)
