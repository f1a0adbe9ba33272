"""What comes into a problem: samples as arrays, or one sentence about what does not fit."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.floating]
Matrix = NDArray[np.floating]
Pair = tuple[ArrayLike, ArrayLike]
"""A matrix with a row per sample, and the label or the target of each: `biloop.data.Samples`."""

AnyArray = Array | NDArray[Any]
Labelled = tuple[Float[Array, "n d"], Int[Array, " n"]]


def labelled(
    train: Pair, validation: Pair, classes: int, dtype: str | None
) -> tuple[Labelled, Labelled]:
    """Training and validation samples with labels in 0, …, classes − 1."""
    pairs = {"train": _arrays(train), "validation": _arrays(validation)}
    for name, (X, labels) in pairs.items():
        _check_samples(X, labels, name)
        if not jnp.issubdtype(labels.dtype, jnp.integer):
            raise TypeError(f"The labels of {name} must be integers, got {labels.dtype}.")
        # A label that names no class would pass as a score of 0.
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= classes:
            raise ValueError(
                f"{name} has the label {low if low < 0 else high}; with classes={classes} the "
                f"labels are 0, …, {classes - 1}."
            )
    _check_features(*(X for X, _ in pairs.values()))
    real = precision(train[0], dtype)
    inner, outer = (
        (jnp.asarray(X, real), jnp.asarray(labels, jnp.int32)) for X, labels in pairs.values()
    )
    return inner, outer


def with_targets(train: Pair, validation: Pair) -> tuple[Matrix, Vector, Matrix, Vector]:
    """Training and validation samples with real targets, in double precision for closed forms."""
    X, t, V, s = (np.asarray(part, np.float64) for part in (*train, *validation))
    _check_samples(X, t, "train")
    _check_samples(V, s, "validation")
    _check_features(X, V)
    return X, t, V, s


def precision(X: ArrayLike, dtype: str | None) -> np.dtype:
    """The dtype of a problem: the one asked for, else that of its samples if that is floating."""
    if dtype is not None:
        return np.dtype(dtype)
    own = _array(X).dtype
    # Through an array, which takes double precision for what JAX is set to without a warning.
    return jnp.asarray(np.empty(0, own if jnp.issubdtype(own, jnp.floating) else float)).dtype


def check_positive(value: float, name: str) -> None:
    """Refuse a number that is not greater than 0, or not finite."""
    if not 0 < value < np.inf:
        raise ValueError(f"{name} must be a finite number greater than 0, got {value}.")


def check_finite(value: float, name: str) -> None:
    """Refuse a number that is not finite."""
    if not np.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}.")


def _arrays(pair: Pair) -> tuple[AnyArray, AnyArray]:
    return _array(pair[0]), _array(pair[1])


def _array(part: ArrayLike) -> AnyArray:
    """Arrays stay where they are: those of JAX may lie on many devices."""
    return part if isinstance(part, Array) else np.asarray(part)


def _check_samples(X: AnyArray, targets: AnyArray, name: str) -> None:
    if X.ndim != 2 or targets.shape != X.shape[:1] or X.size == 0:
        raise ValueError(
            f"{name} must be a matrix with a row per sample and a vector with an entry per sample, "
            f"got shapes {X.shape} and {targets.shape}."
        )
    for part in (X, targets):
        finite = jnp.isfinite if isinstance(part, Array) else np.isfinite
        if not finite(part).all():
            raise ValueError(f"{name} has values that are not finite.")


def _check_features(X: AnyArray, V: AnyArray) -> None:
    if X.shape[1] != V.shape[1]:
        raise ValueError(f"train has {X.shape[1]} features, but validation {V.shape[1]}.")
