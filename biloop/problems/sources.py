"""Which sources to train on: weights of data sets, learned from a few samples of what is wanted."""

from collections.abc import Sequence
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
class Mixture:
    """A share softmax(x)_s for each source of the training samples of softmax regression.

    g(x, W) = Σ_s softmax(x)_s · mean of CE(W) over source s + penalty ‖W‖²
    f(x, W) = mean CE over samples of the target

    As a mean over all n rows each one has the weight n/n_s softmax(x)_s. The smallest eigenvalue of
    ∇²_W g is 2·penalty everywhere, and the largest at most ½ max_s λ_max(X_sᵀX_s/n_s) + 2·penalty.

    Grangier, Ablin and Hannun, https://arxiv.org/abs/2311.11973, with softmax regression as model.
    """

    problem: Problem
    x0: Float[Array, " s"]
    y0: Float[Array, "c d"]

    def shares(self, x: Float[Array, " s"]) -> NDArray[np.floating]:
        """softmax(x), how much of the training each source is."""
        return np.asarray(jax.nn.softmax(x))

    def loss(self, W: Float[Array, "c d"], samples: Samples) -> Float[Array, ""]:
        """The mean cross entropy of W on any samples."""
        return classification.loss(W, samples)

    def accuracy(self, W: Float[Array, "c d"], samples: Samples) -> Float[Array, ""]:
        """The share of any samples that W labels rightly."""
        return classification.accuracy(W, samples)


def mixture(
    sources: Sequence[Samples],
    target: Samples,
    *,
    classes: int,
    penalty: float = 1e-3,
    seed: int = 0,
    dtype: str | None = None,
) -> Mixture:
    """The problem on these sources, from equal shares and W = 0.

    Rows are put into an order of the `seed`, so that blocks of them have rows of all sources.

    Parameters
    ----------
    sources : sequence of Samples
        A share of each is learned.
    target : Samples
        What the model is judged by.
    classes : int
        How many.
    penalty : number
        Of ‖W‖², greater than 0.
    seed : int
        Of the order of rows.
    dtype : str, optional
        "float32" or "float64"; by default what JAX has.

    Returns
    -------
    Mixture
        `problem`, `x0`, `y0`.

    Examples
    --------
    >>> one, two, target = bl.data.split(bl.data.digits(), (300, 200, 200), seed=0)
    >>> bl.problems.mixture([one, two], target, classes=10).x0.shape
    (2,)
    """
    check_positive(penalty, "penalty")
    if len(sources) < 2:
        raise ValueError(f"A mixture needs at least two sources, got {len(sources)}.")
    pairs = [labelled(each, target, classes, dtype) for each in sources]
    sizes = np.array([len(labels) for (_, labels), _ in pairs])
    order = np.random.default_rng(seed).permutation(sizes.sum())
    X = jnp.concatenate([X for (X, _), _ in pairs])[order]
    labels = jnp.concatenate([labels for (_, labels), _ in pairs])[order]
    source = np.repeat(np.arange(len(sizes)), sizes)[order]
    V, wanted = pairs[0][1]
    inner_data = (
        aligned(X),
        labels,
        jnp.asarray(source, jnp.int32),
        jnp.asarray(sizes.sum() / sizes[source], X.dtype),
        jnp.asarray(penalty, X.dtype),
    )
    return Mixture(
        problem=Problem(_inner, _outer, inner_data, (aligned(V), wanted)),
        x0=jnp.zeros(len(sizes), X.dtype),
        y0=jnp.zeros((classes, X.shape[1]), X.dtype),
    )


def _inner(
    x: Array, W: Array, X: Array, labels: Array, source: Array, rate: Array, penalty: Array
) -> Array:
    # A comparison instead of x[source]: its transpose is a sum, where that of a gather scatters.
    chosen = source[:, None] == jnp.arange(len(x), dtype=source.dtype)[None, :]
    weights = rate * jnp.sum(jnp.where(chosen, jax.nn.softmax(x)[None, :], 0), axis=1)
    return jnp.mean(weights * cross_entropy(scores(W, X), labels)) + penalty * jnp.sum(W**2)


def _outer(x: Array, W: Array, X: Array, labels: Array) -> Array:
    return mean_cross_entropy(W, X, labels)
