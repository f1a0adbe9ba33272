"""Linear classifiers: scores X Wᵀ laid out so that their derivatives are fast, and losses of them.

A gradient or a Hessian product of a loss of scores is one product with X and one with Xᵀ; all the
rest is small. The weights W are (classes, features), a row per class; docs/problems.md has times.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from biloop.compilation import on_cpu
from biloop.problems.inputs import Pair

ALIGNMENT = {"cpu": 4, "other": 16}
"""Rows of samples are padded to a multiple of this many features: 16 or 64 bytes if single."""


def aligned(X: Float[Array, "n d"]) -> Float[Array, "n e"]:
    """X with some columns of zeros, so that all its rows begin where vectors load fast."""
    multiple = ALIGNMENT["cpu" if on_cpu() else "other"]
    return jnp.pad(X, ((0, 0), (0, -X.shape[1] % multiple)))


def scores(W: Float[Array, "c d"], X: Float[Array, "n e"]) -> Float[Array, "n c"]:
    """X Wᵀ, a row per sample; X may be `aligned`.

    Written as (W Xᵀ)ᵀ, which compiles to X Wᵀ and, vectorised over many W, to one wide product.
    """
    padding = X.shape[1] - W.shape[1]
    if not 0 <= padding < max(ALIGNMENT.values()):
        raise ValueError(f"W is for {W.shape[1]} features, but the samples have {X.shape[1]}.")
    W = jnp.pad(W, ((0, 0), (0, padding)))
    return jnp.tensordot(W, X, axes=(1, 1)).T if on_cpu() else _by_segments(W, X)


def _by_segments(W: Float[Array, "c e"], X: Float[Array, "n e"]) -> Float[Array, "n c"]:
    """X Wᵀ with a copy of W for each segment of samples.

    The transpose, Rᵀ X, sums over all samples into few numbers, which leaves most of a GPU idle. By
    segments it is many products at once and one sum. The number of segments is a multiple of that
    of the devices, so that data spread over them stay where they are.
    """
    n, devices = len(X), jax.device_count()
    share = n // devices if n % devices == 0 else n
    segments = n // share * max(s for s in range(1, 65) if share % s == 0)
    copies = jnp.broadcast_to(W, (segments, *W.shape))
    rows = X.reshape(segments, n // segments, -1)
    return jnp.einsum("snd,scd->snc", rows, copies).reshape(n, -1)


def cross_entropy(scores: Float[Array, "n c"], labels: Int[Array, " n"]) -> Float[Array, " n"]:
    """−log softmax(scores)_label of each sample."""
    classes = jnp.arange(scores.shape[1], dtype=labels.dtype)
    chosen = jnp.where(labels[:, None] == classes[None, :], scores, 0)
    return jax.nn.logsumexp(scores, axis=1) - jnp.sum(chosen, axis=1)


def mean_cross_entropy(
    W: Float[Array, "c d"], X: Float[Array, "n d"], labels: Int[Array, " n"]
) -> Float[Array, ""]:
    """The mean over the samples of −log softmax(W x_i)_label."""
    return jnp.mean(cross_entropy(scores(W, X), labels))


def loss(W: Float[Array, "c d"], samples: Pair) -> Float[Array, ""]:
    """The mean cross entropy of W on samples, in the precision of W."""
    return _loss(W, *_fitting(W, samples))


def accuracy(W: Float[Array, "c d"], samples: Pair) -> Float[Array, ""]:
    """The share of the samples whose label has the largest score."""
    return _accuracy(W, *_fitting(W, samples))


_loss = jax.jit(mean_cross_entropy)


@jax.jit
def _accuracy(W: Array, X: Array, labels: Array) -> Array:
    guess = jnp.argmax(scores(W, X), axis=1).astype(labels.dtype)
    return jnp.mean(guess == labels, dtype=W.dtype)


def _fitting(W: Array, samples: Pair) -> tuple[Array, Array]:
    """Samples of just the features of W: here another column is a mistake, not padding."""
    X, labels = jnp.asarray(samples[0], W.dtype), jnp.asarray(samples[1])
    if X.ndim != 2 or X.shape[1] != W.shape[1] or labels.shape != X.shape[:1]:
        raise ValueError(
            f"W is for {W.shape[1]} features; the samples have shape {X.shape}, their labels "
            f"{labels.shape}."
        )
    return X, labels


def first_weights(
    X: Float[Array, "n d"], classes: int, *, scale: float, seed: int
) -> Float[Array, "c d"]:
    """Where W starts: normal with this standard deviation, or 0."""
    if not 0 <= scale < np.inf:
        raise ValueError(f"scale must be a finite number of at least 0, got {scale}.")
    normal = np.random.default_rng(seed).normal(size=(classes, X.shape[1]))
    return jnp.asarray(scale * normal, X.dtype)
