"""Random samples for problems that need no files: few features matter, and their scales differ."""

import numpy as np
from numpy.typing import NDArray

from biloop.data.samples import Samples

Targets = tuple[NDArray[np.floating], NDArray[np.floating]]


def sparse_regression(
    samples: int, features: int, *, relevant: int, noise: float, spread: float = 1.0, seed: int = 0
) -> tuple[Targets, Targets]:
    """Training and validation samples with targets Xw + noise for a w with few nonzero entries.

    Parameters
    ----------
    samples, features : int
        The rows of each of the two, and the entries of w.
    relevant : int
        How many entries of w are ±1; the others are 0.
    noise : number
        The standard deviation of what is added to Xw.
    spread : number
        The standard deviations of the features run from 1/spread to spread.
    seed : int
        Of the random numbers.

    Examples
    --------
    >>> train, validation = bl.problems.sparse_regression(60, 40, relevant=8, noise=1.0)
    >>> made = bl.problems.ridge(train, validation)
    >>> train[0].shape, made.x0.shape
    ((60, 40), (40,))
    """
    rng = np.random.default_rng(seed)
    scale, w = _scales(features, spread), _sparse(rng, features, relevant)

    def draw() -> Targets:
        Z = rng.normal(size=(samples, features))
        return Z * scale, Z @ w + noise * rng.normal(size=samples)

    return draw(), draw()


def sparse_classes(
    samples: int, features: int, *, relevant: int, noise: float, seed: int = 0
) -> tuple[Samples, Samples]:
    """Training and validation samples of two classes: the sign of Xw + noise, few w_j nonzero.

    Parameters
    ----------
    samples, features, relevant, noise, seed
        As for `sparse_regression`.

    Examples
    --------
    >>> train, validation = bl.problems.sparse_classes(100, 40, relevant=8, noise=1.0)
    >>> made = bl.problems.logistic(train, validation)
    """
    (X, t), (V, s) = sparse_regression(samples, features, relevant=relevant, noise=noise, seed=seed)
    return Samples(X, (t > 0).astype(np.int32)), Samples(V, (s > 0).astype(np.int32))


def _scales(features: int, spread: float) -> NDArray[np.floating]:
    return np.geomspace(1 / spread, spread, features)


def _sparse(rng: np.random.Generator, features: int, relevant: int) -> NDArray[np.floating]:
    """±1 in `relevant` random places, 0 elsewhere."""
    w = np.zeros(features)
    w[rng.permutation(features)[:relevant]] = rng.choice([-1.0, 1.0], relevant)
    return w
