"""The way from y to y*(x) for a problem of which nothing is known: with care, at bounded cost.

`NewtonCG` goes it as a whole; here somebody looks at the spectrum after each step.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop.linear.conjugate import newton_direction
from biloop.loops.adaptive import Curvature
from biloop.oracles import Product, inner_gradient, inner_value, linearise
from biloop.problem import Problem
from biloop.vectors import add_scaled, eps, inner_product, norm, scaled, where

_SHARE = 0.1  # of its error that a direction may leave
_ARMIJO = 1e-4
_HALVINGS = 40


class Descent(NamedTuple):
    """Where the descent is: y, g and ∇_y g there, ‖∇_y g‖, and whether it gets no further."""

    y: PyTree
    value: Float[Array, ""]
    gradient: PyTree
    size: Float[Array, ""]
    over: Bool[Array, ""]


def start(problem: Problem, x: PyTree, y: PyTree) -> Descent:
    """The descent before its first step; over at once where the gradient is 0 or not finite."""
    gradient = inner_gradient(problem, x, y)
    size = norm(gradient)
    value = inner_value(problem, x, y).astype(size.dtype)
    return Descent(y, value, gradient, size, ~((size > 0) & jnp.isfinite(size)))


def step(problem: Problem, x: PyTree, here: Descent, products: int) -> Descent:
    """y ← y + td with ∇²_y g d ≈ −∇_y g, for at most `products` products.

    t is the first of 1, ½, ¼, … with g(x, y + td) ≤ g(x, y) + 10⁻⁴ t⟨∇_y g, d⟩. Where g has only
    rounding left to tell the two apart, the smaller gradient decides.
    """
    hessian, _ = linearise(problem, x, here.y)
    d = _direction(hessian, here, products)
    t, value, found = _length(problem, x, here, d)
    y = add_scaled(here.y, t, d)
    gradient = inner_gradient(problem, x, y)
    size = norm(gradient)
    lower = (value < here.value - _rounding(here)) | (size < 0.5 * here.size)
    better = found & lower & jnp.isfinite(size)
    there = Descent(y, value, gradient, size, size == 0)
    return where(better, there, here._replace(over=jnp.ones_like(here.over)))


def minimise(problem: Problem, x: PyTree, y: PyTree, steps: int, products: int) -> Descent:
    """At most `steps` steps; over before, once only rounding is left."""

    def body(carry: tuple[Descent, Int[Array, ""]]) -> tuple[Descent, Int[Array, ""]]:
        return step(problem, x, carry[0], products), carry[1] + 1

    first = (start(problem, x, y), jnp.zeros((), jnp.int32))
    return lax.while_loop(lambda c: ~c[0].over & (c[1] < steps), body, first)[0]


def _direction(hessian: Product, here: Descent, products: int) -> PyTree:
    """−H⁻¹∇g by conjugate gradients, as far as no curvature is negative; at worst −∇g."""
    nothing = jnp.zeros_like(here.size)
    share = jnp.full_like(nothing, _SHARE)
    delta, *_ = newton_direction(
        hessian, here.gradient, Curvature(nothing, nothing), share, products, nothing
    )
    downhill = inner_product(delta, here.gradient) > 0
    return scaled(-1.0, where(downhill, delta, here.gradient))


def _length(
    problem: Problem, x: PyTree, here: Descent, d: PyTree
) -> tuple[Float[Array, ""], Float[Array, ""], Bool[Array, ""]]:
    """t, g(x, y + td), and whether it is small enough; the decision is carried, not made anew."""
    slope = inner_product(here.gradient, d)

    def body(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        t, _, _, tries = carry
        t = jnp.where(tries > 0, t / 2, t)
        value = inner_value(problem, x, add_scaled(here.y, t, d)).astype(here.value.dtype)
        enough = value <= here.value + _ARMIJO * t * slope
        rounded = jnp.abs(value - here.value) <= _rounding(here)
        return t, value, enough | rounded, tries + 1

    t = jnp.ones_like(here.value)
    first = (t, here.value, jnp.zeros_like(here.over), jnp.zeros((), jnp.int32))
    t, value, found, _ = lax.while_loop(lambda c: ~c[2] & (c[3] <= _HALVINGS), body, first)
    return t, value, found


def _rounding(here: Descent) -> Float[Array, ""]:
    """By how much g may differ without a difference."""
    return 8 * eps(here.y) * jnp.abs(here.value)
