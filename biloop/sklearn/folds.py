"""The hypergradient where y holds models that do not know each other: Newton's method on each.

H is block diagonal, so that one product with the same unit vector in all blocks gives a column of
every block: as many products as one model has parameters, and then a factorisation of each block.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.linear.base import linear_info
from biloop.loops.iteration import LoopInfo
from biloop.loops.results import Status, code, code_if
from biloop.methods.base import Info, Method, Residuals, checked_start, judge
from biloop.oracles import (
    Cost,
    Product,
    inner_value,
    inner_value_and_gradient,
    linearise,
    outer_gradients,
)
from biloop.problem import Problem
from biloop.vectors import add_scaled, inner_product, norm, subtract

_STEPS = 50
_HALVINGS = 30
_ARMIJO = 1e-4


class FoldsState(NamedTuple):
    """The models, and the adjoint of each."""

    y: PyTree
    v: PyTree


class _Newton(NamedTuple):
    y: PyTree
    value: Float[Array, ""]
    d: PyTree
    factors: Float[Array, "k q q"]
    step: PyTree  # H⁻¹ ∇_y g
    running: Bool[Array, ""]
    steps: Int[Array, ""]


class FoldsNewton(Method):
    """∇Φ(x) by Newton's method and a Cholesky factorisation for each model.

    y_k ← y_k − s H_k⁻¹ ∇g_k(y_k)   until the decrement ⟨∇g, H⁻¹∇g⟩ is rounding of g
    v_k ← H_k⁻¹ ∇_{y_k} f,   h ← ∇_x f − ∇_x∇_y g v

    All leaves of y have a leading axis of models, of which g is a sum. If each g_k is `quadratic`,
    one step and one factorisation are all there is.
    """

    quadratic: bool = eqx.field(default=False, static=True)

    def init(self, problem, x, y):
        x, y = checked_start(problem, x, y)
        return FoldsState(y, vectors.zeros_like(y))

    def __call__(self, problem, x, state, k):
        at = self._minimise(problem, x, state.y)
        residual = norm(at.d)
        sound = jnp.isfinite(residual)
        y = vectors.where(sound, at.y, state.y)

        value, f_x, f_y = outer_gradients(problem, x, y)
        hessian, cross = linearise(problem, x, y)
        v = solve_blocks(at.factors, f_y)
        left = norm(subtract(hessian(v), f_y))
        h = subtract(f_x, cross(v))

        q, one = vectors.size(y) // len(at.factors), jnp.ones((), jnp.int32)
        factored = one if self.quadratic else at.steps + 1
        cost = Cost(at.steps + (3 if self.quadratic else 4), factored * q + 2)
        failed = code_if(at.running, Status.NEWTON_FAILED)
        inner = LoopInfo(residual, at.steps, cost, failed)
        result = judge(h, value, inner, linear_info(left, one, q * one, code(Status.COMPLETED)))
        info = Info(value, cost, result, Residuals(residual, left))
        return h, FoldsState(y, vectors.where(jnp.isfinite(left), v, state.v)), info

    @property
    def refines(self):
        return True

    def _minimise(self, problem: Problem, x: PyTree, y0: PyTree) -> _Newton:
        def newton_at(y: PyTree, factors: Float[Array, "k q q"], steps: Int[Array, ""]) -> _Newton:
            value, d = inner_value_and_gradient(problem, x, y)
            if not self.quadratic:
                factors = factorised(linearise(problem, x, y)[0], y)
            step = solve_blocks(factors, d)
            noise = 4 * jnp.finfo(value.dtype).eps * jnp.abs(value)
            running = inner_product(d, step) > noise  # False for NaN, which the residual tells
            return _Newton(y, value, d, factors, step, running, steps)

        def body(at: _Newton) -> _Newton:
            s = jnp.ones_like(at.value) if self.quadratic else _backtrack(problem, x, at)
            return newton_at(add_scaled(at.y, -s, at.step), at.factors, at.steps + 1)

        factors = factorised(linearise(problem, x, y0)[0], y0)
        start = newton_at(y0, factors, jnp.zeros((), jnp.int32))
        if self.quadratic:
            return body(start)._replace(running=jnp.zeros((), bool))
        at = lax.while_loop(lambda at: at.running & (at.steps < _STEPS), body, start)
        # g cannot tell points apart any more, but its gradient can: the last step is at hand.
        y = add_scaled(at.y, -1.0, at.step)
        value, d = inner_value_and_gradient(problem, x, y)
        better = norm(d) < norm(at.d)
        y, value, d = vectors.where(better, (y, value, d), (at.y, at.value, at.d))
        return at._replace(y=y, value=value, d=d)


def factorised(hessian: Product, y: PyTree) -> Float[Array, "k q q"]:
    """The lower Cholesky factors of the blocks of a block diagonal product."""
    one, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], y))
    models = len(jax.tree.leaves(y)[0])

    def column(e: Float[Array, " q"]) -> Float[Array, "k q"]:
        tree = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (models, *leaf.shape)), unravel(e))
        return _flat(hessian(tree))

    columns = jax.vmap(column, out_axes=2)(jnp.eye(one.size, dtype=one.dtype))
    return jnp.linalg.cholesky((columns + jnp.swapaxes(columns, 1, 2)) / 2)


def solve_blocks(factors: Float[Array, "k q q"], b: PyTree) -> PyTree:
    """H⁻¹ b from the factors of the blocks of H."""
    _, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], b))
    return jax.vmap(lambda L, c: unravel(cho_solve((L, True), c)))(factors, _flat(b))


def _flat(tree: PyTree) -> Float[Array, "k q"]:
    return jax.vmap(lambda one: ravel_pytree(one)[0])(tree)


def _backtrack(problem: Problem, x: PyTree, at: _Newton) -> Float[Array, ""]:
    """The first s = 1, ½, ¼, … with g(y − s·step) ≤ g(y) − 10⁻⁴ s·decrement (Armijo)."""
    slope = _ARMIJO * inner_product(at.d, at.step)
    rounding = 4 * jnp.finfo(slope.dtype).eps * jnp.abs(at.value)

    def body(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        s, tries, _ = carry
        g = inner_value(problem, x, add_scaled(at.y, -s, at.step))
        enough = g <= at.value - s * slope + rounding
        return jnp.where(enough, s, s / 2), tries + 1, ~enough & (tries < _HALVINGS)

    start = (jnp.ones_like(slope), jnp.zeros((), jnp.int32), jnp.ones((), bool))
    return lax.while_loop(lambda carry: carry[2], body, start)[0]
