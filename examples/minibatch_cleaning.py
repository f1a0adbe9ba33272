"""Cleaning the labels of MNIST by minibatches: half of the labels were drawn anew.

Each of 20 000 training images has a weight σ(x_i). The weights are learned so that the classifier
trained with them does well on 5 000 clean images:

    min_x  mean over clean images of CE_j(W*(x)),
    W*(x) = argmin_W  mean over training images of σ(x_i) CE_i(W) + 0.001 ‖W‖²

In a step on a batch of 64 the loss sees 64 weights, which belong to its rows: nothing is written
for that but `per_sample=True`. Both runs have the same step sizes and the same budget, in passes
over the data; one sees a batch in each step, the other all images.

    python examples/minibatch_cleaning.py [--passes 60] [--figure out/minibatch_cleaning.png]

MNIST is looked for in the folder of BILOOP_DATA and fetched otherwise; `--digits` takes the small
digits of scikit-learn instead, which are at hand.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import biloop as bl

NOISE, PENALTY, BATCH = 0.5, 1e-3, 64
COLORS = {"batches of 64": "#0072b2", "all images": "#d55e00"}  # color-blind safe


class Images(NamedTuple):
    """Images with a constant; `wrong` marks the training images with another label."""

    train: bl.data.Samples
    clean: bl.data.Samples
    test: bl.data.Samples
    wrong: np.ndarray


def load(small: bool) -> Images:
    if small:
        train, clean, test = bl.data.split(bl.data.digits(), (1000, 300, 497), seed=0)
    else:
        images = bl.data.mnist()
        (train, clean), test = bl.data.split(images.train, (20_000, 5_000), seed=0), images.test
    labels, _ = bl.data.noisy_labels(train.labels, NOISE, classes=10, seed=1)
    wrong = labels != train.labels  # one in ten of those drawn anew is what it was
    train = bl.data.Samples(train.X, labels)
    biased = [bl.data.Samples(bl.data.with_bias(s.X), s.labels) for s in (train, clean, test)]
    return Images(*biased, wrong)


def cross_entropy(W: Any, X: Any, labels: Any) -> Any:
    scores = X @ W.T
    right = jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
    return jax.nn.logsumexp(scores, axis=1) - right


def inner(x: Any, W: Any, X: Any, labels: Any) -> Any:
    return jnp.mean(jax.nn.sigmoid(x) * cross_entropy(W, X, labels)) + PENALTY * jnp.sum(W**2)


def outer(x: Any, W: Any, X: Any, labels: Any) -> Any:
    return jnp.mean(cross_entropy(W, X, labels))


def learn(images: Images, passes: float) -> dict[str, bl.Run]:
    """A run on batches and one on all images, each until its passes are spent."""
    problem = bl.Problem(inner, outer, images.train, images.clean, per_sample=True)
    n, d = images.train.X.shape
    x0, W0 = jnp.zeros(n, jnp.float32), jnp.zeros((10, d), jnp.float32)
    # The softmax has curvature at most ½.
    L = 0.5 * np.linalg.eigvalsh(images.train.X.T @ images.train.X / n)[-1] + 2 * PENALTY
    test = jax.tree.map(jnp.asarray, images.test)

    @jax.jit
    def right(W: Any) -> Any:
        return jnp.mean(jnp.argmax(test.X @ W.T, axis=1).astype(test.labels.dtype) == test.labels)

    runs = {}
    for name, batch in (("batches of 64", BATCH), ("all images", None)):
        method = bl.schemes.amigo(batch, 1 / L, 1 / L, N=1, Q=1)
        each = 5 if batch is None else 3 * BATCH / n + 2 * BATCH / len(images.clean.labels)
        runs[name] = run = bl.solve(
            problem, x0, W0, method, outer=1.0 * n, steps=10**9, budget=passes, label=name,
            watch=lambda x, W: {"accuracy": float(right(W))},
            watch_every=max(1, round(passes / each / 40)),
        )  # fmt: skip
        weights = np.asarray(jax.nn.sigmoid(run.x))
        wrong, rest = (weights[which].mean() for which in (images.wrong, ~images.wrong))
        print(
            f"{name:14} {run.steps:6} steps, {run.cost.total:5.1f} passes, {run.seconds:5.1f} s: "
            f"loss on clean images {run.value:.3f}, {float(right(run.y)):.1%} of test images "
            f"right; weights of wrong labels {wrong:.2f}, of right ones {rest:.2f}"
        )
    return runs


def draw(runs: dict[str, bl.Run], images: Images, path: Path) -> Path:
    """The accuracy along both runs, and what the one on batches thinks of each label."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, run in runs.items():
        spent = np.r_[0, np.asarray(run.trace["gradients"]) + np.asarray(run.trace["products"])]
        k = np.asarray(run.watched["k"])
        left.plot(spent[k], run.watched["accuracy"], color=COLORS[name], lw=2, label=name)
    left.set(xlabel="passes over the data", ylabel="test images right")
    left.yaxis.set_major_formatter("{x:.0%}")
    left.legend(frameon=False, loc="lower right")
    weights = np.asarray(jax.nn.sigmoid(runs["batches of 64"].x))
    bins = np.linspace(0, 1, 41)
    right.hist(weights[~images.wrong], bins, color="0.7", label="right labels")
    right.hist(weights[images.wrong], bins, color="#cc79a7", alpha=0.8, label="wrong labels")
    right.set(xlabel="weight that was learned on batches", ylabel="training images")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def main(argv: list[str] | None = None) -> dict[str, bl.Run]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--passes", type=float, default=60.0)
    parser.add_argument("--digits", action="store_true", help="small digits instead of MNIST")
    parser.add_argument("--figure", type=Path, default=Path("out", "minibatch_cleaning.png"))
    given = parser.parse_args(argv)
    images = load(given.digits)
    runs = learn(images, given.passes)
    print(f"Figure: {draw(runs, images, given.figure)}")
    return runs


if __name__ == "__main__":
    main()
