"""Logistic regression with a penalty for each feature, for two classes or more."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from biloop.data.samples import Samples
from biloop.problem import Problem
from biloop.problems import classification
from biloop.problems.classification import aligned, mean_cross_entropy
from biloop.problems.inputs import check_finite, labelled


@dataclass(frozen=True, eq=False)
class Logistic:
    """The penalties exp(x_j) of logistic regression, tuned on validation samples.

    g(x, y) = (1/n) Σ_i ℓ_i(y) + ½ Σ_j exp(x_j) ‖y_j‖²     y_j: the weights of feature j
    f(x, y) = mean of ℓ over the validation samples

    With two classes y is a vector and ℓ_i = log(1 + exp(yᵀa_i)) − label · yᵀa_i; with more it is
    (classes, features) and ℓ_i the cross entropy. The eigenvalues of ∇²_y g are at least
    min_j exp(x_j), and at most s λ_max(XᵀX/n) + max_j exp(x_j) with s = ¼ (two classes) or ½.
    """

    problem: Problem
    x0: Float[Array, " d"]
    y0: Float[Array, " d"] | Float[Array, "c d"]

    def loss(self, y: Float[Array, "..."], samples: Samples) -> Float[Array, ""]:
        """The mean of ℓ for y on any samples."""
        return classification.loss(_weights(y), samples)

    def accuracy(self, y: Float[Array, "..."], samples: Samples) -> Float[Array, ""]:
        """The share of any samples that y labels rightly."""
        return classification.accuracy(_weights(y), samples)


def _weights(y: Array) -> Float[Array, "c d"]:
    """A row per class; the scores of two classes are 0 and yᵀa."""
    return jnp.stack([jnp.zeros_like(y), y]) if y.ndim == 1 else y


def logistic(
    train: Samples,
    validation: Samples,
    *,
    classes: int = 2,
    x0: float = 0.0,
    dtype: str | None = None,
) -> Logistic:
    """The problem on these samples, from penalties exp(x0) and y = 0.

    Parameters
    ----------
    train, validation : Samples
        Features and labels 0, 1, ….
    classes : int
        Two, or more.
    x0 : number
        The logarithm of the penalties at the start.
    dtype : str, optional
        "float32" or "float64"; by default what JAX has.

    Returns
    -------
    Logistic
        `problem`, `x0`, `y0`.

    Examples
    --------
    >>> train, validation, test = bl.data.split(bl.data.digits(), (300, 200, 200), seed=0)
    >>> bl.problems.logistic(train, validation, classes=10).y0.shape
    (10, 64)
    """
    if classes < 2:
        raise ValueError(f"classes must be at least 2, got {classes}.")
    check_finite(x0, "x0, the logarithm of the first penalties,")
    (X, labels), (V, others) = labelled(train, validation, classes, dtype)
    if classes == 2:
        problem = Problem(_inner, _outer, inner_data=(X, labels), outer_data=(V, others))
    else:
        inner_data, outer_data = (aligned(X), labels), (aligned(V), others)
        problem = Problem(_inner_multinomial, _outer_multinomial, inner_data, outer_data)
    d = X.shape[1]
    y0 = jnp.zeros(d if classes == 2 else (classes, d), X.dtype)
    return Logistic(problem, x0=jnp.full(d, x0, X.dtype), y0=y0)


def mean_logistic(y: Array, X: Array, labels: Array) -> Array:
    """The mean of log(1 + exp(yᵀa_i)) − label_i · yᵀa_i."""
    scores = X @ y
    return jnp.mean(jax.nn.softplus(scores) - labels.astype(scores.dtype) * scores)


def _inner(x: Array, y: Array, X: Array, labels: Array) -> Array:
    return mean_logistic(y, X, labels) + 0.5 * jnp.sum(jnp.exp(x) * y**2)


def _outer(x: Array, y: Array, X: Array, labels: Array) -> Array:
    return mean_logistic(y, X, labels)


def _inner_multinomial(x: Array, W: Array, X: Array, labels: Array) -> Array:
    penalty = 0.5 * jnp.sum(jnp.exp(x) * jnp.sum(W**2, axis=0))
    return mean_cross_entropy(W, X, labels) + penalty


def _outer_multinomial(x: Array, W: Array, X: Array, labels: Array) -> Array:
    return mean_cross_entropy(W, X, labels)
