"""h from a linear loop on batches: each product meets rows of its own."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import PyTree

from biloop.linear import Stepped
from biloop.methods.derivatives import Derivatives
from biloop.methods.directions import Point, Source
from biloop.oracles import SampleCount, outer_gradients
from biloop.samples import Pair
from biloop.schedules import Count
from biloop.vectors import subtract


def series(
    linear: Stepped,
    derivatives: Derivatives,
    source: Source,
    point: Point,
    length: Count,
    k: Count,
) -> tuple[PyTree, PyTree]:
    """v after so many steps on Hv = ∇_y f from the v of the point, and h = ∇_x f − ∇_x∇_y g v."""
    x, y, v0 = point
    _, f_x, f_y = outer_gradients(source.problem, x, y)

    def step(i: Count, state: PyTree) -> PyTree:
        _, hessian, _ = derivatives(source.products(jnp.asarray(i)), x, y)
        return linear.step(hessian, f_y, state, k)

    state = lax.fori_loop(0, length, step, linear.begin(f_y, v0))
    v = linear.finish(state, k)
    _, _, cross = derivatives(source.problem, x, y)
    return v, subtract(f_x, cross(v))


def series_price(derivatives: Derivatives, sizes: Pair, length: Count) -> SampleCount:
    """Two gradients of f, the products of the loop, and one more."""
    products = derivatives.price(sizes.inner).times(length + 1)
    return SampleCount(outer=2 * sizes.outer) + products
