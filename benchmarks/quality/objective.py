"""Φ(x) = f(x, y*(x)) of many points, in double precision."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import biloop as bl

SMALL = 64  # entries of y up to which Newton's method has a dense matrix
LANES = 25  # points side by side where y is larger
RESIDUAL = 1e-7  # ‖∇_y g‖ at which y is taken for y*(x)


def double(tree: Any) -> Any:
    """The same numbers in double precision."""

    def wide(leaf: Any) -> Any:
        floating = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.astype(jnp.float64) if floating else leaf

    return jax.tree.map(wide, tree)


class Phi:
    """Φ of pairs (x, y), with y*(x) looked for from y; ∞ where it is not found."""

    def __init__(self, problem: bl.Problem, y: jax.Array) -> None:
        self.problem, small = double(problem), y.size <= SMALL
        self.values, self.lanes = (_dense, 1) if small else (_iterative, LANES)

    def __call__(self, points: Sequence[tuple]) -> np.ndarray:
        """Φ of each, by one program for single points and one for many."""
        found: list[float] = []
        lanes = self.lanes if len(points) > 1 else 1
        for first in range(0, len(points), lanes):
            some = list(points[first : first + lanes])
            rows = some + [some[0]] * (lanes - len(some))
            x, y = (double(jnp.stack([jnp.asarray(row[i]) for row in rows])) for i in (0, 1))
            value, good = jax.device_get(self.values(self.problem, x, y))
            good = good & np.isfinite(value)
            found += np.where(good, value, np.inf)[: len(some)].tolist()
        return np.array(found)


@jax.jit
def _dense(problem: bl.Problem, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    exact = bl.Exact()

    def one(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        _, _, info = exact(problem, x, exact.init(problem, x, y), 0)
        return info.value, info.result == bl.Status.COMPLETED.value

    return jax.vmap(one)(x, y)


@jax.jit
def _iterative(problem: bl.Problem, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    solver = bl.NewtonCG(bl.Adaptive(0.1, 500), tolerance=RESIDUAL)

    def one(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        y, _, loop = solver(problem, x, y, solver.init(y), 1)
        return problem.outer(x, y, *problem.outer_data), loop.residual <= 10 * RESIDUAL

    return jax.vmap(one)(x, y)
