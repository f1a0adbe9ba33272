"""The elastic net as a task: the Gram matrices of ridge regression, and a proximal map.

    1/(2n) Σ_{i outside of fold k} s_i (w·a_i + b − t_i)² + Σ_j α_j (ρ|w_j| + ½(1 − ρ) w_j²)

as scikit-learn writes it, with n the sum of all weights.
"""

from functools import partial

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from biloop.inner import FISTA
from biloop.linear import CG
from biloop.methods import AID
from biloop.problem import Problem
from biloop.problem.prox import ElasticNet
from biloop.schedules import Adaptive
from biloop.sklearn.family import Best, Family, Folds, Matrix, Model, Samples, Task, best
from biloop.sklearn.paths import centre
from biloop.sklearn.penalties import Penalties
from biloop.sklearn.ridge import Form, MeanSquaredError, form, forms, rounding
from biloop.sklearn.tuning import along

_LOOPS = Adaptive(1e-6, 20_000)  # of the way that a loop has to go


class _Inner(eqx.Module):
    scale: Float[Array, ""]

    def __call__(self, x: Array, w: Float[Array, "k d"], form: Form) -> Array:
        return self.scale * (0.5 * jnp.einsum("kd,kde,ke->", w, form.A, w) - jnp.sum(form.b * w))


class _Part(eqx.Module):
    """The penalties of |w|, or those of ½w²."""

    penalties: Penalties
    like: Float[Array, "k d"]
    lasso: bool = eqx.field(static=True)

    def __call__(self, x: Array) -> Float[Array, "k d"]:
        share = self.penalties.lasso_share(x)
        part = share if self.lasso else 1 - share
        return part * self.penalties(x) + self.like


class ElasticNetTask(Task):
    """Cross-validation of the elastic net."""

    method = AID(FISTA(step_size="auto", steps=_LOOPS), CG(_LOOPS))

    def __init__(self, intercept: bool, samples: Samples, folds: Folds) -> None:
        self.samples, self.folds = samples, folds
        self._common: Best | None = None
        self.inner, self.outer, self.total = forms(intercept, samples, folds)
        weights = samples.weights
        trains = [samples._replace(weights=weights * fitted) for fitted, _ in folds.pairs]
        self.centres = [centre(train, intercept) for train in trains]
        self.y0 = jnp.zeros(self.inner.b.shape)
        self.features = self.y0.shape[1]
        self.floor = rounding(self.outer, self.total)

    def make(self, penalties):
        scale = jnp.asarray(1 / self.total)
        prox = ElasticNet(_Part(penalties, self.y0, True), _Part(penalties, self.y0, False))
        outer = MeanSquaredError(scale)
        return Problem(_Inner(scale), outer, (self.inner,), (self.outer,), prox=prox)

    def unit(self, value):
        return 2 * value / self.total

    def squares(self, y):
        return np.asarray(y) ** 2

    def common(self, alphas):
        if self._common is None:
            self._common = self._best(alphas)
        return self._common

    def _best(self, alphas: Matrix) -> Best:
        found = along(self, np.ones((1, self.features)), alphas)
        losses = np.where(found.failed[:, None], np.nan, self._losses(np.asarray(found.ys)))
        shares = self.folds.shares(self.samples.weights)
        return best(alphas, found.y, losses, shares, self.floor)

    def start(self, alphas):
        return self.common(alphas)

    def judged(self, ratios, alphas, y):
        shares = self.folds.shares(self.samples.weights)
        losses, alpha = self._losses(np.asarray(y)[None]), self.common(alphas).alpha
        return best(np.full(1, alpha), lambda _: y, losses, shares, self.floor)

    def _losses(self, ys: Matrix) -> Matrix:
        """The squared errors of samples for the models of each penalty."""
        found = []
        for k, (_, judged) in enumerate(self.folds.pairs):
            X, t, _ = (part[judged > 0] for part in self.samples)
            features, target = self.centres[k]
            found.append((ys[:, k, : X.shape[1]] @ (X - features).T - (t - target)) ** 2)
        return np.concatenate(found, axis=1)


def refitted(intercept: bool, samples: Samples, _alphas: Matrix, y: Array) -> Model:
    """The last model, which was fitted to all samples."""
    coefficients = np.asarray(y)[-1, : samples.X.shape[1]]
    middle = centre(samples, intercept)
    return coefficients, middle[1] - float(middle[0] @ coefficients)


def default_alphas(intercept: bool, samples: Samples) -> Matrix:
    """From where all coefficients are zero (for ρ = ½) to a thousandth of it."""
    slopes = form(samples, centre(samples, intercept)).b / samples.weights.sum()
    largest = 2 * float(np.max(np.abs(slopes)))
    return (largest if largest > 0 else 1.0) * np.logspace(-3, 0, 28)


def elastic_net(intercept: bool) -> Family:
    """Least squares with a penalty that makes coefficients zero."""
    return Family(
        task=partial(ElasticNetTask, intercept),
        alphas=partial(default_alphas, intercept),
        model=partial(refitted, intercept),
    )
