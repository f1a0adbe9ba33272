"""∇Φ(x), measured: the truth that runs are judged by, and no part of their cost.

Where y is small and g smooth, `Exact`. Otherwise both systems are solved a little further in each
round, by `NewtonCG` and `CG` from where the last round ended (with a proximal map by `FISTA` and
`CG`, for an equilibrium by `Anderson` and `GMRES`),

    y ≈ y*(x),   H v ≈ ∇_y f(x, y),   h = ∇_x f − ∇_x∇_y g v

until h changes by less than the accuracy that is asked for. Each round leaves a small share of the
error, so that what changed in the last one bounds what is left. Where rounding keeps a loop from
that, h must not change in two rounds, and ‖residual‖ / μ be small against y and v. The accuracy
that was reached is reported, and nothing is called found that was not.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.inner import FISTA, Anderson, InnerSolver, NewtonCG
from biloop.linear import CG, GMRES, LinearSolver
from biloop.linear.dense import dense_matrix, solve_symmetric
from biloop.loops.adaptive import learn, seen_inverse_mu
from biloop.loops.iteration import LoopInfo
from biloop.loops.results import FIRST_FAILURE, Status, code
from biloop.methods.exact import Exact, ExactState
from biloop.oracles import adjoint, linearise, outer_gradients
from biloop.problem import Problem
from biloop.schedules import Adaptive
from biloop.vectors import add_scaled, norm, subtract

SMALL = 64  # the largest dimension of y for dense algebra
_SHARE = 0.03  # of the error that is left by a round
_ROUNDS = 12
_PRODUCTS = 500  # for one system in one round
_STEPS = 20_000  # of descent in one round
_SIGNS = 4  # ways in which roundings may add up


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
    if is_small(y) and problem.kind == "minimum":
        return _dense(problem, x, y, v)
    return _iterative(problem, x, y, v, accuracy, level, lost)


def _dense(problem: Problem, x: PyTree, y: PyTree, v: PyTree) -> Truth:
    """By `Exact`; its error is what h changes by where y and v are off by what rounding leaves.

    Each product in H y is off by a rounding, so that y is off by H⁻¹ of about Σ_j |H_ij||y_j| eps
    with some signs, and v likewise. (Twice the same, from points that are off by a rounding, does
    not show it: the rounding of H is the same both times.)
    """
    h, (y, v), info = Exact()(problem, x, ExactState(y, v), 0)
    H = dense_matrix(linearise(problem, x, y)[0], y)

    def off(signs: Array) -> Float[Array, ""]:
        def left(a: PyTree, further: PyTree) -> PyTree:
            flat, unravel = ravel_pytree(a)
            rounding = vectors.eps(a) * signs * (jnp.abs(H) @ jnp.abs(flat).astype(H.dtype))
            error, _, _ = solve_symmetric(H, rounding + ravel_pytree(further)[0].astype(H.dtype))
            return unravel(error.astype(flat.dtype))

        near = add_scaled(y, 1.0, left(y, vectors.zeros_like(y)))
        _, f_x, f_y = outer_gradients(problem, x, near)
        hessian, cross = linearise(problem, x, near)
        w = add_scaled(v, 1.0, left(v, subtract(f_y, hessian(v))))
        return norm(subtract(subtract(f_x, cross(w)), h))

    signs = jax.random.rademacher(jax.random.key(0), (_SIGNS, len(H)), H.dtype)
    return Truth(h, info.value, y, v, jnp.max(lax.map(off, signs)), info.result < FIRST_FAILURE)


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
    solver, system = _solvers(problem)

    def body(last: _Round) -> _Round:
        before = last.truth
        y, inner_state, inner = solver(problem, x, before.y, last.inner, 1)
        value, f_x, f_y = outer_gradients(problem, x, y)
        at = adjoint(problem, x, y, f_y, solver.proximal_step(inner_state, y))
        v, linear_state, linear = system(at.product, at.right, before.v, last.linear, 1)
        h = subtract(f_x, at.cross(v))
        if problem.kind == "proximal":
            # Steps of descent see less of the smallest curvature than conjugate gradients do.
            inner_state = learn(inner_state, linear_state)

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
    start = _Round(nothing, solver.init(y), system.init(v), jnp.zeros((), jnp.int32), ~_no())
    return lax.while_loop(lambda s: s.running & (s.rounds < _ROUNDS), body, start).truth


def _solvers(problem: Problem) -> tuple[InnerSolver, LinearSolver]:
    loops = Adaptive(_SHARE, _PRODUCTS)
    match problem.kind:
        case "minimum":
            return NewtonCG(loops), CG(loops)
        case "proximal":
            return FISTA(step_size="auto", steps=Adaptive(_SHARE, _STEPS)), CG(loops)
        case "equilibrium":
            return Anderson(steps=loops), GMRES(loops)


def _is_close(loop: LoopInfo, seen: PyTree, point: PyTree) -> Bool[Array, ""]:
    """Whether the error of a point is small against it: ‖residual‖ / μ bounds it."""
    inverse_mu = seen_inverse_mu(seen)
    if inverse_mu is None:
        return _no()
    return loop.residual * inverse_mu <= _SHARE * norm(point)


def _value_like(problem: Problem, x: PyTree, y: PyTree) -> Float[Array, ""]:
    value, _, _ = outer_gradients(problem, x, y)
    return value


def _no() -> Bool[Array, ""]:
    return jnp.zeros((), bool)
