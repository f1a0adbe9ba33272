"""The way of a run: what an observer sees at chosen outer iterations."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int, PyTree

from biloop.compilation import compiled
from biloop.methods import Hypergradient
from biloop.outer import OuterStep
from biloop.problem import Problem
from biloop.run.chunk import Row, State, outer_step

Observe = Callable[..., PyTree]
"""(x_k, y_k^N, *what is given to `follow`) to what is to be recorded."""


class Path(NamedTuple):
    """Rows of the trace and what was observed at the chosen k, and x and y after the last one."""

    rows: Row
    seen: PyTree
    x: PyTree
    y: PyTree


def outer_variable(x: PyTree, y: PyTree) -> PyTree:
    """Observe x_k."""
    return x


def follow(
    problem: Problem,
    method: Hypergradient,
    outer: OuterStep,
    x0: PyTree,
    y0: PyTree,
    *,
    at: Sequence[int] | Int[Array | np.ndarray, " points"],
    observe: Observe,
    given: tuple[Any, ...] = (),
) -> Path:
    """The outer steps of `solve`, looked at in the iterations `at`, which increase from at least 0.

    One compiled program, also under `jax.vmap`. Nothing ends a run early: one that fails goes on
    with numbers that are not finite.
    """
    return _follow(problem, method, outer, x0, y0, jnp.asarray(at, jnp.int32), observe, given)


@compiled
def _follow(
    problem: Problem,
    method: Hypergradient,
    outer: OuterStep,
    x0: PyTree,
    y0: PyTree,
    at: Array,
    observe: Observe,
    given: tuple[Any, ...],
) -> Path:
    never = jnp.full((), -1.0)

    def step(state: State) -> tuple[State, PyTree, Row]:
        after, row, _stop = outer_step(problem, method, outer, state, never)
        return after, state.x, row

    def look(state: State, steps: Array) -> tuple[State, tuple[Row, PyTree]]:
        shapes = eqx.filter_eval_shape(step, state)
        first = (state, *jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes[1:]))
        # One loop up to the step that is looked at and through it, so that it is compiled once.
        after, x, row = lax.fori_loop(0, steps, lambda _, carry: step(carry[0]), first)
        return after, (row, observe(x, after.warm.y, *given))

    start = State(jnp.zeros((), jnp.int32), x0, method.init(problem, x0, y0), outer.init(x0))
    before_the_first = jnp.full(1, -1, at.dtype)
    end, (rows, seen) = lax.scan(look, start, jnp.diff(at, prepend=before_the_first))
    return Path(rows, seen, end.x, end.warm.y)


def stack(trees: Sequence[PyTree]) -> PyTree:
    """Trees of one structure as one tree with a leading axis, for `jax.vmap`."""
    dynamic, static = zip(*(eqx.partition(tree, eqx.is_array) for tree in trees), strict=True)
    return eqx.combine(jax.tree.map(lambda *leaves: jnp.stack(leaves), *dynamic), static[0])
