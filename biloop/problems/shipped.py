"""The problems that ship: on random data, the embedded digits, or data sets where they are."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from biloop.data import (
    LETTERS,
    Samples,
    digits,
    excerpts,
    fragments,
    ijcnn1,
    mnist,
    next_letters,
    noisy_labels,
    sow,
    speeches,
    split,
    with_bias,
)
from biloop.problems.cleaning import DataCleaning, data_cleaning
from biloop.problems.distilling import Distillation, distillation
from biloop.problems.log_cosh_quadratics import log_cosh
from biloop.problems.logistic_regression import Logistic, logistic
from biloop.problems.quadratics import Quadratic, quadratic
from biloop.problems.representation import HyperRepresentation, hyper_representation
from biloop.problems.representation_network import HyperNetwork, hyper_network
from biloop.problems.ridge_regression import Ridge, ridge
from biloop.problems.robust_quadratics import robust_quadratic
from biloop.problems.sampled_quadratics import sampled_quadratic
from biloop.problems.softmax_regression import SoftmaxRidge, softmax_ridge
from biloop.problems.sources import Mixture, mixture
from biloop.problems.synthetic import sparse_classes, sparse_regression
from biloop.problems.theorem_four import worst_case

Draw = Callable[[int], tuple[Samples, Samples]]
"""From a seed to training and validation samples."""


@dataclass(frozen=True)
class Entry:
    """A problem that can be made: what it is, its size, and what it needs beyond the core."""

    name: str
    description: str
    x_size: int
    y_size: int
    samples: int
    """For training; 0 where there are none."""
    make: Callable[[int], Any]
    """From a seed to an object with `problem`, `x0`, `y0`, and what is known about it."""
    needs: str = ""


def catalogue() -> dict[str, Entry]:
    """All problems by name; none of them is made yet.

    Examples
    --------
    >>> bl.problems.catalogue()["ridge"].description
    'ridge regression with a penalty per feature, in closed form'
    """
    return {entry.name: entry for entry in _ENTRIES}


def find(name: str) -> Entry:
    """The entry of this name, or a sentence with the nearest one."""
    entries = catalogue()
    if name not in entries:
        nearest = difflib.get_close_matches(name, entries, n=1, cutoff=0)[0]
        raise ValueError(
            f"There is no problem {name!r}; did you mean {nearest!r}? There are: "
            f"{', '.join(entries)}."
        )
    return entries[name]


def _quadratic(kappa: float, seed: int) -> Quadratic:
    return quadratic(kappa, p=50, q=500, seed=seed)


def _ridge(spread: float, seed: int) -> Ridge:
    return ridge(*sparse_regression(300, 200, relevant=40, noise=1.0, spread=spread, seed=seed))


def _logistic(seed: int) -> Logistic:
    return logistic(*sparse_classes(500, 200, relevant=40, noise=1.0, seed=seed), x0=-3.0)


def _representation(seed: int) -> HyperRepresentation:
    d = sow(seed)
    return hyper_representation((d.X_T, d.Y_T), (d.X_V, d.Y_V), H0=d.H_0, w0=d.w_0)


def _network(seed: int) -> HyperNetwork:
    return hyper_network(*_digits(seed), gamma=0.01, seed=seed)


def _softmax_ridge(draw: Draw, seed: int) -> SoftmaxRidge:
    return softmax_ridge(*map(_with_bias, draw(seed)))


def _cleaning(draw: Draw, noise: float, seed: int) -> DataCleaning:
    train, validation = map(_with_bias, draw(seed))
    labels, _ = noisy_labels(train.labels, noise, 10, seed)
    return data_cleaning(Samples(train.X, labels), validation)


def _penalties(draw: Draw, seed: int) -> Logistic:
    return logistic(*map(_with_bias, draw(seed)), classes=10, x0=-4.6)


def _ijcnn1(seed: int) -> Logistic:
    return logistic(*ijcnn1(), x0=-3.0)  # nothing in it is random


def _fragments(seed: int) -> Mixture:
    *sources, target = (next_letters(text) for text in fragments().values())
    return mixture(sources, target, classes=len(LETTERS), seed=seed)


PERIODS = tuple((first, first + 24) for first in range(1790, 1990, 25))
"""The years of the sources of mixture-speeches; its target are those from 1990 on."""


def _speeches(seed: int) -> Mixture:
    said = speeches()

    def letters(years: tuple[int, int]) -> Samples:
        found = next_letters(excerpts(said, years, count=20, length=250, seed=seed))
        return Samples(found.X[:4500], found.labels[:4500])

    sources = [letters(years) for years in PERIODS]
    return mixture(sources, letters((1990, 2021)), classes=len(LETTERS), seed=seed)


def _distillation(draw: Draw, seed: int) -> Distillation:
    train, _ = draw(seed)
    return distillation(train, learned=10, seed=seed)


def _digits(seed: int) -> tuple[Samples, Samples]:
    train, validation = split(digits(), (1000, 300), seed)
    return train, validation


def _mnist(seed: int) -> tuple[Samples, Samples]:
    train, validation = split(mnist().train, (20_000, 5_000), seed)
    return train, validation


def _with_bias(samples: Samples) -> Samples:
    return Samples(with_bias(samples.X), samples.labels)


_LEARN, _IDX, _SVM = "scikit-learn", "the files of MNIST", "the files of ijcnn1"
_NPM = "the speeches of npm"
_ENTRIES = (
    Entry("worst-case", "the instance of Theorem 4, where ITD ends at a floor", 2, 2, 0,
          lambda seed: worst_case()),  # nothing in it is random
    *(
        Entry(f"quadratic-{kappa}", f"a quadratic with κ = {kappa}, all in closed form", 50, 500, 0,
              partial(_quadratic, kappa))
        for kappa in (4, 16, 64, 256, 1024)
    ),
    Entry("sampled-quadratic", "the quadratic with κ = 16 as a mean over samples, closed form",
          100, 100, 1024, lambda seed: sampled_quadratic(16, p=100, q=100, seed=seed)),
    Entry("log-cosh", "quadratics with log cosh: ρ > 0, all constants chosen, κ = 10", 50, 200, 0,
          lambda seed: log_cosh(10.0, p=50, q=200, terms=200, seed=seed)),
    Entry("nonconvex", "a robust, nonconvex outer loss on a quadratic, κ = 10", 50, 500, 0,
          lambda seed: robust_quadratic(10.0, p=50, q=500, seed=seed)),
    Entry("ridge", "ridge regression with a penalty per feature, in closed form", 200, 200, 300,
          partial(_ridge, 1.0)),
    Entry("badly-scaled", "ridge with features from 1/100 to 100 in size", 200, 200, 300,
          partial(_ridge, 100.0)),
    Entry("logistic", "logistic regression with a penalty per feature", 200, 200, 500, _logistic),
    Entry("logistic-digits", "the same for ten classes, on digits", 65, 650, 1000,
          partial(_penalties, _digits), _LEARN),
    Entry("ijcnn1", "logistic regression with a penalty per feature, on ijcnn1", 22, 22, 49_990,
          _ijcnn1, _SVM),
    Entry("representation", "linear hyper-representation, as in Table 3", 8192, 128, 500,
          _representation),
    Entry("network-digits", "hyper-representation by a network of 32 units, on digits",
          2080, 320, 1000, _network, _LEARN),
    Entry("penalty-digits", "softmax regression with one penalty, on digits", 1, 650, 1000,
          partial(_softmax_ridge, _digits), _LEARN),
    Entry("cleaning-digits", "data cleaning, 30 % of the labels redrawn, on digits",
          1000, 650, 1000, partial(_cleaning, _digits, 0.3), _LEARN),
    Entry("penalty-mnist", "softmax regression with one penalty, on MNIST (section 6)",
          1, 7850, 20_000, partial(_softmax_ridge, _mnist), _IDX),
    Entry("cleaning-mnist", "data cleaning, 10 % of the labels redrawn, on MNIST",
          20_000, 7850, 20_000, partial(_cleaning, _mnist, 0.1), _IDX),
    Entry("mixture-fragments", "which of four languages to train on, for English text",
          4, 2214, 2221, _fragments),
    Entry("mixture-speeches", "which years of speeches to train on, for those since 1990",
          8, 2214, 36_000, _speeches, _NPM),
    Entry("distillation-digits", "ten learned images to train on instead of a thousand digits",
          640, 640, 0, partial(_distillation, _digits), _LEARN),
    Entry("distillation-mnist", "ten learned images to train on instead of MNIST",
          7840, 7840, 0, partial(_distillation, _mnist), _IDX),
)  # fmt: skip
