"""Which labels to trust: weights of samples for a convolutional network, in equinox and in flax.

Four in ten of 600 training labels of Fashion-MNIST are drawn anew. x is a weight for each sample,
y a convolutional network, and f its loss on 400 images whose labels are right. (M. Ren et al.,
Learning to reweight examples for robust deep learning, 2018, https://arxiv.org/abs/1803.09050.)
Adam trains the network, its state carried from one outer step to the next; CG with few products,
which ends at negative curvature, finds what the weights have to do with it.

    python examples/sample_weights.py [--flax] [--steps 40] [--figure out/sample_weights.png]

Fashion-MNIST is looked for as `bl.data.fashion_mnist()` does; where it cannot be had, or with
`--digits`, the digits that come with scikit-learn take its place.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

import biloop as bl

NOISE, CHANNELS, PENALTY = 0.4, (8, 16), 3e-3


class Data(NamedTuple):
    """Images (n, height, width) in [0, 1] and labels, and which training labels are wrong."""

    training: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    wrong: np.ndarray


def load(samples: int, clean: int, embedded: bool = False, seed: int = 0) -> Data:
    """Fashion-MNIST at half of its resolution, which is enough here; or 8 × 8 digits."""
    try:
        if embedded:
            raise FileNotFoundError
        train, rest = bl.data.fashion_mnist()
        X, labels = (np.concatenate(pair) for pair in zip(train, rest, strict=True))
        X = X.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
    except (OSError, ImportError, RuntimeError):
        X, labels = map(np.asarray, bl.data.digits())
        X = X.reshape(-1, 8, 8)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))[: samples + clean + 2000]
    X, labels = X[order].astype(np.float32), labels[order].astype(np.int32)
    noisy, end = labels[:samples].copy(), samples + clean
    drawn = rng.random(samples) < NOISE
    noisy[drawn] = rng.integers(0, 10, drawn.sum())
    wrong = noisy != labels[:samples]
    parts = [(X[a:b], labels[a:b]) for a, b in ((samples, end), (end, None))]
    return Data((X[:samples], noisy), *parts, wrong)


class Network(eqx.Module):
    """Two convolutions, each halving the image, and a dense layer."""

    convolutions: list[eqx.nn.Conv2d]
    head: eqx.nn.Linear

    def __init__(self, side: int, key: Any):
        a, b, c = jax.random.split(key, 3)
        first, second = CHANNELS
        self.convolutions = [
            eqx.nn.Conv2d(1, first, 3, stride=2, padding=1, dtype=jnp.float32, key=a),
            eqx.nn.Conv2d(first, second, 3, stride=2, padding=1, dtype=jnp.float32, key=b),
        ]
        quarter = -(-side // 4)
        self.head = eqx.nn.Linear(second * quarter**2, 10, dtype=jnp.float32, key=c)

    def __call__(self, image: Any) -> Any:
        z = image[None]
        for layer in self.convolutions:
            z = jax.nn.gelu(layer(z))
        return self.head(z.ravel())


def in_equinox(side: int, key: Any) -> tuple[Any, Callable[[Any, Any], Any]]:
    """y0, a module as it is, and the scores (n, 10) of images."""
    return Network(side, key), lambda y, X: jax.vmap(y)(X)


def in_flax(side: int, key: Any) -> tuple[Any, Callable[[Any, Any], Any]]:
    """The same in flax's linen: y0 is the dictionary of its parameters."""
    from flax import linen as nn

    class Network(nn.Module):
        @nn.compact
        def __call__(self, X: Any) -> Any:
            z = X[..., None]
            for channels in CHANNELS:
                z = nn.gelu(nn.Conv(channels, (3, 3), strides=(2, 2))(z))
            return nn.Dense(10)(z.reshape(len(z), -1))

    network = Network()
    return network.init(key, jnp.zeros((1, side, side))), network.apply


def losses(scores: Any, labels: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels)


class Found(NamedTuple):
    """A run, and the shares of the test images that are right."""

    run: bl.Run
    accuracy: float
    uniform: float


def learn(data: Data, flax: bool = False, steps: int = 40) -> Found:
    """Weights and network; and the same network, trained as long with all weights alike."""
    y0, scores = (in_flax if flax else in_equinox)(data.test[0].shape[1], jax.random.key(0))

    def inner(x: Any, y: Any, X: Any, labels: Any) -> Any:
        squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(eqx.filter(y, eqx.is_array)))
        return jnp.mean(jax.nn.sigmoid(x) * losses(scores(y, X), labels)) + PENALTY * squares

    def outer(x: Any, y: Any, X: Any, labels: Any) -> tuple[Any, dict[str, Any]]:
        z = scores(y, X)
        right = jnp.mean((jnp.argmax(z, axis=1) == labels).astype(z.dtype))
        return jnp.mean(losses(z, labels)), {"accuracy": right}

    problem = bl.Problem(inner, outer, data.training, data.validation, has_aux=True)
    below = bl.Optax(optax.adam(3e-3), 10, carry_state=True)
    method = bl.AID(below, bl.CG(5, indefinite="truncate"))
    x0 = jnp.zeros(len(data.wrong), jnp.float32)
    run = bl.solve(problem, x0, y0, method, outer=optax.adam(0.3), steps=steps)
    alike = bl.Optax(optax.adam(3e-3), 10 * steps)
    y, _, _ = eqx.filter_jit(alike)(problem, x0, y0, alike.init(y0), 0)
    accuracy, uniform = (float(outer(x0, each, *data.test)[1]["accuracy"]) for each in (run.y, y))
    weights = np.asarray(jax.nn.sigmoid(run.x))
    print(
        f"{'flax' if flax else 'equinox'} {run.status.name}: right on test images {accuracy:.1%}, "
        f"with equal weights {uniform:.1%}; mean weight of right labels "
        f"{weights[~data.wrong].mean():.2f}, of wrong ones {weights[data.wrong].mean():.2f}"
    )
    return Found(run, accuracy, uniform)


def draw(data: Data, found: Found, file: Path) -> Path:
    """The validation loss, the weights, and images that are trusted least."""
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(2, 1))
    curve, weights = left.subplots(1, 2)
    curve.plot(found.run.trace["value"], color="#0072b2")
    curve.set(xlabel="outer step", ylabel="validation loss")
    learned = np.asarray(jax.nn.sigmoid(found.run.x))
    parts = {"right labels": ~data.wrong, "wrong labels": data.wrong}
    for (name, which), color in zip(parts.items(), ("#0072b2", "#d55e00"), strict=True):
        weights.hist(learned[which], np.linspace(0, 1, 21), alpha=0.6, label=name, color=color)
    weights.set(xlabel="weight of a training sample", ylabel="samples")
    weights.legend(frameon=False)
    right.suptitle("the least trusted, with their labels", fontsize=9)
    images, labels = data.training
    for place, i in zip(right.subplots(3, 4).flat, np.argsort(learned), strict=False):
        place.imshow(images[i], cmap="gray")
        place.set(xticks=(), yticks=())
        mark = "wrong" if data.wrong[i] else "right"
        place.set_title(f"{labels[i]}, {mark}", fontsize=7, pad=2)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--flax", action="store_true")
    parser.add_argument("--digits", action="store_true")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    data = load(600, 400, options.digits)
    found = learn(data, options.flax, options.steps)
    if options.figure:
        draw(data, found, options.figure)


if __name__ == "__main__":
    main()
