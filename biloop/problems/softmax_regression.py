"""Softmax regression with one penalty: the hyperparameter of the paper's first experiment."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from biloop.data.samples import Samples
from biloop.problem import Problem
from biloop.problems import classification
from biloop.problems.classification import aligned, mean_cross_entropy
from biloop.problems.inputs import check_finite, labelled


@dataclass(frozen=True, eq=False)
class SoftmaxRidge:
    """The penalty λ = exp(x) of softmax regression, tuned on validation samples.

    g(x, W) = (1/n) Σ_i CE_i(W) + ½ exp(x) ‖W‖²             CE_i = −log softmax(W a_i)_label
    f(x, W) = mean CE over the validation samples

    The smallest eigenvalue of ∇²_W g is exp(x) everywhere (adding a vector to all rows of W changes
    no CE), the largest is at most ½ λ_max(XᵀX/n) + exp(x). The hyperparameter optimization of
    section 6 of the paper, as its text has it.
    """

    problem: Problem
    x0: Float[Array, ""]
    y0: Float[Array, "c d"]

    def penalty(self, x: Float[Array, ""]) -> float:
        """λ = exp(x)."""
        return float(np.exp(x))

    def loss(self, W: Float[Array, "c d"], samples: Samples) -> Float[Array, ""]:
        """The mean cross entropy of W on any samples."""
        return classification.loss(W, samples)

    def accuracy(self, W: Float[Array, "c d"], samples: Samples) -> Float[Array, ""]:
        """The share of any samples that W labels rightly."""
        return classification.accuracy(W, samples)


def softmax_ridge(
    train: Samples,
    validation: Samples,
    *,
    classes: int = 10,
    x0: float = -4.6,
    scale: float = 0.0,
    seed: int = 0,
    dtype: str | None = None,
) -> SoftmaxRidge:
    """The problem on these samples, from λ = exp(x0) and normal weights W of this `scale`.

    Parameters
    ----------
    train, validation : Samples
        Features and labels 0, 1, ….
    classes : int
        How many.
    x0 : number
        The logarithm of the penalty at the start.
    scale : number
        Of random weights to start from; 0 starts at 0.
    seed : int
        Of these weights.
    dtype : str, optional
        "float32" or "float64"; by default what JAX has.

    Returns
    -------
    SoftmaxRidge
        `problem`, `x0`, `y0`.

    Examples
    --------
    >>> train, validation, test = bl.data.split(bl.data.digits(), (300, 200, 200), seed=0)
    >>> bl.problems.softmax_ridge(train, validation).y0.shape
    (10, 64)
    """
    check_finite(x0, "x0, the logarithm of the first penalty,")
    (X, labels), (V, others) = labelled(train, validation, classes, dtype)
    return SoftmaxRidge(
        problem=Problem(
            _inner, _outer, inner_data=(aligned(X), labels), outer_data=(aligned(V), others)
        ),
        x0=jnp.asarray(x0, X.dtype),
        y0=classification.first_weights(X, classes, scale=scale, seed=seed),
    )


def _inner(x: Array, W: Array, X: Array, labels: Array) -> Array:
    return mean_cross_entropy(W, X, labels) + 0.5 * jnp.exp(x) * jnp.sum(W**2)


def _outer(x: Array, W: Array, X: Array, labels: Array) -> Array:
    return mean_cross_entropy(W, X, labels)
