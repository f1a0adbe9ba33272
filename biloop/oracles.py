"""Derivatives of a problem, and what they cost in the paper's units.

The only file that differentiates a problem. With v the adjoint,

    ∇_y g(x, y)          one gradient
    ∇_x f, ∇_y f         two gradients, from one pass
    ∇²_y g(x, y) v       one product
    ∇_x∇_y g(x, y) v     one product

Whatever y*(x) is, it is a root of a residual F(x, ·), and all that is done about it is done with F:

    a minimum            F = ∇_y g
    with a prox          F = (y − prox(x, y − α∇_y g, α)) / α
    an equilibrium       F = y − T(x, y)

An evaluation of T counts as a gradient, a product with its derivative as a product, proximal maps
and their derivatives as nothing.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from biloop.loops.cost import Cost as Cost
from biloop.loops.cost import SampleCount as SampleCount
from biloop.problem import Composite, Problem
from biloop.problem.variables import frozen_like, thawed
from biloop.vectors import add_scaled, cleaning, norm, scaled, subtract

Product = Callable[[PyTree], PyTree]
StepSize = float | Float[Array, ""]


def inner_value(problem: Problem, x: PyTree, y: PyTree) -> Float[Array, ""]:
    """g(x, y)."""
    return problem.inner(thawed(x), thawed(y), *problem.inner_data)


def outer_value(problem: Problem, x: PyTree, y: PyTree) -> Float[Array, ""]:
    """f(x, y)."""
    value = problem.outer(thawed(x), thawed(y), *problem.outer_data)
    return value[0] if problem.has_aux else value


def outer_metrics(problem: Problem, x: PyTree, y: PyTree) -> dict[str, Array]:
    """What f tells beside its value, for a problem with `has_aux`."""
    return problem.outer(thawed(x), thawed(y), *problem.outer_data)[1]


def started(problem: Problem, x: PyTree, y: PyTree) -> PyTree:
    """y⁰(x) where the problem has one, else y; not differentiated."""
    return y if problem.start is None else frozen_like(problem.start(thawed(x)), y)


def pulled_back(y_of: Product, x: PyTree) -> tuple[PyTree, Product]:
    """y(x), and w ↦ (∂y/∂x)ᵀ w."""
    y, back = jax.vjp(y_of, x)
    return y, lambda w: back(w)[0]


def inner_gradient(problem: Problem, x: PyTree, y: PyTree) -> PyTree:
    """∇_y g(x, y)."""
    return jax.grad(inner_value, argnums=2)(problem, x, y)


def inner_value_and_gradient(
    problem: Problem, x: PyTree, y: PyTree
) -> tuple[Float[Array, ""], PyTree]:
    """g(x, y) and ∇_y g(x, y), for the cost of the latter."""
    return jax.value_and_grad(inner_value, argnums=2)(problem, x, y)


def outer_gradients(
    problem: Problem, x: PyTree, y: PyTree
) -> tuple[Float[Array, ""], PyTree, PyTree]:
    """f(x, y), ∇_x f(x, y), ∇_y f(x, y)."""
    value, (f_x, f_y) = jax.value_and_grad(outer_value, argnums=(1, 2))(problem, x, y)
    return value, f_x, f_y


def linearise(problem: Problem, x: PyTree, y: PyTree) -> tuple[Product, Product]:
    """v ↦ ∇²_y g v and v ↦ ∇_x∇_y g v, both from one linearisation of ∇_y g at (x, y).

    One transposed linearisation gives both, since the Hessian is symmetric. What depends on (x, y)
    alone is computed once; the half that a caller does not use is removed by the compiler.
    """
    _, hessian, cross = gradient_and_products(problem, x, y)
    return hessian, cross


def gradient_and_products(
    problem: Problem, x: PyTree, y: PyTree
) -> tuple[PyTree, Product, Product]:
    """∇_y g(x, y), and what `linearise` gives, from one evaluation."""
    gradient, transpose = jax.vjp(lambda x, y: inner_gradient(problem, x, y), x, y)
    return gradient, lambda v: transpose(v)[1], lambda v: transpose(v)[0]


def products_again(problem: Problem, x: PyTree, y: PyTree) -> tuple[PyTree, Product, Product]:
    """As `gradient_and_products`, forward over reverse: nothing is kept between products."""

    def along(v: PyTree, which: int) -> PyTree:
        gradient = jax.grad(inner_value, argnums=which)
        return jax.jvp(lambda y: gradient(problem, x, y), (y,), (v,))[1]

    return inner_gradient(problem, x, y), lambda v: along(v, 2), lambda v: along(v, 1)


def gauss_newton(problem: Problem, x: PyTree, y: PyTree) -> Product:
    """v ↦ (JᵀSJ + ∇²_y penalty) v for an inner function that is a `Composite`."""
    inner, data, x = problem.inner, problem.inner_data, thawed(x)
    assert isinstance(inner, Composite)
    outputs, push = jax.linearize(lambda y: inner.outputs(x, thawed(y), *data), y)
    pull = transposed(push, y)
    _, bend = jax.linearize(jax.grad(lambda z: inner.loss(x, z, *data)), outputs)
    if (penalty := inner.penalty) is None:
        return lambda v: pull(bend(push(v)))
    _, stiff = jax.linearize(jax.grad(lambda y: penalty(x, thawed(y))), y)
    return lambda v: add_scaled(pull(bend(push(v))), 1.0, stiff(v))


def inner_gradients(problem: Problem, x: PyTree, y: PyTree) -> tuple[PyTree, PyTree]:
    """∇_x g(x, y), ∇_y g(x, y): two gradients, from one pass."""
    return jax.grad(inner_value, argnums=(1, 2))(problem, x, y)


# --- residuals, whatever y*(x) is ---------------------------------------------------------------


def descent_map(problem: Problem, x: PyTree, y: PyTree) -> PyTree:
    """What an inner step evaluates once: ∇_y g(x, y), or y − T(x, y) for an equilibrium."""
    if problem.is_equilibrium:
        return subtract(y, frozen_like(inner_value(problem, x, y), y))
    return inner_gradient(problem, x, y)


def proximal_map(problem: Problem, x: PyTree, z: PyTree, step: StepSize) -> PyTree:
    """prox(x, z, α), and z itself where the problem has none."""
    if problem.prox is None:
        return z
    alpha = jnp.asarray(step, jnp.result_type(jax.tree.leaves(z)[0]))
    return frozen_like(problem.prox(thawed(x), thawed(z), alpha), z)


def residual(problem: Problem, x: PyTree, y: PyTree, step: StepSize) -> PyTree:
    """F(x, y), zero at y*(x). `step` is the α of a proximal map, and not used without one."""
    d = descent_map(problem, x, y)
    if problem.prox is None:
        return d
    return proximal_residual(problem, x, y, d, step)[1]


def proximal_residual(
    problem: Problem, x: PyTree, y: PyTree, d: PyTree, step: StepSize
) -> tuple[PyTree, PyTree]:
    """y⁺ = prox(x, y − α d, α) and (y − y⁺) / α."""
    after = proximal_map(problem, x, add_scaled(y, -jnp.asarray(step), d), step)
    return after, scaled(1 / jnp.asarray(step), subtract(y, after))


def natural_step(problem: Problem, x: PyTree, y: PyTree) -> Float[Array, ""]:
    """‖d‖ / ‖Hd‖ for d = ∇_y g(x, y): a step size for one product; 1 where none is needed."""
    if problem.prox is None:
        return jnp.ones(())
    d, curved = jax.jvp(
        lambda y: inner_gradient(problem, x, y), (y,), (descent_map(problem, x, y),)
    )
    length, bend = norm(d), norm(curved)
    seen = (length > 0) & (bend > 0)
    return jnp.where(seen, length / jnp.where(seen, bend, 1.0), jnp.ones_like(length))


# --- the adjoint system -------------------------------------------------------------------------


class Adjoint(NamedTuple):
    """The system A v = b of the adjoint, and v ↦ what h = ∇_x f − cross(v) takes from it.

    With H = ∇²_y g and P = ∂prox/∂z at z = y − αd, which is symmetric, 0 ⪯ P ⪯ I,

        a minimum       A = H                   b = ∇_y f    cross(v) = ∇_x∇_y g v
        with a prox     A = PHP + P(I − P)/α    b = P∇_y f   cross(v) = ∇_x∇_y g Pv − (∂_x prox)ᵀw
        an equilibrium  A = (I − ∂_y T)ᵀ        b = ∇_y f    cross(v) = −(∂_x T)ᵀ v

    where w = ∇_y f + (I/α − H)Pv. The second is F_yᵀw/α = ∇_y f of the fixed-point equation, made
    symmetric: multiply w − (I − αH)Pw = α∇_y f by P. For the lasso P selects the support, A is H
    restricted to it (Bertrand et al., Implicit differentiation of Lasso-type models, 2020), and
    conjugate gradients never leave it. A is not symmetric for an equilibrium. Where P is a multiple
    of a projection it stands on both sides of all this once more, see `motion`.
    """

    product: Product
    right: PyTree
    cross: Product


def adjoint(
    problem: Problem, x: PyTree, y: PyTree, f_y: PyTree, step: StepSize | None = None
) -> Adjoint:
    """The adjoint system at (x, y), each product one of H or of ∂T, from one linearisation."""
    if problem.is_equilibrium:
        _, transpose = jax.vjp(lambda x, y: descent_map(problem, x, y), x, y)
        return Adjoint(lambda v: transpose(v)[1], f_y, lambda v: transpose(v)[0])
    if problem.prox is None:
        hessian, cross = linearise(problem, x, y)
        return Adjoint(hessian, f_y, cross)

    alpha = jnp.asarray(natural_step(problem, x, y) if step is None else step)
    d, back = jax.vjp(lambda x, y: inner_gradient(problem, x, y), x, y)
    z = add_scaled(y, -alpha, d)
    _, pull = jax.vjp(lambda x, z: proximal_map(problem, x, z, alpha), x, z)
    P = lambda v: pull(v)[1]  # noqa: E731
    A, C = _restricted(lambda v: back(v)[1], P, alpha), cleaning(P, y)

    def total(v: PyTree) -> PyTree:
        Pv = P(C(v))
        from_g, HPv = back(Pv)  # both from one product
        w = add_scaled(subtract(f_y, HPv), 1 / alpha, Pv)
        return subtract(from_g, pull(w)[0])

    return Adjoint(lambda v: C(A(C(v))), C(P(f_y)), total)


def _restricted(hessian: Product, P: Product, alpha: Array) -> Product:
    """v ↦ PHPv + P(I − P)v/α."""

    def product(v: PyTree) -> PyTree:
        Pv = P(v)
        return P(add_scaled(hessian(Pv), 1 / alpha, subtract(v, Pv)))

    return product


def growth(
    problem: Problem, x: PyTree, y: PyTree, v: PyTree, damping: StepSize, products: int
) -> Array:
    """The growth of ‖Bʲv‖ per product, B = I − damping · F_y, over the second half of `products`.

    The spectral radius of B if that many products bring out its largest eigenvalue.
    """
    _, push = jax.linearize(lambda y: descent_map(problem, x, y), y)

    def body(v: PyTree, _: None) -> tuple[PyTree, Array]:
        v = add_scaled(v, -jnp.asarray(damping), push(v))
        length = norm(v)
        return scaled(1 / jnp.where(length > 0, length, 1.0), v), length

    _, lengths = jax.lax.scan(body, v, None, length=products)
    return jnp.exp(jnp.mean(jnp.log(lengths[products // 2 :])))


# --- how y*(x) moves ----------------------------------------------------------------------------

Solve = Callable[[Product, PyTree], PyTree]


def motion(
    problem: Problem, x: PyTree, y: PyTree, moves: PyTree, step: StepSize, solve: Solve
) -> PyTree:
    """ẏ = −F_y⁻¹ (F_problem ṗ + F_x ẋ) at a root y, as a linear function of the tangents `moves`.

    `moves` is like (problem, x), with None for what does not move: also data are arguments of F.
    `solve(matvec, b)` must be linear in b, and differentiable if this is to be. With a prox

        ẏ = c + P C (CAC)⁻¹ C P (c/α − Hc),   c = −α(F_problem ṗ + F_x ẋ)

    with the A of `Adjoint`. What P leaves of a vector across a ball is rounding, which A takes to
    zero and conjugate gradients blow up: C is P, or I where PAP would be worse conditioned than A.
    """
    moving = jax.tree.map(lambda t: t is not None, moves, is_leaf=lambda t: t is None)
    given, rest = eqx.partition((problem, x), moving)
    force = lambda given: residual(*eqx.combine(given, rest), y, step)  # type: ignore # noqa: E731
    _, pushed = jax.jvp(force, (given,), (moves,))
    if problem.prox is None:
        _, product = jax.linearize(lambda y: descent_map(problem, x, y), y)
        return solve(product, scaled(-1.0, pushed))

    alpha = jnp.asarray(step)
    d, hessian = jax.linearize(lambda y: inner_gradient(problem, x, y), y)
    _, P = jax.linearize(lambda z: proximal_map(problem, x, z, alpha), add_scaled(y, -alpha, d))
    c = scaled(-alpha, pushed)
    A, C = _restricted(hessian, P, alpha), cleaning(P, y)
    right = C(P(subtract(scaled(1 / alpha, c), hessian(c))))
    return add_scaled(c, 1.0, P(C(solve(lambda v: C(A(C(v))), right))))


def transposed(product: Product, like: PyTree) -> Product:
    """The transpose of a linear map from the space of `like`."""
    back = jax.linear_transpose(product, like)
    return lambda v: back(v)[0]


def curved_by(problem: Problem, x: PyTree, y: PyTree, step: StepSize, e: PyTree) -> Array:
    """‖F_yᵀ e‖, of which F_y is symmetric: the residual of an error e."""
    return norm(jax.vjp(lambda y: residual(problem, x, y, step), y)[1](e)[0])
