"""What many runs side by side cost beside the same runs one after the other.

Data cleaning of the size of MNIST (20 000 × 785 × 10; random numbers, or MNIST itself where
BILOOP_DATA says that it lies on this machine), AID with N = Q = 5: 9 pairs of step sizes × 5 seeds
of label noise, 45 runs of `solve` against one `sweep`. Compilation is not counted. Three of the 45
single runs are timed and stand for all. Both take turns in one process; the minimum of each counts.
On a machine that is shared, the ratio of the processor times is the steadier one.
The loss is written in two ways and, as it ships with the library, in a third that is fast alone.

    python benchmarks/sweep.py [--loop 5] [--steps 1] [--turns 2]
"""

import argparse
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import biloop as bl

SAMPLES, FEATURES, CLASSES = 20_000, 785, 10
VALIDATION = 5_000
STEPS, OUTER_STEPS, SEEDS = [0.05, 0.1, 0.2], [1.0, 10.0, 100.0], range(5)
NOISE, PENALTY = 0.1, 0.001


def images(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and validation images with a constant entry, and their labels."""
    total = SAMPLES + VALIDATION
    if "BILOOP_DATA" in os.environ:
        samples = bl.data.with_bias(bl.data.mnist("train"))
        inputs, labels = samples.inputs[:total], samples.labels[:total]
    else:
        rng = np.random.default_rng(seed)
        inputs = rng.random((total, FEATURES), np.float32) / 4
        labels = np.argmax(inputs @ rng.normal(size=(FEATURES, CLASSES)), axis=1)
    return inputs[:SAMPLES], labels[:SAMPLES], inputs[SAMPLES:], labels[SAMPLES:]


def losses(scores: Callable[[Any, Any], Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The inner and outer loss for a layout of the weights W."""

    def cross_entropy(W: Any, inputs: Any, labels: Any) -> Any:
        z = scores(W, inputs)
        return jax.nn.logsumexp(z, axis=1) - jnp.sum(z * jax.nn.one_hot(labels, CLASSES), axis=1)

    def inner(x: Any, W: Any, inputs: Any, labels: Any) -> Any:
        weighted = jax.nn.sigmoid(x) * cross_entropy(W, inputs, labels)
        return jnp.mean(weighted) + PENALTY * jnp.sum(W**2)

    def outer(x: Any, W: Any, inputs: Any, labels: Any) -> Any:
        return jnp.mean(cross_entropy(W, inputs, labels))

    return inner, outer


def written(scores: Callable[[Any, Any], Any]) -> Callable[..., bl.Problem]:
    """The problem as one writes it, for a layout of W."""
    inner, outer = losses(scores)
    return lambda train, validation: bl.Problem(inner, outer, train, validation)


LAYOUTS = {
    "X @ W": (written(lambda W, X: X @ W), (FEATURES, CLASSES)),
    "X @ W.T": (written(lambda W, X: X @ W.T), (CLASSES, FEATURES)),
    "shipped": (lambda *data: bl.problems.data_cleaning(*data).problem, (CLASSES, FEATURES)),
}


def compare(name: str, loop: int, steps: int, turns: int) -> None:
    """Print the seconds of both ways and their ratio."""
    make, shape = LAYOUTS[name]
    X, labels, V, validation = (jnp.asarray(a) for a in images())

    def problem(seed: int) -> bl.Problem:
        rng = np.random.default_rng(seed)
        wrong = np.where(rng.random(SAMPLES) < NOISE, rng.integers(1, CLASSES, SAMPLES), 0)
        noisy = (np.asarray(labels) + wrong) % CLASSES
        return make((X, noisy), (V, validation))

    def method(step: float) -> bl.AID:
        return bl.schemes.n_q_loop(loop, loop, inner_step=step, linear_step=step)

    x0, W0 = jnp.zeros(SAMPLES), jnp.zeros(shape)
    cells = list(itertools.product(STEPS, OUTER_STEPS, SEEDS))

    def single(step: float, outer_step: float, seed: int) -> bl.Run:
        return bl.solve(problem(seed), x0, W0, method(step), outer=outer_step, steps=steps)

    def together() -> bl.Sweep:
        over = {("inner.step_size", "linear.step_size"): [(a, a) for a in STEPS]}
        over |= {"outer": OUTER_STEPS}
        return bl.sweep(problem, x0, W0, method(0.1), over=over, seeds=SEEDS, steps=steps)

    sample = [cells[0], cells[len(cells) // 2], cells[-1]]
    alone, side_by_side = Fastest(), Fastest()
    for _ in range(turns):
        with alone:
            runs = [single(*cell) for cell in sample]
            alone.seconds(sum(run.seconds for run in runs))
        with side_by_side:
            sweep = together()
            side_by_side.seconds(sweep.seconds)
        for cell, run in zip(sample, runs, strict=True):
            a, b = run.trace["value"], sweep.runs[cells.index(cell)].trace["value"]
            assert np.allclose(a, b, rtol=1e-3), f"{cell} ends elsewhere: {a} and {b}"
    share = len(cells) / len(sample)
    print(
        f"{name:10}{share * alone.wall:12.1f}{side_by_side.wall:14.1f}"
        f"{side_by_side.wall / alone.wall / share:8.2f}"
        f"{side_by_side.processor / alone.processor / share:17.2f}",
        flush=True,
    )


class Fastest:
    """The least seconds that something took in several turns: of the clock, and of processors."""

    wall = processor = float("inf")

    def seconds(self, elapsed: float) -> None:
        """Take note of the seconds of a turn without compilation."""
        self.wall = min(self.wall, elapsed)

    def __enter__(self) -> None:
        self._began = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.processor = min(self.processor, time.process_time() - self._began)


def main() -> None:
    """Compare the layouts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loop", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--turns", type=int, default=2)
    arguments = parser.parse_args()
    print("seconds of 45 runs")
    print(f"{'':10}{'one by one':>12}{'side by side':>14}{'ratio':>8}{'processor time':>17}")
    for name in LAYOUTS:
        compare(name, arguments.loop, arguments.steps, arguments.turns)


if __name__ == "__main__":
    main()
