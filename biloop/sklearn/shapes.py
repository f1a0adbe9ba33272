"""Sizes to which arrays are filled up, so that data of nearly the same shape share a program.

What is added has no weight: rows of zeros that count nothing, features that are zero and keep
zero coefficients, models that are fitted and judged by nothing, groups without features.
"""

import numpy as np

from biloop.sklearn.family import Folds, Matrix, Samples

_MODELS = 5  # of cross-validation, at least
_FEATURES = 8
_ROWS = 64


def rounded(size: int, least: int) -> int:
    """The next of least · {1, 1¼, 1½, 1¾, 2, 2½, 3, 3½, 4, …}: at most a quarter more."""
    if size <= least:
        return least
    octave = least * 2 ** int(np.floor(np.log2(size / least)))
    return next(octave * q // 4 for q in range(4, 9) if octave * q // 4 >= size)


def features(size: int) -> int:
    """The number of features (or groups of them) that stand for `size`."""
    return rounded(size, _FEATURES)


def rows(size: int) -> int:
    """The number of samples that stand for `size`."""
    return rounded(size, _ROWS)


def filled(array: np.ndarray, *shape: int) -> np.ndarray:
    """The array in the first corner of one of zeros."""
    wider = np.zeros(shape, array.dtype)
    wider[tuple(slice(n) for n in array.shape)] = array
    return wider


def filled_samples(samples: Samples) -> Samples:
    """Samples of no weight and features of zero at the end."""
    n, d = samples.X.shape
    more = rows(n)
    return Samples(
        filled(samples.X, more, features(d)),
        filled(samples.t, more),
        filled(samples.weights, more),
    )


def filled_folds(folds: Folds) -> list[tuple[Matrix, Matrix]]:
    """At least so many models: those added are fitted like the first one and judged by nothing."""
    fitted, judged = folds.pairs[0]
    return [*folds.pairs, *[(fitted, 0 * judged)] * (_MODELS - len(folds.pairs))]
