"""Labelled samples as plain arrays, and what is drawn from them: splits and label noise."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Samples(NamedTuple):
    """Rows of features with one class label each."""

    X: np.ndarray
    """(n, d) float32."""
    labels: np.ndarray
    """(n,) int32, in 0, …, classes − 1."""


class Split(NamedTuple):
    """The published training and test samples of a data set."""

    train: Samples
    test: Samples


def split(samples: Samples, sizes: Sequence[int], seed: int) -> tuple[Samples, ...]:
    """Disjoint random parts of these sizes; samples beyond their sum are left out.

    Equal seeds give equal parts.

    Parameters
    ----------
    samples : Samples
    sizes : sequence of int
        Of the parts.
    seed : int

    Examples
    --------
    >>> train, rest = bl.data.split(bl.data.digits(), (1000, 500), seed=0)
    >>> len(train.labels), len(rest.labels)
    (1000, 500)
    """
    n = len(samples.labels)
    if len(samples.X) != n:
        raise ValueError(
            f"X and labels must have one row per sample, got {len(samples.X)} and {n}."
        )
    if any(size < 0 for size in sizes):
        raise ValueError(f"sizes must not be negative, got {list(sizes)}.")
    if sum(sizes) > n:
        raise ValueError(f"sizes {list(sizes)} add up to {sum(sizes)}, but there are {n} samples.")
    order = np.random.default_rng(seed).permutation(n)
    ends = np.cumsum(sizes, dtype=int)
    parts = (order[end - size : end] for end, size in zip(ends, sizes, strict=True))
    return tuple(Samples(samples.X[part], samples.labels[part]) for part in parts)


def noisy_labels(
    labels: np.ndarray, fraction: float, classes: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Labels with round(fraction · n) of them drawn anew, and which ones those are.

    A new label is uniform over all classes, so that 1 / classes of the redrawn ones stay right by
    chance. The noise is drawn once: the same seed gives the same labels at every visit.

    Parameters
    ----------
    labels : array of int
    fraction : number
        Of labels to draw anew.
    classes : int
    seed : int

    Examples
    --------
    >>> labels, drawn = bl.data.noisy_labels(np.zeros(10, int), 0.4, classes=3, seed=0)
    >>> int(drawn.sum())
    4
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"labels must be a vector of integers, got shape {labels.shape} of {labels.dtype}."
        )
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must be between 0 and 1, got {fraction}.")
    if outside := labels[(labels < 0) | (labels >= classes)].tolist():
        raise ValueError(f"labels must be in 0, …, {classes - 1}, got {outside[0]}.")
    rng = np.random.default_rng(seed)
    redrawn = rng.permutation(len(labels))[: round(fraction * len(labels))]
    noisy, mask = labels.astype(np.int32), np.zeros(len(labels), bool)
    noisy[redrawn] = rng.integers(classes, size=len(redrawn))
    mask[redrawn] = True
    return noisy, mask


def with_bias(X: np.ndarray) -> np.ndarray:
    """X with a last column of ones: the weights of this feature are the intercepts.

    Parameters
    ----------
    X : array (n, d)

    Examples
    --------
    >>> bl.data.with_bias(np.zeros((5, 3))).shape
    (5, 4)
    """
    if X.ndim != 2:
        raise ValueError(f"X must be a matrix with a row per sample, got shape {X.shape}.")
    return np.concatenate([X, np.ones((len(X), 1), X.dtype)], axis=1)
