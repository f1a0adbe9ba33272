"""Random matrices with chosen spectra."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]


def definite(rng: np.random.Generator, n: int, low: float, high: float) -> tuple[Array, Array]:
    """Random eigenvectors, and eigenvalues from `low` to `high` spaced geometrically.

    A matrix of one row has the eigenvalue `low`.
    """
    return orthogonal(rng, n), np.geomspace(low, high, n)


def orthogonal(rng: np.random.Generator, n: int) -> Array:
    """A random rotation or reflection of R^n."""
    Q, R = np.linalg.qr(rng.normal(size=(n, n)))
    # The signs of R make the law of Q uniform.
    return Q * np.sign(np.diag(R))


def norm(a: Array) -> float:
    """The largest singular value."""
    return float(np.linalg.norm(a, ord=2))
