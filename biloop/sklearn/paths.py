"""Ridge regression for all common factors of its penalties at once, in closed form.

    min_w Σ_i s_i (w·a_i + b − t_i)² + φ Σ_j r_j w_j²        w = B (Λ + φ)⁻¹ Bᵀ Σ_i s_i ã_i t̃_i

with ã, t̃ from their weighted means, Λ the eigenvalues of R^−½ (Σ s ã ãᵀ) R^−½ and B = R^−½ Q their
vectors. The sample i changes its own fit by h_i = s_i (1/Σs + ã_iᵀ B (Λ + φ)⁻¹ Bᵀ ã_i), so that the
fit without it misses it by e_i / (1 − h_i): D. Allen, The relationship between variable selection
and data augmentation (1974).
"""

from typing import NamedTuple

import numpy as np

from biloop.sklearn.family import Matrix, Samples

_EPS = float(np.finfo(float).eps)


class Path(NamedTuple):
    """The fits to some samples: from where samples are counted, B, Λ and Bᵀ Σ s ã t̃."""

    middle: tuple[Matrix, float]
    basis: Matrix
    spectrum: Matrix
    moments: Matrix


def centre(samples: Samples, intercept: bool) -> tuple[Matrix, float]:
    """The weighted means of features and targets, or zeros."""
    X, t, s = samples
    if not intercept:
        return np.zeros(X.shape[1]), 0.0
    return s @ X / s.sum(), float(s @ t / s.sum())


def path(samples: Samples, ratios: Matrix, intercept: bool) -> Path:
    """The fits for all factors φ of the penalties `ratios`."""
    X, t, s = (part[samples.weights > 0] for part in samples)
    middle = centre(Samples(X, t, s), intercept)
    root = 1 / np.sqrt(ratios)
    A = np.sqrt(s)[:, None] * (X - middle[0]) * root
    if len(A) >= len(root):
        spectrum, Q = np.linalg.eigh(A.T @ A)
    else:  # the same eigenvalues but for zeros, of a smaller matrix
        spectrum, U = np.linalg.eigh(A @ A.T)
        there = spectrum > len(A) * _EPS * max(spectrum[-1:].sum(), 0.0)
        spectrum, U = spectrum[there], U[:, there]
        Q = A.T @ U / np.sqrt(spectrum)
    moments = Q.T @ (A.T @ (np.sqrt(s) * (t - middle[1])))
    return Path(middle, root[:, None] * Q, np.maximum(spectrum, 0.0), moments)


def coefficients(fits: Path, alpha: float) -> Matrix:
    """w for one factor."""
    return fits.basis @ (fits.moments / (fits.spectrum + alpha))


def errors(fits: Path, samples: Samples, alphas: Matrix) -> Matrix:
    """By how much each of the samples is missed: a row for each factor."""
    along = fits.moments / (fits.spectrum + alphas[:, None])
    return samples.t - fits.middle[1] - along @ ((samples.X - fits.middle[0]) @ fits.basis).T


def left_out(fits: Path, samples: Samples, alphas: Matrix, intercept: bool) -> Matrix:
    """The same for fits without the sample, which `fits` know of all."""
    squares = ((samples.X - fits.middle[0]) @ fits.basis) ** 2
    own = (1 / (fits.spectrum + alphas[:, None])) @ squares.T
    own = samples.weights * (own + (1 / samples.weights.sum() if intercept else 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        return errors(fits, samples, alphas) / (1 - own)
