"""A deep equilibrium model on scikit-learn's digits: one layer, repeated until nothing changes.

    y_i = tanh(y_i A + z_i B + c)  for every image z_i,    f = cross entropy of y_i V + d

The state y is not the result of some number of layers but their limit, and the weights are learned
by the implicit function theorem: nothing is unrolled, whatever it took to find y. Whether the plain
iteration would converge, too, is a number that can be measured.

    python examples/equilibrium_model.py [figure.png]
"""

import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import biloop as bl


class Found(NamedTuple):
    """The run, accuracy on unseen images, spectral radii of ∂T/∂y before and after, residuals."""

    run: bl.Run
    accuracy: float
    radii: tuple[float, float]
    residuals: dict[str, list[float]]


def layer(x, y, images):
    return jnp.tanh(y @ x["A"] + images @ x["B"] + x["c"][None, :])


def loss(x, y, labels):
    scores = jax.nn.log_softmax(y @ x["V"] + x["d"][None, :])
    right = jnp.argmax(scores, axis=1) == labels
    value = -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))
    return value, {"accuracy": jnp.mean(right.astype(value.dtype))}


def weights(states, seed):
    keys = jax.random.split(jax.random.key(seed), 3)
    shapes = {"A": (states, states), "B": (64, states), "V": (states, 10)}
    drawn = {n: jax.random.normal(k, s) / 8 for k, (n, s) in zip(keys, shapes.items(), strict=True)}
    return drawn | {"c": jnp.zeros(states), "d": jnp.zeros(10)}


def residuals(problem, x, y0, steps=(1, 2, 4, 8, 16, 32)):
    """‖y − T(x, y)‖ after some evaluations of T, for the iteration itself and for Anderson's."""

    def after(solver):
        return float(solver(problem, x, y0, solver.init(y0), 0)[2].residual)

    return {
        "the iteration itself": [after(bl.FixedPoint(steps=n)) for n in steps],
        "Anderson's": [after(bl.Anderson(steps=n)) for n in steps],
    }


def main(samples=1000, states=30, steps=200, seed=0) -> Found:
    images, labels = load_digits(return_X_y=True)
    images = jnp.asarray(images / 16)
    labels = jnp.asarray(labels)
    seen, unseen = slice(samples), slice(samples, None)
    model = bl.Problem.fixed_point(layer, loss, (images[seen],), (labels[seen],), has_aux=True)
    method = bl.AID(bl.Anderson(50, tolerance=1e-3), bl.GMRES(40, tolerance=1e-6))
    x, y = weights(states, seed), jnp.zeros((samples, states))
    run = bl.solve(model, x, y, method, outer=optax.adam(0.01), steps=steps)

    radii = tuple(float(bl.estimate.contraction(model, w, s)) for w, s in ((x, y), (run.x, run.y)))
    ystar = bl.equilibrium(layer, bl.Anderson(200, tolerance=1e-4))
    start = jnp.zeros((len(images) - samples, states))
    _, metrics = loss(run.x, jax.jit(ystar)(run.x, start, images[unseen]), labels[unseen])
    values, right = run.trace["value"], run.trace["accuracy"]
    print(f"f from {values[0]:.2f} to {values[-1]:.3f}, {run.status.name}: {run.message}")
    print(
        f"Accuracy: {right[-1]:.3f} in training, {metrics['accuracy']:.3f} on {len(start)} others."
    )
    print(f"Spectral radius of ∂T/∂y: {radii[0]:.2f} before, {radii[1]:.2f} after.")
    return Found(run, float(metrics["accuracy"]), radii, residuals(model, run.x, y))


def draw(found: Found, file: Path) -> Path:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.semilogy(found.run.trace["value"], label="cross entropy")
    left.semilogy(1 - np.asarray(found.run.trace["accuracy"]), label="share of wrong answers")
    left.axhline(1 - found.accuracy, ls="--", color="tab:orange", label="... on unseen images")
    left.set(xlabel="outer step")
    left.legend()
    for name, sizes in found.residuals.items():
        right.loglog(2.0 ** np.arange(len(sizes)), sizes, "o-", label=name)
    right.set(xlabel="evaluations of T, after training", ylabel="‖y − T(x, y)‖")
    right.set_title(f"spectral radius {found.radii[1]:.2f}", fontsize=10)
    right.legend()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=100)
    plt.close(figure)
    return file


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "equilibrium_model.png")
    print(f"Drawn: {draw(main(), target)}")
