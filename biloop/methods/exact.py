"""The exact hypergradient by Newton's method and dense linear algebra: the reference."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.linear.base import linear_info
from biloop.linear.dense import dense_matrix, solve_symmetric
from biloop.loops.iteration import LoopInfo
from biloop.loops.results import Status, code_if
from biloop.methods.base import Info, Method, Residuals, checked_start, judge
from biloop.oracles import (
    Cost,
    inner_value,
    inner_value_and_gradient,
    linearise,
    outer_gradients,
)
from biloop.problem import Problem, refuse_kind
from biloop.schedules.arguments import as_count
from biloop.vectors import add_scaled, inner_product, norm, scaled, size, subtract

_HALVINGS = 40  # of a step: 2⁻⁴⁰ of its length is not too long
_ARMIJO = 1e-4
_STALLS = 2  # steps in a row that do not halve the gradient any more: it is rounding
_BLIND = 4.0  # roundings of g: a fall that is predicted to be no larger is not seen


class ExactState(NamedTuple):
    """y*(x) and the adjoint there."""

    y: PyTree
    v: PyTree


class Exact(Method):
    """∇Φ(x) = ∇_x f − ∇_x∇_y g H⁻¹ ∇_y f at y*(x), for small y and strongly convex g(x, ·).

    y* comes from Newton's method with backtracking, repeated until ‖∇_y g‖ does not become smaller
    any more, H⁻¹ from the eigenvalues of the dense Hessian: q products for each, with y of
    dimension q. It ends in NEWTON_FAILED unless what a last Newton step would still change is small
    against y and against the distance from its start, whatever their scale.

    Parameters
    ----------
    steps : int
        The most Newton steps.
    limit : int
        A larger dimension of y is refused: the matrix has q² entries.

    Examples
    --------
    >>> method = bl.Exact()
    >>> h, state, info = jax.jit(method)(problem, x0, method.init(problem, x0, y0), 0)
    >>> print(f"{h:.4f}")
    0.4676
    """

    steps: int = eqx.field(default=100, static=True, converter=as_count("steps"))
    limit: int = eqx.field(default=5000, static=True, converter=as_count("limit"))

    def init(self, problem, x, y):
        x, y = checked_start(problem, x, y)
        refuse_kind(problem, ("minimum",), "Exact", "Use AID with loops to a tight tolerance.")
        if (q := size(y)) > self.limit:
            raise ValueError(
                f"Exact would form {q} × {q} matrices; its limit is {self.limit}. Use AID with CG, "
                f"or raise the limit with Exact(limit={q})."
            )
        return ExactState(y, vectors.zeros_like(y))

    def __call__(self, problem, x, state, k):
        newton = minimise(problem, x, state.y, self.steps)
        y = vectors.where(jnp.isfinite(newton.size), newton.y, state.y)

        value, f_x, f_y = outer_gradients(problem, x, y)
        hessian, cross = linearise(problem, x, y)
        b, unravel = ravel_pytree(f_y)
        v, residual, result = solve_symmetric(dense_matrix(hessian, y), b)
        v = unravel(v.astype(b.dtype))
        h = subtract(f_x, cross(v))

        q, one = size(y), jnp.ones((), jnp.int32)
        cost = Cost(newton.steps + 3, (newton.steps + 1) * q + 1)
        failed = code_if(~newton.found, Status.NEWTON_FAILED)
        inner = LoopInfo(newton.size, newton.steps, cost, failed)
        linear = linear_info(residual, one, q * one, result)
        code = judge(h, value, inner, linear)
        info = Info(value, cost, code, Residuals(newton.size, residual))
        return h, ExactState(y, vectors.where(jnp.isfinite(residual), v, state.v)), info


class Newton(NamedTuple):
    """The best point so far, g and ∇_y g there, and how far the last step went."""

    y: PyTree
    value: Float[Array, ""]
    d: PyTree
    size: Float[Array, ""]  # ‖∇_y g‖
    left: Float[Array, ""]  # ‖H⁻¹∇g‖ relative to y and the way to it: the error before the step
    stalls: Int[Array, ""]
    running: Bool[Array, ""]
    steps: Int[Array, ""]

    @property
    def found(self) -> Bool[Array, ""]:
        """Whether y is the minimiser: a Newton step squares the relative error."""
        return (self.size == 0) | (self.left <= _root_eps(self.left))


def minimise(problem: Problem, x: PyTree, y0: PyTree, steps: int) -> Newton:
    """y ← y − s H⁻¹ ∇_y g until rounding stops it. A step is one gradient and q products."""

    def body(at: Newton) -> Newton:
        hessian, _ = linearise(problem, x, at.y)
        flat, unravel = ravel_pytree(at.d)
        newton, _, _ = solve_symmetric(dense_matrix(hessian, at.y), flat)
        direction = unravel(-newton.astype(flat.dtype))
        slope = inner_product(at.d, direction)
        # Where H is not definite its eigenvectors may lead up: then along −∇g.
        direction = vectors.where(slope < 0, direction, scaled(-1.0, at.d))
        slope = jnp.where(slope < 0, slope, -(at.size**2))

        left = norm(newton).astype(at.left.dtype) / _scale(at.y, y0)
        # Close to the minimiser g cannot tell points apart any more, and a full step is right.
        blind = jnp.abs(slope) <= _BLIND * vectors.eps(at.y) * jnp.abs(at.value).astype(slope.dtype)
        close = (left <= _root_eps(left)) | blind
        s = _backtrack(problem, x, at.y, at.value, direction, slope, ~close)
        y = add_scaled(at.y, s, direction)
        value, d = inner_value_and_gradient(problem, x, y)
        size = norm(d)
        # Far away g decides, close by the gradient does.
        better = jnp.isfinite(size) & ((size <= at.size) | ~close)
        stalls = jnp.where(size <= 0.5 * at.size, jnp.zeros_like(at.stalls), at.stalls + 1)
        y, value, d, size = vectors.where(
            better, (y, value, d, size), (at.y, at.value, at.d, at.size)
        )
        # Where g does not fall either, the next step would be this one again.
        over = close | ~(value < at.value)
        running = (size > 0) & ~(over & (stalls >= _STALLS))
        return Newton(y, value, d, size, left, stalls, running, at.steps + 1)

    value, d = inner_value_and_gradient(problem, x, y0)
    size, zero = norm(d), jnp.zeros((), jnp.int32)
    left = jnp.full_like(size, jnp.inf)
    start = Newton(y0, value, d, size, left, zero, jnp.isfinite(size) & (size > 0), zero)
    return lax.while_loop(lambda at: at.running & (at.steps < steps), body, start)


def _scale(y: PyTree, y0: PyTree) -> Float[Array, ""]:
    """What an error of y is measured by: y, or the way to it where that is longer."""
    return jnp.maximum(norm(y), norm(subtract(y, y0)))


def _root_eps(like: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.asarray(jnp.finfo(like.dtype).eps, like.dtype))


class _Trial(NamedTuple):
    s: Float[Array, ""]
    tries: Int[Array, ""]
    running: Bool[Array, ""]


def _backtrack(
    problem: Problem,
    x: PyTree,
    y: PyTree,
    g0: Float[Array, ""],
    direction: PyTree,
    slope: Float[Array, ""],
    when: Bool[Array, ""],
) -> Float[Array, ""]:
    """The first s = 1, ½, ¼, … with g(y + s·direction) ≤ g(y) + 10⁻⁴ s·slope (Armijo); else 1.

    The decision is a flag: under vmap a predicate is evaluated twice, and two evaluations of g may
    be rounded differently.
    """
    g0 = g0.astype(slope.dtype)

    def body(t: _Trial) -> _Trial:
        g = inner_value(problem, x, add_scaled(y, t.s, direction))
        # Written so that a NaN counts as too long.
        enough = g.astype(slope.dtype) <= g0 + _ARMIJO * t.s * slope
        running = ~enough & (t.tries < _HALVINGS)
        return _Trial(jnp.where(enough, t.s, t.s / 2), t.tries + 1, running)

    start = _Trial(jnp.ones_like(slope), jnp.zeros((), jnp.int32), when)
    return lax.while_loop(lambda t: t.running, body, start).s
