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
from biloop.sklearn.family import Best, Family, Folds, Matrix, Model, Samples, Task, best
from biloop.sklearn.paths import centre, coefficients, errors, left_out, path
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
    total = sum(float(np.sum(samples.weights * judged)) for _, judged in folds.pairs)
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


class RidgeTask(Task):
    """Cross-validation of ridge regression.

    Where folds were drawn the common factor is chosen by leaving one out, as `RidgeCV` does: folds
    are fitted to fewer samples than the model in the end. Penalties that differ between the folds
    are judged by the folds.
    """

    def __init__(self, intercept: bool, samples: Samples, folds: Folds) -> None:
        self.intercept, self.samples, self.folds = intercept, samples, folds
        self.inner, self.outer, self.total = forms(intercept, samples, folds)
        models, self.features = self.inner.b.shape
        self.method = method_for(self.features, _DENSE, quadratic=True)
        self.y0 = jnp.zeros((models, self.features))
        self.floor = rounding(self.outer, self.total)

    def make(self, penalties):
        scale = jnp.asarray(1 / self.total)
        own, judge = _Inner(penalties, scale), MeanSquaredError(scale)
        return Problem(own, judge, inner_data=(self.inner,), outer_data=(self.outer,))

    def unit(self, value):
        return 2 * value / self.total

    def squares(self, y):
        return np.asarray(y) ** 2

    def common(self, alphas):
        ones = np.ones(self.samples.X.shape[1])
        return self._left_out(ones, alphas) if self.folds.drawn else self.start(alphas)

    def start(self, alphas):
        return self._by_folds(np.ones((1, self.samples.X.shape[1])), alphas)

    def judged(self, ratios, alphas, y):
        if self.folds.drawn and len(ratios) == 1:
            return self._left_out(ratios[0], alphas)
        return self._by_folds(ratios, alphas)

    def rival(self, ratios, common, start):
        return common if len(ratios) == 1 else start

    def _left_out(self, ratios: Matrix, alphas: Matrix) -> Best:
        fits = path(self.samples, ratios, self.intercept)
        losses = left_out(fits, self.samples, alphas, self.intercept) ** 2
        return best(alphas, lambda _: self.y0, losses, self.samples.weights, self.floor)

    def _by_folds(self, ratios: Matrix, alphas: Matrix) -> Best:
        pairs, weights = self.folds.pairs, self.samples.weights
        rows = np.broadcast_to(ratios, (len(self.y0), ratios.shape[1]))
        trains = [self.samples._replace(weights=weights * fitted) for fitted, _ in pairs]
        fits = [path(t, row, self.intercept) for t, row in zip(trains, rows[:-1], strict=False)]
        judged = [Samples(*(a[rows > 0] for a in self.samples)) for _, rows in pairs]
        losses = [errors(f, s, alphas) ** 2 for f, s in zip(fits, judged, strict=True)]
        last = path(self.samples, rows[-1], self.intercept)

        def models(i: int) -> Array:
            found = [coefficients(f, float(alphas[i])) for f in (*fits, last)]
            empty = [found[0]] * (len(self.y0) - len(found))
            return jnp.asarray(filled(np.stack([*found[:-1], *empty, found[-1]]), *self.y0.shape))

        return best(
            alphas, models, np.concatenate(losses, axis=1), self.folds.shares(weights), self.floor
        )


def rounding(outer: Form, total: float) -> float:
    """The mean squared error below which a fit is exact."""
    return _ROUNDING * float(jnp.sum(outer.c)) / total


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
    found = np.asarray(np.linalg.solve(A + np.diag(alphas), b), np.float64)
    return found, middle[1] - float(middle[0] @ found)


def default_alphas(intercept: bool, samples: Samples) -> Matrix:
    """Around the mean square of the features, from far too weak to far too strong."""
    X, _, s = samples
    scale = float(np.mean(s @ (X - centre(samples, intercept)[0]) ** 2))
    return (scale if scale > 0 else 1.0) * np.logspace(-6, 3, 37)


def ridge_regression(intercept: bool) -> Family:
    """Least squares."""
    return Family(
        task=partial(RidgeTask, intercept),
        alphas=partial(default_alphas, intercept),
        model=partial(fitted_ridge, intercept),
    )
