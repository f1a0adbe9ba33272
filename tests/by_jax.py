"""A problem and its derivatives in plain JAX, from nothing but its functions and its data."""

import jax
import jax.numpy as jnp


def inner_product(u, v):
    return sum(map(jnp.vdot, jax.tree.leaves(u), jax.tree.leaves(v)))


def zeros_like(tree):
    return jax.tree.map(jnp.zeros_like, tree)


def inner_value(problem, x, y):
    return problem.inner(x, y, *problem.inner_data)


def outer_value(problem, x, y):
    return problem.outer(x, y, *problem.outer_data)


inner_gradient = jax.grad(inner_value, argnums=2)


def outer_gradients(problem, x, y):
    """f, ∇_x f and ∇_y f."""
    value, (f_x, f_y) = jax.value_and_grad(outer_value, argnums=(1, 2))(problem, x, y)
    return value, f_x, f_y


def linearise(problem, x, y):
    """v ↦ ∇²_y g v and v ↦ ∇_x∇_y g v."""

    def hessian(v):
        return jax.jvp(lambda y: inner_gradient(problem, x, y), (y,), (v,))[1]

    def cross(v):
        return jax.grad(lambda x: inner_product(inner_gradient(problem, x, y), v))(x)

    return hessian, cross
