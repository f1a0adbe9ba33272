"""Distillation: a few learned samples, such that a model trained on them does well on all."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from biloop.data.samples import Samples
from biloop.problem import Problem
from biloop.problems import classification
from biloop.problems.classification import aligned, cross_entropy, mean_cross_entropy
from biloop.problems.inputs import check_positive, labelled


@dataclass(frozen=True, eq=False)
class Distillation:
    """x holds a few samples with given labels; softmax regression is trained on them alone.

    g(x, W) = mean over the learned samples of CE(W) + penalty ‖W‖²
    f(x, W) = mean CE over the real samples

    The inner problem sees all learned samples in each step: only f has rows to draw, e.g. with
    batch=(None, 128). The smallest eigenvalue of ∇²_W g is 2·penalty everywhere, the largest at
    most ½ λ_max(xᵀx/samples) + 2·penalty.

    Wang, Zhu, Torralba and Efros, https://arxiv.org/abs/1811.10959.
    """

    problem: Problem
    x0: Float[Array, "s d"]
    y0: Float[Array, "c d"]
    labels: Int[Array, " s"]
    """Of the learned samples."""

    def loss(self, W: Float[Array, "c d"], samples: Samples) -> Float[Array, ""]:
        """The mean cross entropy of W on any samples."""
        return classification.loss(W, samples)

    def accuracy(self, W: Float[Array, "c d"], samples: Samples) -> Float[Array, ""]:
        """The share of any samples that W labels rightly."""
        return classification.accuracy(W, samples)


def distillation(
    samples: Samples,
    *,
    learned: int = 10,
    classes: int = 10,
    penalty: float = 1e-2,
    seed: int = 0,
    dtype: str | None = None,
) -> Distillation:
    """The problem on these samples, from as many of them, drawn at random with equal classes.

    Parameters
    ----------
    samples : Samples
        The real ones.
    learned : int
        How many are learned.
    classes : int
        How many; each has as many learned samples.
    penalty : number
        Of ‖W‖², greater than 0.
    seed : int
        Of the samples to start from.
    dtype : str, optional
        "float32" or "float64"; by default what JAX has.

    Returns
    -------
    Distillation
        `problem`, `x0`, `y0` and `labels`.

    Examples
    --------
    >>> bl.problems.distillation(bl.data.digits(), learned=20).x0.shape
    (20, 64)
    """
    check_positive(penalty, "penalty")
    if learned < classes or learned % classes:
        raise ValueError(f"learned must be a multiple of classes = {classes}, got {learned}.")
    _, (X, labels) = labelled(samples, samples, classes, dtype)
    rng, known = np.random.default_rng(seed), np.asarray(labels)
    per_class = learned // classes
    chosen = [_some(rng, np.flatnonzero(known == c), per_class, c) for c in range(classes)]
    kept = jnp.asarray(np.repeat(np.arange(classes), per_class), jnp.int32)
    fixed = {"labels": kept, "penalty": jnp.asarray(penalty, X.dtype)}
    return Distillation(
        problem=Problem(_inner, _outer, inner_data=(fixed,), outer_data=(aligned(X), labels)),
        x0=X[np.concatenate(chosen)],
        y0=jnp.zeros((classes, X.shape[1]), X.dtype),
        labels=kept,
    )


def _some(rng: np.random.Generator, rows: np.ndarray, count: int, label: int) -> np.ndarray:
    if len(rows) < count:
        raise ValueError(f"There are {len(rows)} samples of class {label}, fewer than {count}.")
    return rng.permutation(rows)[:count]


def _inner(x: Array, W: Array, fixed: PyTree) -> Array:
    losses = cross_entropy(x @ W.T, fixed["labels"])
    return jnp.mean(losses) + fixed["penalty"] * jnp.sum(W**2)


def _outer(x: Array, W: Array, X: Array, labels: Array) -> Array:
    return mean_cross_entropy(W, X, labels)
