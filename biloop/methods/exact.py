"""The exact hypergradient by Newton's method and dense linear algebra: the reference."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from biloop.linear.dense import dense_matrix, solve_symmetric
from biloop.methods.base import (
    Hypergradient,
    HypergradientInfo,
    Seen,
    Warm,
    first_warm,
    judge,
)
from biloop.oracles import Cost, inner_gradient, inner_value, linearise, outer_gradients
from biloop.problem import Problem
from biloop.results import Status, code_if
from biloop.vectors import add_scaled, inner_product, norm, size, subtract


class Exact(Hypergradient):
    """∇Φ(x) = ∇_x f − ∇_x∇_y g H⁻¹ ∇_y f at y*(x), for small y and strongly convex g(x, ·).

    y* comes from Newton's method with backtracking, H⁻¹ from the eigenvalues of the dense Hessian:
    q products for each, with y of dimension q. `limit` refuses a larger dimension.
    """

    steps: int = eqx.field(default=100, static=True)
    limit: int = eqx.field(default=5000, static=True)

    def init(self, problem, x, y):
        if (q := size(y)) > self.limit:
            raise ValueError(
                f"Exact would form {q} × {q} matrices; its limit is {self.limit}. Use AID with CG, "
                f"or raise the limit with Exact(limit={q})."
            )
        return first_warm(problem, x, y, keep_start=False)

    def __call__(self, problem, x, warm, k):
        y, newton = _newton(problem, x, warm.y, self.steps)
        inner_residual = norm(inner_gradient(problem, x, y))

        value, f_x, f_y = outer_gradients(problem, x, y)
        hessian, cross = linearise(problem, x, y)
        b, unravel = ravel_pytree(f_y)
        v, linear_residual, linear_result = solve_symmetric(dense_matrix(hessian, y), b)
        v = unravel(v.astype(b.dtype))
        h = subtract(f_x, cross(v))

        q = size(y)
        cost = Cost(newton.steps + 3, (newton.steps + 1) * q + 1)
        inner = Seen(inner_residual, newton.steps, code_if(newton.unfinished, Status.NEWTON_FAILED))
        linear = Seen(linear_residual, jnp.ones((), jnp.int32), linear_result)
        result = judge(h, (value, f_x, f_y), inner, linear)
        info = HypergradientInfo(value, inner_residual, linear_residual, cost, result)
        return h, Warm(y, v, warm.start), info


class _Newton(NamedTuple):
    y: PyTree
    unfinished: Array
    steps: Int[Array, ""]


def _newton(problem: Problem, x: PyTree, y0: PyTree, steps: int) -> tuple[PyTree, _Newton]:
    """y ← y − s H⁻¹ ∇_y g until a full step is below √eps: one such step leaves an error of eps."""

    def body(state: _Newton) -> _Newton:
        y = state.y
        d = inner_gradient(problem, x, y)
        hessian, _ = linearise(problem, x, y)
        flat, unravel = ravel_pytree(d)
        newton, _, _ = solve_symmetric(dense_matrix(hessian, y), flat)
        direction = unravel(-newton.astype(flat.dtype))

        length = norm(direction)
        small = jnp.sqrt(jnp.finfo(length.dtype).eps) * (1 + norm(y))
        s = _backtrack(problem, x, y, direction, inner_product(d, direction))
        # Close to the minimiser g cannot tell points apart any more, and a full step is right.
        s = jnp.where(length <= small, jnp.ones_like(s), s)
        return _Newton(add_scaled(y, s, direction), length > small, state.steps + 1)

    start = _Newton(y0, jnp.asarray(True), jnp.zeros((), jnp.int32))
    state = lax.while_loop(lambda s: s.unfinished & (s.steps < steps), body, start)
    return state.y, state


def _backtrack(
    problem: Problem, x: PyTree, y: PyTree, direction: PyTree, slope: Float[Array, ""]
) -> Float[Array, ""]:
    """The first s = 1, ½, ¼, … with g(y + s·direction) ≤ g(y) + 10⁻⁴ s·slope (Armijo)."""
    g0 = inner_value(problem, x, y).astype(slope.dtype)

    def too_long(s: Array) -> Array:
        g = inner_value(problem, x, add_scaled(y, s, direction)).astype(slope.dtype)
        # Written so that a NaN counts as too long.
        return ~(g <= g0 + 1e-4 * s * slope) & (s > 1e-9)

    return lax.while_loop(too_long, lambda s: s / 2, jnp.ones_like(slope))
