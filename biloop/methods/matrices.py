"""Methods that keep estimates of the second derivatives of g as matrices: for small y."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from biloop import vectors
from biloop.methods.base import Info, Residuals, checked_start
from biloop.methods.directions import (
    Drawing,
    Point,
    Source,
    check_estimator,
    check_samples,
    draw,
    estimate,
    judged,
)
from biloop.oracles import Cost, SampleCount, gradient_and_products, outer_gradients, outer_value
from biloop.samples import Pair, Samples
from biloop.samples.estimators import Estimator, Plain
from biloop.schedules import Schedule, as_number, number_at, positive
from biloop.vectors import add_scaled, norm, subtract, zeros_like

LARGEST = 512  # entries of y


class MatricesState(NamedTuple):
    """y, the response −H⁻¹ ∇_y∇_x g of the last step, the last point, estimates, draws so far."""

    y: PyTree
    response: Float[Array, "q p"]
    last: Point
    estimates: tuple[PyTree, PyTree]
    draws: Int[Array, ""]


class Matrices(Drawing):
    """STABLE of Chen, Sun, Xiao and Yin (2022), https://arxiv.org/abs/2102.04671; q entries in y.

    y ← y − H⁻¹ ∇_y∇_x g (x − x⁻)   with the matrices of the last step: y follows x
    H, J ← estimates of ∇²_y g and ∇_x∇_y g;   eigenvalues of H below μ are lifted to it
    y ← y − α D_y,   h = D_f − J H⁻¹ ∇_y f

    2q products in an evaluation of both matrices.

    Parameters
    ----------
    samples : Samples
    inner_step : number or schedule of k
        α.
    mu : number
        A lower bound of the eigenvalues of ∇²_y g.
    matrices : Estimator
        Of H and J, e.g. `Storm(0.1)`.
    gradients : Estimator
        Of ∇_y g, ∇_x f and ∇_y f; `Storm` as well makes RSVRB of Guo et al. (2021).

    Examples
    --------
    >>> samples = bl.Samples(bl.Blocks(8), bl.Blocks(8), key=0)
    >>> bl.Matrices(samples, inner_step=0.1, mu=1.0, matrices=bl.Storm(0.1)).matrices
    Storm(weight=0.1)
    """

    samples: Samples
    inner_step: Schedule = eqx.field(converter=as_number("inner_step"))
    mu: Float[Array, ""] = eqx.field(converter=positive("mu"))
    matrices: Estimator
    gradients: Estimator = eqx.field(default_factory=Plain)

    def __check_init__(self):
        check_samples(self.samples)
        check_estimator(self.matrices, self.samples, "matrices")
        check_estimator(self.gradients, self.samples, "gradients")

    def init(self, problem, x, y):
        x, y = checked_start(problem, x, y)
        if vectors.size(y) > LARGEST:
            raise ValueError(
                f"Matrices keeps q × q matrices, which is for y of at most {LARGEST} entries; this "
                f"one has {vectors.size(y)}. Use SingleLoop."
            )
        self.samples.check(problem, x, y)
        here, count = Point(x, y, zeros_like(y)), self.samples.blocks(problem)
        source = Source(problem, lambda i: problem)
        estimates = tuple(
            estimator.init(eqx.filter_eval_shape(parts, source, here), count)
            for estimator, parts in ((self.matrices, _matrices), (self.gradients, _gradients))
        )
        response = jnp.zeros((vectors.size(y), vectors.size(x)), ravel_pytree(y)[0].dtype)
        return MatricesState(y, response, here, estimates, jnp.zeros((), jnp.int32))

    def __call__(self, problem, x, state, k):
        flat, unflatten = ravel_pytree(state.y)
        moved = ravel_pytree(subtract(x, state.last.x))[0].astype(flat.dtype)
        y = unflatten(flat + state.response @ moved)

        here = Point(x, y, state.last.v)
        drawn = draw(self.samples, problem, state.draws)
        points = (here, state.last)
        found, kept, spent = [], [], SampleCount()
        for estimator, parts, price, own in (
            (self.matrices, _matrices, _matrix_price(2 * flat.size), state.estimates[0]),
            (self.gradients, _gradients, _gradient_price, state.estimates[1]),
        ):
            pair, own, more = estimate(
                estimator, parts, price, drawn, points, own, k, join=lambda p: p
            )
            found, kept, spent = [*found, pair], [*kept, own], spent + more

        H, J = found[0].inner["H"], found[0].inner["J"]
        values, basis = jnp.linalg.eigh(H)  # of its symmetric part
        lifted = jnp.maximum(values, self.mu.astype(values.dtype))
        inverse = (basis / lifted[None, :]) @ basis.T
        v = inverse @ ravel_pytree(found[1].outer["y"])[0]
        f_x, unflatten_x = ravel_pytree(found[1].outer["x"])
        h = unflatten_x(f_x - (v @ J).astype(f_x.dtype))
        D_y = found[1].inner["y"]
        size, value = norm(D_y), outer_value(drawn.source.problem, x, y)
        result = judged(size, value, norm(v))
        after = add_scaled(y, -number_at(self.inner_step, k), D_y)
        after = vectors.where(result == 0, after, state.y)
        kept = MatricesState(after, -inverse @ J, here, (kept[0], kept[1]), state.draws + 1)
        return h, kept, Info(value, Cost(0, 0), result, Residuals(size), spent)

    def reads(self, draws, k):
        return Pair(range(draws, draws + 1), range(draws, draws + 1))

    def stability(self, L):
        return [("inner", float(number_at(self.inner_step, 0)), 2 / L)]


def _matrices(source: Source, point: Point) -> Pair:
    """∇²_y g and ∇_y∇_x g, a row for each entry of y."""
    flat, unflatten = ravel_pytree(point.y)
    _, hessian, cross = gradient_and_products(source.problem, point.x, point.y)

    def row(unit: Array) -> tuple[Array, Array]:
        v = unflatten(unit)
        return ravel_pytree(hessian(v))[0], ravel_pytree(cross(v))[0].astype(flat.dtype)

    H, J = jax.vmap(row)(jnp.eye(flat.size, dtype=flat.dtype))
    return Pair({"H": H, "J": J}, {})


def _gradients(source: Source, point: Point) -> Pair:
    gradient, _, _ = gradient_and_products(source.problem, point.x, point.y)
    _, f_x, f_y = outer_gradients(source.problem, point.x, point.y)
    return Pair({"y": gradient}, {"x": f_x, "y": f_y})


def _matrix_price(products: int):
    return lambda sizes: SampleCount(products=products * sizes.inner)


def _gradient_price(sizes: Pair) -> SampleCount:
    return SampleCount(inner=sizes.inner, outer=2 * sizes.outer)
