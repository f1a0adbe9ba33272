"""The penalty of a multiclass support vector machine, found by hypergradients through its dual.

    y*(x) = argmin  ½ exp(x) ‖W‖² − ⟨1 − Y, y⟩ + ε‖y‖²  over y_i on the simplex
    W = Zᵀ(Y − y) / exp(x)

(K. Crammer and Y. Singer, 2001; ε makes the dual strongly convex.) Only samples with y_i ≠ Y_i, the
support vectors, carry W. f is the mean hinge loss of W, made smooth, on validation samples.

    python examples/support_vectors.py [figure.png]
"""

import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_wine

import biloop as bl

SIMPLEX = bl.prox.Simplex()


class Found(NamedTuple):
    """f and its derivative along a path of penalties, how many support vectors, and the run."""

    x: np.ndarray
    value: np.ndarray
    slope: np.ndarray
    support: np.ndarray
    run: bl.Run


def weights(x, y, Z, Y):
    return Z.T @ (Y - y) / jnp.exp(x)


def dual(x, y, Z, Y):
    size = jnp.sum(weights(x, y, Z, Y) ** 2)
    return 0.5 * jnp.exp(x) * size - jnp.sum((1 - Y) * y) + 1e-2 * jnp.sum(y**2)


def hinge(W, Z, Y):
    """max over classes of score + 1 if wrong, less the score of the label; a soft maximum."""
    scores = Z @ W
    worst = 0.1 * jax.nn.logsumexp((scores + 1 - Y) / 0.1, axis=1)
    return jnp.mean(worst - jnp.sum(scores * Y, axis=1))


def data(seed=0):
    Z, labels = load_wine(return_X_y=True)
    Z = Z[:, 1:5]  # with all features the classes hardly overlap
    order = np.random.default_rng(seed).permutation(len(Z))
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    Z = np.hstack([Z, np.ones((len(Z), 1))])[order]
    Y = np.eye(3)[labels[order]]
    return (Z[:60], Y[:60]), (Z[60:], Y[60:])


def main(points=60, seed=0) -> Found:
    jax.config.update("jax_enable_x64", True)
    train, validation = data(seed)
    ystar = bl.argmin(dual, prox=SIMPLEX)
    y0 = jnp.full(train[1].shape, 1 / 3)

    def value(x):
        y = ystar(x, y0, *train)
        return hinge(weights(x, y, *train), *validation), y

    x = jnp.linspace(-1.0, 5.0, points)
    (values, y), slopes = jax.jit(jax.vmap(jax.value_and_grad(value, has_aux=True)))(x)
    support = np.sum(np.abs(np.asarray(y) - train[1]).max(axis=2) > 1e-9, axis=1)

    def outer(x, y, d):
        return hinge(weights(x, y, *d["train"]), *d["validation"])

    both = ({"train": train, "validation": validation},)
    problem = bl.Problem(dual, outer, train, both, prox=SIMPLEX)
    run = bl.solve(problem, jnp.asarray(4.0), y0)
    print(f"The path: lowest f {values.min():.4f} at x = {float(x[values.argmin()]):.2f}.")
    print(f"Found: f {run.value:.4f} at x = {float(run.x):.3f}, {run.steps} steps. {run.message}")
    return Found(*map(np.asarray, (x, values, slopes, support)), run)


def draw(found: Found, file: Path) -> Path:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.plot(found.x, found.value, label="path")
    left.plot(float(found.run.x), found.run.value, "o", label="found by hypergradients")
    left.set(xlabel="logarithm of the penalty, x", ylabel="validation loss f")
    left.legend()
    right.plot(found.x, found.support)
    right.axvline(float(found.run.x), color="tab:orange")
    right.set(xlabel="logarithm of the penalty, x", ylabel="support vectors, of 60 samples")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=100)
    plt.close(figure)
    return file


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "support_vectors.png")
    print(f"Drawn: {draw(main(), target)}")
