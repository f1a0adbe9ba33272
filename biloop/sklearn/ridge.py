"""Ridge regression as a task: all that cross-validation needs are the Gram matrices of the folds.

    Σ_{i outside of fold k} s_i (w·a_i + b − t_i)² + Σ_j α_j w_j²

With the intercept b minimised out, both levels are quadratic forms in w, made once from the data.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from biloop.problem import Problem
from biloop.sklearn.family import Family, Folds, Matrix, Model, Samples, Task
from biloop.sklearn.penalties import Penalties
from biloop.sklearn.shapes import features, filled, filled_folds
from biloop.sklearn.tuning import method_for

_ROUNDING = 1e-10  # of the variance of the targets: a fit that leaves less is exact
_DENSE = 400  # features up to which Gram matrices are factorised


class Form(NamedTuple):
    """Σ_i s_i (w·(a_i − ā) − (t_i − t̄))² = wᵀAw − 2bᵀw + c; or a stack of them."""

    A: Any
    b: Any
    c: Any


def centre(samples: Samples, intercept: bool) -> tuple[Matrix, float]:
    """ā and t̄, or zeros."""
    X, t, s = samples
    if not intercept:
        return np.zeros(X.shape[1]), 0.0
    return s @ X / s.sum(), float(s @ t / s.sum())


def form(samples: Samples, middle: tuple[Matrix, float]) -> Form:
    """The squared error as a quadratic form in w."""
    used = samples.weights > 0
    X, t, s = (part[used] for part in samples)
    X, t = X - middle[0], t - middle[1]
    weighted = s[:, None] * X
    return Form(weighted.T @ X, weighted.T @ t, float(s @ t**2))


class Forms(NamedTuple):
    """The squared errors of all models: what they are fitted to, what they are judged by."""

    inner: Form
    outer: Form
    total: float  # the weights of all that is judged


def forms(intercept: bool, samples: Samples, folds: Folds) -> Forms:
    """Of pairs of masks, (fitted, judged), and of a last model of all samples."""
    total = sum(float(np.sum(samples.weights * judged)) for _, judged in folds)
    everything = np.ones(len(samples.t))
    fits, judges = [], []
    for fitted, judged in [*filled_folds(folds), (everything, 0 * everything)]:
        train = samples._replace(weights=samples.weights * fitted)
        middle = centre(train, intercept)
        fits.append(form(train, middle))
        judges.append(form(samples._replace(weights=samples.weights * judged), middle))
    d = features(samples.X.shape[1])

    def stacked(found: list[Form]) -> Form:
        parts = (np.stack(part) for part in zip(*found, strict=True))
        shapes = (len(found), d, d), (len(found), d), (len(found),)
        return Form(*(jnp.asarray(filled(a, *s)) for a, s in zip(parts, shapes, strict=True)))

    return Forms(stacked(fits), stacked(judges), total)


def ridge_task(intercept: bool, samples: Samples, folds: Folds) -> Task:
    """Cross-validation over pairs of masks, (fitted, judged)."""
    inner, outer, total = forms(intercept, samples, folds)
    models, d = inner.b.shape
    method, rounds = method_for(d, _DENSE, quadratic=True)
    return Task(
        make=partial(_problem, inner, outer, jnp.asarray(1 / total)),
        y0=jnp.zeros((models, d)),
        features=d,
        squares=lambda y: np.asarray(y) ** 2,
        method=method,
        rounds=rounds,
        unit=lambda value: 2 * value / total,
        floor=rounding(outer, total),
    )


def rounding(outer: Form, total: float) -> float:
    """The mean squared error below which a fit is exact."""
    return _ROUNDING * float(jnp.sum(outer.c)) / total


def _problem(inner: Form, outer: Form, scale: Array, penalties: Penalties) -> Problem:
    own, judge = _Inner(penalties, scale), MeanSquaredError(scale)
    return Problem(own, judge, inner_data=(inner,), outer_data=(outer,))


class _Inner(eqx.Module):
    penalties: Penalties
    scale: Float[Array, ""]

    def __call__(self, x: Array, w: Float[Array, "k d"], form: Form) -> Array:
        squares = 0.5 * jnp.einsum("kd,kde,ke->", w, form.A, w) - jnp.sum(form.b * w)
        return self.scale * (squares + 0.5 * jnp.sum(self.penalties(x) * w**2))


class MeanSquaredError(eqx.Module):
    """Over the judged samples of all models."""

    scale: Float[Array, ""]

    def __call__(self, x: Array, w: Float[Array, "k d"], form: Form) -> Array:
        squares = jnp.einsum("kd,kde,ke->", w, form.A, w) - 2 * jnp.sum(form.b * w)
        return self.scale * (squares + jnp.sum(form.c))


def fitted_ridge(intercept: bool, samples: Samples, alphas: Matrix, _y: Array) -> Model:
    """The coefficients and the intercept for given penalties of the features."""
    middle = centre(samples, intercept)
    A, b, _ = form(samples, middle)
    coefficients = np.asarray(np.linalg.solve(A + np.diag(alphas), b), np.float64)
    return coefficients, middle[1] - float(middle[0] @ coefficients)


def default_alphas(intercept: bool, samples: Samples) -> Matrix:
    """Around the mean square of the features, from far too weak to far too strong."""
    X, _, s = samples
    scale = float(np.mean(s @ (X - centre(samples, intercept)[0]) ** 2))
    return (scale if scale > 0 else 1.0) * np.logspace(-6, 3, 37)


def ridge_regression(intercept: bool) -> Family:
    """Least squares."""
    return Family(
        task=partial(ridge_task, intercept),
        alphas=partial(default_alphas, intercept),
        model=partial(fitted_ridge, intercept),
    )
