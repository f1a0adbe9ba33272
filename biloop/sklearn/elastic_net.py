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
from biloop.sklearn.family import Family, Folds, Matrix, Model, Samples, Task
from biloop.sklearn.penalties import Penalties
from biloop.sklearn.ridge import Form, MeanSquaredError, centre, form, forms, rounding

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


def elastic_net_task(intercept: bool, samples: Samples, folds: Folds) -> Task:
    """Cross-validation over pairs of masks, (fitted, judged)."""
    inner, outer, total = forms(intercept, samples, folds)
    y0, scale = jnp.zeros(inner.b.shape), jnp.asarray(1 / total)

    def make(penalties: Penalties) -> Problem:
        prox = ElasticNet(_Part(penalties, y0, True), _Part(penalties, y0, False))
        return Problem(_Inner(scale), MeanSquaredError(scale), (inner,), (outer,), prox=prox)

    return Task(
        make=make,
        y0=y0,
        features=y0.shape[1],
        squares=lambda y: np.asarray(y) ** 2,
        method=AID(FISTA(step_size="auto", steps=_LOOPS), CG(_LOOPS)),
        rounds=1,
        unit=lambda value: 2 * value / total,
        floor=rounding(outer, total),
    )


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
        task=partial(elastic_net_task, intercept),
        alphas=partial(default_alphas, intercept),
        model=partial(refitted, intercept),
    )
