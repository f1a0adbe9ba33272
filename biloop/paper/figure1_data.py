"""The two formulations of Figure 1, with their data and what is observed along a run."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from biloop.data import Samples, Split, digits, mnist, noisy_labels, split, with_bias
from biloop.problem import Problem
from biloop.problems import data_cleaning, softmax_ridge
from biloop.problems.classification import cross_entropy, scores

CLASSES = 10
NOISE = 0.1
SCALE = 0.447  # standard deviation of the first W in the code behind the paper
FORMULATIONS = ("cleaning", "ridge")


@dataclass(frozen=True)
class Sizes:
    """Which data, and how many samples of them."""

    data: Literal["mnist", "digits"]
    train: int
    validation: int
    test: int


class Instance(NamedTuple):
    """A formulation on the samples of one seed, with two starts for W.

    `wrong` marks the training samples whose label is not the true one.
    """

    problem: Problem
    x0: Array
    W0: Array
    train: Samples
    test: Samples
    wrong: np.ndarray


def load(sizes: Sizes, folder: Path | None) -> Callable[[str, int], Instance]:
    """Instances by formulation and seed. The seed draws the samples, the noise and the first W.

    Pixels are centred and divided by their standard deviation over the training images, one number
    each, as in the code behind the paper.
    """
    images = _images(sizes, folder)
    mean, std = images.train.X.mean(), images.train.X.std()

    def inputs(each: Samples) -> Samples:
        return Samples(with_bias((each.X - mean) / std), each.labels)

    @cache
    def samples(seed: int) -> tuple[Samples, Samples, Samples, np.ndarray]:
        train, validation = split(images.train, (sizes.train, sizes.validation), seed)
        (test,) = split(images.test, (sizes.test,), seed)
        labels, _ = noisy_labels(train.labels, NOISE, CLASSES, seed)
        wrong = labels != train.labels
        noisy = Samples(train.X, labels)
        return inputs(noisy), inputs(validation), inputs(test), wrong

    @cache
    def instance(formulation: str, seed: int) -> Instance:
        train, validation, test, wrong = samples(seed)
        make = data_cleaning if formulation == "cleaning" else softmax_ridge
        made = make(train, validation, classes=CLASSES, scale=SCALE, seed=seed)
        return Instance(made.problem, made.x0, made.y0, train, test, wrong)

    return instance


@cache
def _images(sizes: Sizes, folder: Path | None) -> Split:
    """The embedded digits have no test set of their own: some samples are set aside for it."""
    if sizes.data == "mnist":
        return mnist(folder)
    rest, test = split(digits(), (sizes.train + sizes.validation, sizes.test), seed=0)
    return Split(rest, test)


def given(instance: Instance) -> tuple[Any, ...]:
    """What `observe` needs of an instance, as arrays."""
    return (
        (jnp.asarray(instance.train.X), jnp.asarray(instance.train.labels)),
        (jnp.asarray(instance.test.X), jnp.asarray(instance.test.labels)),
        jnp.asarray(instance.wrong),
        instance.x0,
    )


def observe(x: Array, W: Array, train: Any, test: Any, wrong: Array, x0: Array) -> dict[str, Array]:
    """Losses (on the training labels as they are), accuracy, how far x moved, and weights σ(x_i).

    Of a single penalty, exp(x) stands in the place of both weights.
    """
    on_test = scores(W, test[0])
    guess = jnp.argmax(on_test, axis=1).astype(test[1].dtype)
    weight = jax.nn.sigmoid(x) if x.ndim else jnp.broadcast_to(jnp.exp(x), wrong.shape)
    return {
        "train_loss": jnp.mean(cross_entropy(scores(W, train[0]), train[1])),
        "test_loss": jnp.mean(cross_entropy(on_test, test[1])),
        "accuracy": jnp.mean(guess == test[1], dtype=W.dtype),
        "moved": jnp.max(jnp.abs(x - x0)),
        "wrong_weight": jnp.mean(weight, where=wrong),
        "right_weight": jnp.mean(weight, where=~wrong),
    }
