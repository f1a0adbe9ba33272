"""Task-driven sparse coding: a dictionary that is learned for what its codes are used for.

    y_i = argmin_y ½‖z_i − yD‖² + λ‖y‖₁ + ½γ‖y‖²  for every image z_i
    f = cross entropy of y_i W + b

on scikit-learn's digits. The codes are sparse, with derivatives that are those on their support;
the dictionary D and the classifier (W, b) are learned together. Beside it the same with a
dictionary that stays as it was. J. Mairal, F. Bach and J. Ponce, Task-driven dictionary learning
(2012).

    python examples/sparse_coding.py [figure.png]
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

PROX = bl.prox.ElasticNet(0.1, 0.01)


class Learned(NamedTuple):
    """A run, and accuracy and sparsity of codes on images that were not seen."""

    run: bl.Run
    accuracy: float
    zeros: float


class Found(NamedTuple):
    """With a dictionary that is learned, and with one that is not."""

    learned: Learned
    fixed: Learned


def unit(D):
    return D / jnp.linalg.norm(D, axis=1, keepdims=True)


def coding(x, codes, images):
    return 0.5 * jnp.sum((images - codes @ unit(x["D"])) ** 2)


def coding_with_fixed(x, codes, images):
    return coding({"D": jax.lax.stop_gradient(x["D"])}, codes, images)


def loss(x, codes, labels):
    scores = jax.nn.log_softmax(codes @ x["W"] + x["b"][None, :])
    right = jnp.argmax(scores, axis=1) == labels
    value = -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))
    return value + 1e-4 * jnp.sum(x["W"] ** 2), {"accuracy": jnp.mean(right.astype(value.dtype))}


def learn(inner, train, test, atoms, steps, seed) -> Learned:
    images, labels = train
    picked = np.random.default_rng(seed).choice(len(images), atoms, replace=False)
    x = {"D": images[picked], "W": jnp.zeros((atoms, 10)), "b": jnp.zeros(10)}
    problem = bl.Problem(inner, loss, (images,), (labels,), prox=PROX, has_aux=True)
    codes = jnp.zeros((len(images), atoms))
    method = bl.schemes.auto(kind=problem.kind)
    run = bl.solve(problem, x, codes, method, outer=optax.adam(0.05), steps=steps)
    codes = jax.jit(bl.argmin(coding, prox=PROX))(run.x, jnp.zeros((len(test[0]), atoms)), test[0])
    _, metrics = loss(run.x, codes, test[1])
    return Learned(run, float(metrics["accuracy"]), float(jnp.mean(codes == 0)))


def main(samples=400, atoms=20, steps=150, seed=0) -> Found:
    jax.config.update("jax_enable_x64", True)
    images, labels = load_digits(return_X_y=True)
    images, labels = jnp.asarray(images / 16), jnp.asarray(labels)
    train, test = (images[:samples], labels[:samples]), (images[samples:], labels[samples:])
    found = Found(*(learn(g, train, test, atoms, steps, seed) for g in (coding, coding_with_fixed)))
    for name, each in zip(("learned", "left as it was"), found, strict=True):
        values = each.run.trace["value"]
        print(
            f"The dictionary {name}: f from {values[0]:.2f} to {values[-1]:.2f}, accuracy "
            f"{each.run.trace['accuracy'][-1]:.3f} in training, {each.accuracy:.3f} on others; "
            f"{100 * each.zeros:.0f} % of the codes are zero. {each.run.status.name}"
        )
    return found


def draw(found: Found, file: Path) -> Path:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1))
    axes = left.subplots()
    for name, each in zip(("learned", "fixed"), found, strict=True):
        axes.plot(each.run.trace["value"], label=f"dictionary {name}: {each.accuracy:.1%} right")
    axes.set(xlabel="outer step", ylabel="f, cross entropy on the training images")
    axes.legend()
    atoms = np.asarray(unit(found.learned.run.x["D"])).reshape(-1, 8, 8)
    right.suptitle("the atoms that were learned")
    for place, atom in zip(right.subplots(4, -(-len(atoms) // 4)).flat, atoms, strict=True):
        size = np.abs(atom).max()
        place.imshow(atom, cmap="RdBu_r", vmin=-size, vmax=size)
        place.set(xticks=(), yticks=())
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=100)
    plt.close(figure)
    return file


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "sparse_coding.png")
    print(f"Drawn: {draw(main(), target)}")
