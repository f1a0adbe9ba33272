"""AID in plain JAX, with ∇Φ by dense algebra: truth that shares no code with the library."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

HUGE = 1e60  # whoever is beyond has left the numbers, or will within a few steps


class Path(NamedTuple):
    """‖∇Φ(x_k)‖² and Φ(x_k) for k = 0, 1, …, whether the run failed, and the cost of a step."""

    squares: np.ndarray
    values: np.ndarray
    failed: bool
    step_cost: int

    def is_at(self, k, norm2, value):
        """Whether x_k is at the target."""
        return bool(self.squares[k] <= norm2 and self.values[k] <= value)

    def touches(self, norm2, value):
        """Whether it is ever at the target."""
        return bool(np.any((self.squares <= norm2) & (self.values <= value)))

    def cost(self, norm2, value):
        """Gradients and products to the k from which on it is at the target; ∞ if it failed."""
        off = np.flatnonzero(~((self.squares <= norm2) & (self.values <= value)))
        arrived = off[-1] + 1 if len(off) else 0
        reached = arrived < len(self.squares) and not self.failed
        return self.step_cost * arrived if reached else math.inf


def paths(problem, x0, y0, N, Q, alpha, betas, budget):
    """The path of AID with each outer step of `betas`; x, y are vectors."""

    def g(x, y):
        return problem.inner(x, y, *problem.inner_data)

    def f(x, y):
        return problem.outer(x, y, *problem.outer_data)

    slope, hessian = jax.grad(g, argnums=1), jax.hessian(g, argnums=1)

    def hypergradient(x, y, v):
        return jax.grad(f)(x, y) - jax.grad(lambda x: slope(x, y) @ v)(x)

    def step(beta, state, _):
        x, y, v = state
        y = jax.lax.fori_loop(0, N, lambda _, y: y - alpha * slope(x, y), y)
        b = jax.grad(f, argnums=1)(x, y)
        product = jax.linearize(lambda y: slope(x, y), y)[1]
        v = jax.lax.fori_loop(0, Q, lambda _, v: v - alpha * (product(v) - b), v)
        x = x - beta * hypergradient(x, y, v)
        return (x, y, v), (x, jnp.max(jnp.abs(jnp.concatenate([x, y, v]))))

    @jax.jit
    @jax.vmap
    def run(beta):
        steps = -(-budget // (N + Q + 3))
        return jax.lax.scan(partial(step, beta), (x0, y0, 0 * y0), length=steps)[1]

    xs, largest = run(jnp.asarray(betas, float))
    failed = ~np.all(np.asarray(largest) < HUGE, axis=1)
    xs = jnp.concatenate([jnp.broadcast_to(x0, (len(betas), 1, *x0.shape)), xs], axis=1)
    flat = xs.reshape(-1, *x0.shape)
    flat = jnp.where(jnp.abs(flat) < 100, flat, 100)  # far from any target, and finite
    squares, values = _truth(f, slope, hessian, hypergradient, flat, y0)
    shape = len(betas), -1
    return [
        Path(s, v, bool(bad), N + Q + 3)
        for s, v, bad in zip(squares.reshape(shape), values.reshape(shape), failed, strict=True)
    ]


def _truth(f, slope, hessian, hypergradient, xs, y0):
    """‖∇Φ‖² and Φ at each x, by Newton's method with halved steps and dense systems."""
    slopes, hessians = jax.jit(jax.vmap(slope)), jax.jit(jax.vmap(hessian))
    ys = np.broadcast_to(np.asarray(y0), (len(xs), *y0.shape)).copy()
    size = np.linalg.norm(slopes(xs, ys), axis=1)
    for _ in range(60):
        d, before = _solve_each(hessians(xs, ys), slopes(xs, ys)), size.copy()
        for t in (1.0, 0.5, 0.25, 0.1, 0.02):
            there = ys - t * d
            after = np.linalg.norm(slopes(xs, there), axis=1)
            better = after < size
            ys[better], size[better] = there[better], after[better]
        if np.array_equal(size, before, equal_nan=True):
            break  # nobody has moved, nor would the next time
    vs = _solve_each(hessians(xs, ys), jax.jit(jax.vmap(jax.grad(f, argnums=1)))(xs, ys))
    hs = jax.jit(jax.vmap(hypergradient))(xs, ys, vs)
    return np.sum(np.asarray(hs) ** 2, axis=1), np.asarray(jax.jit(jax.vmap(f))(xs, ys))


def _solve_each(matrices, vectors):
    return np.linalg.solve(matrices, np.asarray(vectors)[..., None])[..., 0]
