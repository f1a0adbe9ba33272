"""Dataset distillation: ten images, such that a classifier trained on them knows all digits.

x are the pixels of ten images, one of each class, at first images of the data; y is a softmax
regression that is trained on these ten alone, f its cross entropy on 1000 real images. (T. Wang et
al., Dataset distillation, 2018, https://arxiv.org/abs/1811.10959.)

    python examples/distillation.py [--steps 150] [--figure out/distillation.png]
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure

import biloop as bl
from biloop.problems.distilling import Distillation


class Found(NamedTuple):
    """The problem, its run, and the shares of unseen images that are right before and after."""

    distilled: Distillation
    run: bl.Run
    before: float
    after: float


def main(steps: int = 150, samples: int = 1000) -> Found:
    digits = bl.data.digits()
    train = bl.data.Samples(digits.X[:samples], digits.labels[:samples])
    unseen = bl.data.Samples(digits.X[samples:], digits.labels[samples:])
    distilled = bl.problems.distillation(train)
    # What the ten images of the start teach: the solution below them.
    trained = jax.jit(bl.argmin(distilled.problem.inner))
    y0 = trained(distilled.x0, distilled.y0, *distilled.problem.inner_data)
    run = bl.solve(distilled.problem, distilled.x0, y0, steps=steps)
    found = Found(distilled, run, *(float(distilled.accuracy(y, unseen)) for y in (y0, run.y)))
    print(
        f"{run.status.name} after {run.steps} outer steps and {run.cost.total:.0f} gradients and "
        f"products: f from {run.trace['value'][0]:.3f} to {run.value:.3f}; right on unseen images "
        f"{found.before:.1%} → {found.after:.1%}"
    )
    return found


def draw(found: Found, file: Path) -> Path:
    """The loss along the run, and the images before and after."""
    figure = Figure(figsize=(10, 3), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 2))
    axes = left.subplots()
    axes.plot(found.run.trace["value"], color="#0072b2")
    axes.set(xlabel="outer step", ylabel="cross entropy on real images", yscale="log")
    rows = {
        f"{found.before:.0%} right": found.distilled.x0,
        f"{found.after:.0%} right": found.run.x,
    }
    grid = right.subplots(2, 10)
    for places, (title, images) in zip(grid, rows.items(), strict=True):
        places[0].set_ylabel(title, fontsize=8)
        for place, image in zip(places, np.asarray(images).reshape(-1, 8, 8), strict=True):
            place.imshow(image, cmap="gray")
            place.set(xticks=(), yticks=())
    right.suptitle("ten images of the data, and what they become")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    return file


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    found = main(options.steps)
    if options.figure:
        draw(found, options.figure)
