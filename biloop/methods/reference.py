"""∇Φ(x), measured: the truth that runs are judged by, and no part of their cost.

Where y is small, `Exact`. Otherwise both systems are solved a little further in each round, by
`NewtonCG` and `CG` from where the last round ended,

    y ≈ y*(x),   H v ≈ ∇_y f(x, y),   h = ∇_x f − ∇_x∇_y g v

until h changes by less than the accuracy that is asked for. Each round leaves a small share of the
error, so that what changed in the last one bounds what is left. Where rounding keeps a loop from
that, h must not change in two rounds, and ‖residual‖ / μ be small against y and v. The accuracy
that was reached is reported, and nothing is called found that was not.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.inner import NewtonCG
from biloop.linear import CG
from biloop.loops.adaptive import Curvature
from biloop.loops.iteration import LoopInfo
from biloop.methods.exact import Exact, ExactState
from biloop.oracles import linearise, outer_gradients
from biloop.problem import Problem
from biloop.results import FIRST_FAILURE, Status, code
from biloop.schedules import Adaptive
from biloop.vectors import norm, subtract

SMALL = 64  # the largest dimension of y for dense algebra
_SHARE = 0.03  # of the error that is left by a round
_ROUNDS = 12
_PRODUCTS = 500  # for one system in one round


class Truth(NamedTuple):
    """∇Φ(x) and Φ(x), y ≈ y*(x) and the adjoint, the error of ∇Φ as a norm, and if it was found."""

    h: PyTree
    value: Float[Array, ""]
    y: PyTree
    v: PyTree
    error: Float[Array, ""]
    found: Bool[Array, ""]

    @property
    def size(self) -> Float[Array, ""]:
        """‖∇Φ(x)‖."""
        return norm(self.h)


def is_small(y: PyTree) -> bool:
    """Whether dense algebra is used for this y."""
    return vectors.size(y) <= SMALL


def measure(
    problem: Problem,
    x: PyTree,
    y: PyTree,
    v: PyTree,
    *,
    accuracy: float | Float[Array, ""],
    level: float | Float[Array, ""] = 0.0,
    lost: float | Float[Array, ""] = jnp.inf,
) -> Truth:
    """The truth at x, looked for from y and v.

    `accuracy` is relative to ‖∇Φ‖, or to `level` where that is larger: norms below it need only be
    known to be below it. A gradient beyond `lost` is not looked at any closer. Traceable.
    """
    if is_small(y):
        return _dense(problem, x, y, v)
    return _iterative(problem, x, y, v, accuracy, level, lost)


def _dense(problem: Problem, x: PyTree, y: PyTree, v: PyTree) -> Truth:
    h, state, info = Exact()(problem, x, ExactState(y, v), 0)
    found = info.result < FIRST_FAILURE
    rounding = vectors.eps(y) ** 0.5
    return Truth(h, info.value, state.y, state.v, rounding * norm(h), found)


class _Round(NamedTuple):
    truth: Truth
    inner: PyTree
    linear: PyTree
    rounds: Int[Array, ""]
    running: Bool[Array, ""]


def _iterative(
    problem: Problem,
    x: PyTree,
    y: PyTree,
    v: PyTree,
    accuracy: float | Float[Array, ""],
    level: float | Float[Array, ""],
    lost: float | Float[Array, ""],
) -> Truth:
    loops = Adaptive(_SHARE, _PRODUCTS)
    newton, cg = NewtonCG(loops), CG(loops)

    def body(last: _Round) -> _Round:
        before = last.truth
        y, inner_state, inner = newton(problem, x, before.y, last.inner, 1)
        value, f_x, f_y = outer_gradients(problem, x, y)
        hessian, cross = linearise(problem, x, y)
        v, linear_state, linear = cg(hessian, f_y, before.v, last.linear, 1)
        h = subtract(f_x, cross(v))

        size, change = norm(h), norm(subtract(h, before.h))
        arrived = (inner.result == code(Status.COMPLETED)) & (
            linear.result == code(Status.COMPLETED)
        )
        wanted = accuracy * jnp.maximum(size, jnp.asarray(level, size.dtype))
        # At rounding no share of what a round changes is left to remove, which is as good.
        rounding = (before.error <= wanted) & (
            _is_close(inner, inner_state, y) & _is_close(linear, linear_state, v)
        )
        found = (arrived | rounding) & (change <= wanted) & (last.rounds > 0)
        hopeless = (linear.result >= FIRST_FAILURE) | ~jnp.isfinite(size)
        far = size > jnp.asarray(lost, size.dtype)
        running = ~found & ~hopeless & ~far
        truth = Truth(h, value, y, v, change, (found | far) & ~hopeless)
        return _Round(truth, inner_state, linear_state, last.rounds + 1, running)

    far = jnp.full((), jnp.inf, vectors.accumulator(x))
    nothing = Truth(vectors.zeros_like(x), _value_like(problem, x, y), y, v, far, _no())
    start = _Round(nothing, newton.init(y), cg.init(v), jnp.zeros((), jnp.int32), ~_no())
    return lax.while_loop(lambda s: s.running & (s.rounds < _ROUNDS), body, start).truth


def _is_close(loop: LoopInfo, seen: PyTree, point: PyTree) -> Bool[Array, ""]:
    """Whether the error of a point is small against it: ‖residual‖ / μ bounds it."""
    assert isinstance(seen, Curvature)
    return loop.residual * seen.inverse_mu <= _SHARE * norm(point)


def _value_like(problem: Problem, x: PyTree, y: PyTree) -> Float[Array, ""]:
    value, _, _ = outer_gradients(problem, x, y)
    return value


def _no() -> Bool[Array, ""]:
    return jnp.zeros((), bool)
