"""Data hyper-cleaning: which training labels to trust, learned from a few clean samples."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from biloop.data.samples import Samples
from biloop.problem import Problem
from biloop.problems import classification
from biloop.problems.classification import aligned, cross_entropy, mean_cross_entropy, scores
from biloop.problems.inputs import check_positive, labelled


@dataclass(frozen=True, eq=False)
class DataCleaning:
    """A weight σ(x_i) for each training sample of softmax regression.

    g(x, W) = (1/n) Σ_i σ(x_i) CE_i(W) + penalty ‖W‖²       CE_i = −log softmax(W a_i)_label
    f(x, W) = mean CE over the validation samples

    The smallest eigenvalue of ∇²_W g is 2·penalty everywhere (adding a vector to all rows of W
    changes no CE), the largest is at most ½ λ_max(XᵀX/n) + 2·penalty. ∂Φ/∂x_i is of the order
    of 1/n, so outer step sizes have to be of the order of n for x to move.

    Franceschi, Donini, Frasconi and Pontil, https://arxiv.org/abs/1703.01785.
    """

    problem: Problem
    x0: Float[Array, " n"]
    y0: Float[Array, "c d"]

    def weights(self, x: Float[Array, " n"]) -> NDArray[np.floating]:
        """σ(x_i), how far each training sample is trusted."""
        return np.asarray(jax.nn.sigmoid(x))

    def loss(self, W: Float[Array, "c d"], samples: Samples) -> Float[Array, ""]:
        """The mean cross entropy of W on any samples."""
        return classification.loss(W, samples)

    def accuracy(self, W: Float[Array, "c d"], samples: Samples) -> Float[Array, ""]:
        """The share of any samples that W labels rightly."""
        return classification.accuracy(W, samples)


def data_cleaning(
    train: Samples,
    validation: Samples,
    *,
    classes: int = 10,
    penalty: float = 1e-3,
    scale: float = 0.0,
    seed: int = 0,
    dtype: str | None = None,
) -> DataCleaning:
    """The problem on these samples, from x = 0 and normal weights W of this `scale`.

    Parameters
    ----------
    train, validation : Samples
        Samples of which some have a wrong label, and samples that have not.
    classes : int
        How many.
    penalty : number
        Of ‖W‖², greater than 0.
    scale : number
        Of random weights to start from; 0 starts at 0.
    seed : int
        Of these weights.
    dtype : str, optional
        "float32" or "float64"; by default what JAX has.

    Returns
    -------
    DataCleaning
        `problem`, `x0`, `y0`.

    Examples
    --------
    >>> train, validation, test = bl.data.split(bl.data.digits(), (300, 200, 200), seed=0)
    >>> labels, wrong = bl.data.noisy_labels(train.labels, 0.4, classes=10, seed=0)
    >>> found = bl.problems.data_cleaning(train._replace(labels=labels), validation)
    >>> found.x0.shape
    (300,)
    """
    check_positive(penalty, "penalty")
    (X, labels), (V, clean) = labelled(train, validation, classes, dtype)
    inner_data = (aligned(X), labels, jnp.asarray(penalty, X.dtype))
    return DataCleaning(
        problem=Problem(_inner, _outer, inner_data, (aligned(V), clean), per_sample=True),
        x0=jnp.zeros(len(X), X.dtype),
        y0=classification.first_weights(X, classes, scale=scale, seed=seed),
    )


def _inner(x: Array, W: Array, X: Array, labels: Array, penalty: Array) -> Array:
    losses = cross_entropy(scores(W, X), labels)
    return jnp.mean(jax.nn.sigmoid(x) * losses) + penalty * jnp.sum(W**2)


def _outer(x: Array, W: Array, X: Array, labels: Array) -> Array:
    return mean_cross_entropy(W, X, labels)
