"""K-fold cross-validation as one problem: y holds the models of all folds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float, PyTree
from numpy.typing import ArrayLike, NDArray

from biloop.problem import Problem
from biloop.problem.variables import as_variable
from biloop.problems.inputs import precision

Loss = Callable[[PyTree, Array, Array], Float[Array, " n"]]
Penalty = Callable[[PyTree, PyTree], Float[Array, ""]]
Folds = int | ArrayLike | Sequence[tuple[ArrayLike, ArrayLike]]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class KFold:
    """The problem, a start for its models, and the samples by which each is judged.

    Leaves of `y0` have a leading axis: a model for each fold, and the one of all samples last if
    `refit` was asked for.
    """

    problem: Problem
    y0: PyTree
    held_out: Mask  # a column per fold


def k_fold(
    loss: Loss,
    penalty: Penalty,
    X: ArrayLike,
    y: ArrayLike,
    *,
    w0: PyTree,
    validation: Loss | None = None,
    folds: Folds = 5,
    sample_weight: ArrayLike | None = None,
    refit: bool = False,
    total: bool = False,
    seed: int = 0,
    dtype: str | None = None,
) -> KFold:
    """The hyperparameters x of a penalty, tuned by cross-validation in one problem.

    g(x, (w_1, …, w_K)) = Σ_k [ mean of ℓ(w_k) over the samples outside of fold k
                                + penalty(x, w_k) ]
    f(x, (w_1, …, w_K)) = mean over all samples i of ℓ_i(w_k),   k the fold that i is in

    So f is the mean over the folds of their validation losses, each weighted by the samples in it:
    folds need not be of one size.

    Parameters
    ----------
    loss : function of (w, X, y)
        The loss of each sample, a vector.
    penalty : function of (x, w)
        What makes a model with hyperparameters x simple; a number.
    X, y : arrays
        A row and an entry for each sample.
    w0 : pytree
        Where a model starts.
    validation : function of (w, X, y), optional
        The loss of each sample to judge by, where it is not the one to fit to.
    folds : int, integers, or pairs
        How many folds there are, drawn with `seed`; or the fold of each sample, from 0 on; or the
        rows to fit to and the rows to judge by for each model, as scikit-learn's splitters give.
    sample_weight : numbers, optional
        How much each sample counts, in both levels; 0 leaves it out.
    refit : bool
        Whether there is one more model, the last, that is fitted to all samples and judged by none.
    total : bool
        The sum of the losses in place of their mean, as scikit-learn writes ridge regression: a
        penalty then means the same for any number of samples. (All of g is divided by n.)
    seed : int
        Of the folds.
    dtype : str, optional
        The precision; by default that of X.

    Examples
    --------
    >>> X, t = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30.0)
    >>> loss = lambda w, X, t: (X @ w - t) ** 2
    >>> found = bl.problems.k_fold(loss, lambda x, w: jnp.exp(x) @ w**2, X, t, w0=jnp.zeros(4))
    >>> run = bl.solve(found.problem, jnp.zeros(4), found.y0)
    """
    real = precision(X, dtype)
    samples, targets = jnp.asarray(X, real), jnp.asarray(y)
    n = len(samples)
    counts = _as_weights(sample_weight, n)
    fitted, held_out = _as_folds(folds, n, seed)
    judge = loss if validation is None else validation
    for function in (loss, judge):
        _check_loss(function, as_variable(w0, "w0"), samples, targets)

    fitted, judged = fitted * counts[:, None], held_out * counts[:, None]
    if refit:
        fitted = np.column_stack([fitted, counts])
        judged = np.column_stack([judged, np.zeros(n)])
    if np.any(fitted.sum(axis=0) == 0) or judged.sum() == 0:
        empty = int(np.argmin(fitted.sum(axis=0)))
        raise ValueError(f"No sample with a weight is outside of fold {empty}: nothing to fit to.")
    if not total:
        fitted = n * fitted / fitted.sum(axis=0)
    judged = n * judged / judged.sum()

    scale = jnp.asarray(1 / n if total else 1.0, real)
    inner = _Inner(_with_leaves(loss), _with_leaves(penalty), scale)
    data = tuple((samples, targets, jnp.asarray(part, real)) for part in (fitted, judged))
    models = judged.shape[1]
    y0 = jax.tree.map(lambda w: jnp.broadcast_to(w, (models, *w.shape)), as_variable(w0, "w0"))
    return KFold(Problem(inner, _Outer(_with_leaves(judge)), *data), y0, held_out)


class _Inner(eqx.Module):
    loss: Loss
    penalty: Penalty
    scale: Float[Array, ""]

    def __call__(self, x: PyTree, y: PyTree, X: Array, t: Array, weights: Array) -> Array:
        penalties = jax.vmap(self.penalty, in_axes=(None, 0))(x, y)
        return weighted_mean(self.loss, y, X, t, weights) + self.scale * jnp.sum(penalties)


class _Outer(eqx.Module):
    loss: Loss

    def __call__(self, x: PyTree, y: PyTree, X: Array, t: Array, weights: Array) -> Array:
        return weighted_mean(self.loss, y, X, t, weights)


def _with_leaves(function: Callable) -> Callable:
    """A function whose arrays, if it has any, are leaves; as a leaf it would be one itself."""
    is_pytree = isinstance(function, eqx.Module | Partial)
    return function if is_pytree else Partial(function)  # pyright: ignore[reportReturnType]


def weighted_mean(loss: Loss, y: PyTree, X: Array, t: Array, weights: Float[Array, "n k"]) -> Array:
    """The mean over samples of Σ_k weight_ik ℓ_i(w_k)."""
    losses = jax.vmap(loss, in_axes=(0, None, None), out_axes=1)(y, X, t)
    return jnp.mean(jnp.sum(weights.astype(losses.dtype) * losses, axis=1))


def _as_folds(folds: Folds, n: int, seed: int) -> tuple[Mask, Mask]:
    """The samples to fit to and those to judge by, a column per fold."""
    if isinstance(folds, Sequence) and folds and isinstance(folds[0], tuple):
        pairs: Any = folds
        fitted, held_out = (
            np.stack([np.isin(np.arange(n), rows) for rows in part], axis=1)
            for part in zip(*pairs, strict=True)
        )
        return fitted, held_out
    given = np.asarray(folds)
    if given.dtype.kind not in "iu":
        raise TypeError(f"folds must be an integer, or one for each sample, got {folds!r}.")
    if given.ndim == 0:
        if not 2 <= given <= n:
            raise ValueError(f"folds must be between 2 and the number of samples {n}, got {folds}.")
        # Folds differ by at most one sample.
        given = np.random.default_rng(seed).permutation(np.arange(n) % int(given))
    there = np.unique(given)
    if given.shape != (n,) or len(there) < 2 or not np.array_equal(there, np.arange(len(there))):
        raise ValueError(
            f"folds must name one of the folds 0, …, K − 1 for each of the {n} samples, each of "
            f"them at least once; got shape {given.shape} with the folds {there.tolist()[:10]}."
        )
    held_out = given[:, None] == there
    return ~held_out, held_out


def _as_weights(weights: ArrayLike | None, n: int) -> NDArray[np.float64]:
    given = np.ones(n) if weights is None else np.asarray(weights, np.float64)
    if given.shape != (n,) or not np.all((given >= 0) & (given < np.inf)):
        raise ValueError(
            f"sample_weight must be a finite number of at least 0 for each of the {n} samples, got "
            f"shape {given.shape}."
        )
    return given


def _check_loss(loss: Loss, w: PyTree, X: Array, t: Array) -> None:
    shape = jax.eval_shape(loss, w, X, t).shape
    if shape != (len(X),):
        raise ValueError(
            f"loss must return the loss of each sample, of shape ({len(X)},), got {shape}: folds "
            f"are made of samples."
        )
