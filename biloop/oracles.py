"""Derivatives of a problem, and what they cost in the paper's units.

The only file that differentiates a problem. With v the adjoint,

    ∇_y g(x, y)          one gradient
    ∇_x f, ∇_y f         two gradients, from one pass
    ∇²_y g(x, y) v       one product
    ∇_x∇_y g(x, y) v     one product
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
from jaxtyping import Array, Float, Int, PyTree

from biloop.problem import Problem

Product = Callable[[PyTree], PyTree]


class Cost(NamedTuple):
    """Gc and MV of Definition 2: gradients, and Jacobian- and Hessian-vector products."""

    gradients: int | Int[Array, ""]
    products: int | Int[Array, ""]

    def __add__(self, other: "Cost") -> "Cost":  # type: ignore[override]
        """Add the counts (not the tuples)."""
        return Cost(self.gradients + other.gradients, self.products + other.products)

    @property
    def total(self) -> int | Int[Array, ""]:
        """Gc + MV."""
        return self.gradients + self.products


def inner_value(problem: Problem, x: PyTree, y: PyTree) -> Float[Array, ""]:
    """g(x, y)."""
    return problem.inner(x, y, *problem.inner_data)


def outer_value(problem: Problem, x: PyTree, y: PyTree) -> Float[Array, ""]:
    """f(x, y)."""
    return problem.outer(x, y, *problem.outer_data)


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
    alone (a softmax, say) is computed here once and not again in any product; the half of the pair
    that a caller does not use is removed by the compiler.
    """
    _, transpose = jax.vjp(lambda x, y: inner_gradient(problem, x, y), x, y)
    return lambda v: transpose(v)[1], lambda v: transpose(v)[0]
