"""Hyper-representation by a neural network: its features are learned, its last layer solved for."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from biloop.data.samples import Samples
from biloop.problem import Problem
from biloop.problems import classification
from biloop.problems.classification import mean_cross_entropy
from biloop.problems.inputs import Pair, Vector, check_positive, labelled, precision, with_targets

Layers = list[dict[str, Array]]


@dataclass(frozen=True, eq=False)
class HyperNetwork:
    """A network x whose features h(a; x) suit a linear head y.

    g(x, y) = (1/n) Σ_i ℓ_i(y · h(a_i; x)) + γ/2 ‖y‖²      over the training samples
    f(x, y) = mean of ℓ over the validation samples

    x is a list of layers {"A": …, "b": …}, each z ↦ tanh(Az + b). For labels y is (classes, width)
    and ℓ the cross entropy; for real targets y is a vector and ℓ half the squared error. As the
    features lie in (−1, 1), the eigenvalues of ∇²_y g lie in [γ, width + γ]. Φ is not convex.
    """

    gamma: float
    problem: Problem
    x0: Layers
    y0: Float[Array, " width"] | Float[Array, "classes width"]

    def loss(self, x: Layers, y: Array, samples: Pair) -> Float[Array, ""]:
        """The mean of ℓ on any samples."""
        loss = _mean_square if y.ndim == 1 else _mean_entropy
        return loss(x, y, jnp.asarray(samples[0], y.dtype), jnp.asarray(samples[1]))

    def accuracy(self, x: Layers, y: Array, samples: Samples) -> Float[Array, ""]:
        """The share of any samples that network and head label rightly."""
        if y.ndim == 1:
            raise ValueError("accuracy needs labels, and this problem was made for real targets.")
        return classification.accuracy(
            y, (features(x, jnp.asarray(samples.X, y.dtype)), samples.labels)
        )

    def minimiser(self, x: Layers) -> Vector:
        """y*(x) = (ZᵀZ/n + γ)⁻¹ Zᵀt/n for real targets t and features Z; double precision."""
        if self.y0.ndim == 2:
            raise ValueError("The minimiser has a closed form for real targets, not for labels.")
        X, t = (np.asarray(part, np.float64) for part in self.problem.inner_data[:2])
        Z = _in_double(x, X)
        return np.linalg.solve(Z.T @ Z / len(t) + self.gamma * np.eye(Z.shape[1]), Z.T @ t / len(t))

    def value(self, x: Layers) -> float:
        """Φ(x) = f(x, y*(x)) for real targets; double precision."""
        V, s = (np.asarray(part, np.float64) for part in self.problem.outer_data)
        return float(0.5 * np.mean((_in_double(x, V) @ self.minimiser(x) - s) ** 2))


def hyper_network(
    train: Pair,
    validation: Pair,
    *,
    classes: int | None = 10,
    widths: tuple[int, ...] = (32,),
    gamma: float = 0.1,
    seed: int = 0,
    dtype: str | None = None,
) -> HyperNetwork:
    """The problem for hidden layers of these widths; `classes=None` is for real targets.

    The weights of a layer start normal with variance 1 / inputs, its offsets and y at 0.

    Parameters
    ----------
    train, validation : pairs of arrays
        Samples (n, d), and labels or targets (n,).
    classes : int or None
        How many; None for real targets.
    widths : tuple of int
        Of the hidden layers.
    gamma : number
        γ, greater than 0.
    seed : int
        Of the weights to start from.
    dtype : str, optional
        "float32" or "float64"; by default what JAX has.

    Returns
    -------
    HyperNetwork
        `problem`, `x0`, `y0`.

    Examples
    --------
    >>> halves = (X[:24], t[:24]), (X[24:], t[24:])
    >>> found = bl.problems.hyper_network(*halves, classes=None, widths=(8, 4))
    >>> [layer["A"].shape for layer in found.x0]
    [(8, 3), (4, 8)]
    """
    if not widths or min(widths) < 1:
        raise ValueError(f"widths must be one positive number or more, got {widths}.")
    check_positive(gamma, "gamma")
    real = precision(train[0], dtype)

    def array(value: ArrayLike) -> Array:
        return jnp.asarray(value, real)

    if classes is None:
        inner, outer, shape = _inner_square, _mean_square, widths[-1:]
        X, t, V, s = map(array, with_targets(train, validation))
        samples, others = (X, t), (V, s)
    else:
        inner, outer, shape = _inner_entropy, _mean_entropy, (classes, widths[-1])
        samples, others = labelled(train, validation, classes, dtype)
    rng = np.random.default_rng(seed)
    sizes = (samples[0].shape[1], *widths)
    return HyperNetwork(
        gamma=gamma,
        problem=Problem(inner, outer, inner_data=(*samples, array(gamma)), outer_data=others),
        x0=[
            {"A": array(rng.normal(size=(n, m)) / np.sqrt(m)), "b": array(np.zeros(n))}
            for m, n in pairwise(sizes)
        ],
        y0=array(np.zeros(shape)),
    )


def features(x: Layers, X: Any, tanh: Callable[[Any], Any] = jnp.tanh) -> Any:
    """h(a; x) for the rows a of X."""
    for layer in x:
        X = tanh(X @ layer["A"].T + layer["b"][None, :])
    return X


def _in_double(x: Layers, X: Any) -> Any:
    double = [{name: np.asarray(part, np.float64) for name, part in layer.items()} for layer in x]
    return features(double, X, np.tanh)  # type: ignore[arg-type]


def _mean_square(x: Layers, y: Array, X: Array, t: Array) -> Array:
    return 0.5 * jnp.mean((features(x, X) @ y - t.astype(y.dtype)) ** 2)


def _mean_entropy(x: Layers, W: Array, X: Array, labels: Array) -> Array:
    return mean_cross_entropy(W, features(x, X), labels)


def _inner_square(x: Layers, y: Array, X: Array, t: Array, gamma: Array) -> Array:
    return _mean_square(x, y, X, t) + 0.5 * gamma * jnp.sum(y**2)


def _inner_entropy(x: Layers, W: Array, X: Array, labels: Array, gamma: Array) -> Array:
    return _mean_entropy(x, W, X, labels) + 0.5 * gamma * jnp.sum(W**2)
