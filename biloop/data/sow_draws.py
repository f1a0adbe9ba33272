"""Linear hyper-representation data as Sow et al. draw them."""

from typing import NamedTuple

import numpy as np

from biloop.data.torch_generator import torch_normal

FEATURES, WIDTH, SAMPLES = 64, 128, 500
NOISE = 0.1


class SowDraws(NamedTuple):
    """Standard normal float32 arrays in the order in which they are drawn, and the targets."""

    H_true: np.ndarray
    """64 × 128, the representation to be found."""
    w_true: np.ndarray
    """128, the linear model on top of it."""
    X_T: np.ndarray
    """500 × 64, training inputs."""
    noise_T: np.ndarray  # noqa: N815
    X_V: np.ndarray
    """500 × 64, validation inputs."""
    noise_V: np.ndarray  # noqa: N815
    w_0: np.ndarray
    """128, where the inner loop starts."""
    H_0: np.ndarray
    """64 × 128, where the outer loop starts."""
    Y_T: np.ndarray
    """X_T H_true w_true + 0.1 noise_T."""
    Y_V: np.ndarray
    """X_V H_true w_true + 0.1 noise_V."""


def sow(seed: int) -> SowDraws:
    """The data of `torch.manual_seed(seed)` in the hyper-representation experiment.

    Y = X H_true w_true + 0.1 noise

    Sow, Ji and Liang: ES-based Jacobian enables faster bilevel optimization,
    https://arxiv.org/abs/2110.07004. Ji et al. use the same data in their Table 3.

    Parameters
    ----------
    seed : int

    Returns
    -------
    SowDraws

    Examples
    --------
    >>> draws = bl.data.sow(0)
    >>> draws.X_T.shape, draws.Y_T.shape
    ((500, 64), (500,))
    """
    draw = torch_normal(seed).normal
    H_true, w_true = draw((FEATURES, WIDTH)), draw((WIDTH,))
    X_T, noise_T = draw((SAMPLES, FEATURES)), draw((SAMPLES,))
    X_V, noise_V = draw((SAMPLES, FEATURES)), draw((SAMPLES,))
    w_0, H_0 = draw((WIDTH,)), draw((FEATURES, WIDTH))
    truth = H_true.astype(np.float64) @ w_true
    # In double precision and then rounded, so that they depend on no order of summation.
    Y_T, Y_V = (
        (X @ truth + NOISE * noise).astype(np.float32)
        for X, noise in ((X_T, noise_T), (X_V, noise_V))
    )
    return SowDraws(H_true, w_true, X_T, noise_T, X_V, noise_V, w_0, H_0, Y_T, Y_V)
