"""The lasso and the elastic net, with penalties that are found by hypergradients.

Along the path of the lasso the validation error is known for every penalty; gradient steps on the
logarithm of the penalty end at its lowest point, and the elastic net, with two penalties, goes
below it.

    python examples/lasso_path.py [figure.png]
"""

import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import biloop as bl


class LassoPath(NamedTuple):
    """The validation error, its derivative and the coefficients for each penalty exp(x)."""

    x: np.ndarray
    error: np.ndarray
    slope: np.ndarray
    y: np.ndarray


class Found(NamedTuple):
    """The path, the run of the lasso along it, and that of the elastic net."""

    path: LassoPath
    lasso: bl.Run
    net: bl.Run


def data(seed=0, samples=60, features=40):
    """Features in correlated pairs, of which the first ten matter."""
    rng = np.random.default_rng(seed)
    truth = np.where(np.arange(features) < 10, 1.0, 0.0)

    def draw():
        shared = rng.normal(size=(samples, features // 2))
        X = np.repeat(shared, 2, axis=1) + 0.4 * rng.normal(size=(samples, features))
        return X, X @ truth + 2.0 * rng.normal(size=samples)

    return draw(), draw()


def fit(x, y, X, t):
    return 0.5 * jnp.mean((X @ y - t) ** 2)


def lasso_path(train, validation, points):
    """y*(x) is a function: evaluated, and differentiated, for all penalties at once."""
    ystar = bl.argmin(fit, prox=bl.prox.L1(jnp.exp))
    y0 = jnp.zeros(train[0].shape[1])

    def error(x):
        y = ystar(x, y0, *train)
        return fit(x, y, *validation), y

    x = jnp.linspace(-4.0, 0.5, points)
    (errors, y), slopes = jax.jit(jax.vmap(jax.value_and_grad(error, has_aux=True)))(x)
    return LassoPath(*map(np.asarray, (x, errors, slopes, y)))


def main(points=200, seed=0) -> Found:
    jax.config.update("jax_enable_x64", True)
    train, validation = data(seed)
    path = lasso_path(train, validation, points)

    y0 = jnp.zeros(train[0].shape[1])
    one = bl.prox.L1(jnp.exp)
    two = bl.prox.ElasticNet(lambda x: jnp.exp(x[0]), lambda x: jnp.exp(x[1]))
    lasso = bl.solve(bl.Problem(fit, fit, train, validation, prox=one), jnp.asarray(0.0), y0)
    net = bl.solve(bl.Problem(fit, fit, train, validation, prox=two), jnp.array([0.0, -2.0]), y0)
    best = path.error.argmin()
    lowest, where = path.error[best], path.x[best]
    print(f"The path: {points} penalties, lowest error {lowest:.4f} at x = {where:.2f}.")
    for name, run in (("The lasso", lasso), ("The elastic net", net)):
        x = ", ".join(f"{value:.3f}" for value in np.atleast_1d(run.x))
        print(
            f"{name}: error {run.value:.4f} at x = {x} after {run.steps} steps, "
            f"{int(np.sum(run.y != 0))} coefficients. {run.status.name}"
        )
    return Found(path, lasso, net)


def draw(found: Found, file: Path) -> Path:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    path, lasso, net = found
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.plot(path.x, path.error, label="path of the lasso")
    left.plot(float(lasso.x), lasso.value, "o", label="lasso, found by hypergradients")
    left.axhline(net.value, ls="--", color="tab:green", label="elastic net, found")
    left.set(xlabel="logarithm of the penalty, x", ylabel="validation error")
    left.legend()
    important = np.arange(path.y.shape[1]) < 10
    right.plot(path.x, path.y[:, ~important], color="0.8", lw=0.8)
    right.plot(path.x, path.y[:, important], color="tab:blue", lw=1.0)
    right.axvline(float(lasso.x), color="tab:orange")
    right.set(xlabel="logarithm of the penalty, x", ylabel="coefficients (blue: those that matter)")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=100)
    plt.close(figure)
    return file


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "lasso_path.png")
    print(f"Drawn: {draw(main(), target)}")
