"""The base loop as a compiled program: outer steps until a limit is reached.

Python is entered once per chunk. Data, numbers and limits are arguments, so that changing them
compiles nothing, and the bits do not depend on where one chunk ends and the next begins.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from biloop import vectors
from biloop.compilation import compiled
from biloop.methods import Hypergradient, Warm
from biloop.oracles import Cost
from biloop.outer import OuterStep
from biloop.problem import Problem
from biloop.results import FIRST_FAILURE, Code, Status, code, code_if, failure, first_failure
from biloop.run.sharding import pin

CAPACITY = 4096  # the most outer steps in one call: the length of its record
_UNLIMITED = np.iinfo(np.int32).max


class State(NamedTuple):
    """All that the next outer step needs; a checkpoint holds this and the trace."""

    k: Int[Array, ""]
    x: PyTree
    warm: Warm
    outer: PyTree


class Row(NamedTuple):
    """What one outer step leaves in the record."""

    value: Float[Array, ""]
    hypergradient_norm: Float[Array, ""]
    inner_residual: Float[Array, ""]
    linear_residual: Float[Array, ""]
    gradients: Int[Array, ""]
    products: Int[Array, ""]
    result: Code


class Limits(NamedTuple):
    """When a chunk ends: after so many steps, at ‖h‖² ≤ epsilon, or when the cost is used up."""

    steps: Int[Array, ""]
    epsilon: Float[Array, ""]
    gradients: Int[Array, ""]
    products: Int[Array, ""]
    total: Int[Array, ""]


def outer_step(
    problem: Problem, method: Hypergradient, outer: OuterStep, state: State, epsilon: Array
) -> tuple[State, Row, Code]:
    """One step of the base loop: the next state, a row for the record, and why to stop (or 0).

    h ← method(x);   x ← outer step along −h, unless ‖h‖² ≤ epsilon

    After a failure the next state is of no use; `solve` goes back to the one before it. Whether the
    new x is finite is for the caller to ask, once for many steps: what is not finite stays so.
    """
    h, warm, info = method(problem, state.x, state.warm, state.k)
    size = vectors.norm(h)
    converged = size**2 <= epsilon.astype(size.dtype)

    failed = info.result >= FIRST_FAILURE
    value = jnp.where(failed, jnp.full_like(info.value, jnp.inf), info.value)
    x, memory = outer.step(state.x, h, outer.observe(value, state.outer))
    x = vectors.where(converged, state.x, x)
    result, undone = info.result, outer.undone(memory)
    if undone is not None:
        result = jnp.where(undone, code(Status.UNDONE), result)
        # What a failed loop has left is of no use to the next.
        warm = vectors.where(undone & failed, state.warm, warm)

    row = Row(
        info.value,
        size,
        info.inner_residual,
        info.linear_residual,
        jnp.asarray(info.cost.gradients),
        jnp.asarray(info.cost.products),
        result,
    )
    stop = first_failure(code_if(converged, Status.CONVERGED), failure(result))
    return State(state.k + 1, x, warm, memory), row, stop


@compiled
def advance(
    problem: Problem,
    method: Hypergradient,
    outer: OuterStep,
    state: State,
    limits: Limits,
    capacity: int = CAPACITY,
    layout: PyTree = None,
) -> tuple[State, Row, Int[Array, ""], Code]:
    """Outer steps until a limit is reached: the state, the rows, how many there are, and why.

    An x that is not finite is noticed at the end, not in the step that made it. On many devices
    `layout` says where the state lies; the record is on each of them, as k is.
    """
    shapes = eqx.filter_eval_shape(outer_step, problem, method, outer, state, limits.epsilon)[1]
    rows = jax.tree.map(lambda s: jnp.zeros((capacity, *s.shape), s.dtype), shapes)

    def unfinished(carry: tuple[State, Row, Array, Cost, Code]) -> Array:
        _, _, done, _, stop = carry
        return (done < limits.steps) & (stop == code(Status.COMPLETED))

    def body(
        carry: tuple[State, Row, Array, Cost, Code],
    ) -> tuple[State, Row, Array, Cost, Code]:
        state, rows, done, spent, _ = carry
        state, row, stop = outer_step(problem, method, outer, state, limits.epsilon)
        rows = jax.tree.map(
            lambda rows, entry: lax.dynamic_update_index_in_dim(rows, entry, done, axis=0),
            rows,
            row,
        )
        spent = spent + Cost(row.gradients, row.products)
        stop = jnp.where(stop != code(Status.COMPLETED), stop, check_budget(spent, limits))
        return state, rows, done + 1, spent, stop

    zero = jnp.zeros((), jnp.int32)
    start = (state, rows, zero, Cost(zero, zero), code(Status.COMPLETED))
    state, rows, done, _, stop = lax.while_loop(unfinished, body, start)
    update = code_if(~vectors.all_finite(state.x), Status.UPDATE_NOT_FINITE)
    results = rows.result.at[done - 1].set(first_failure(rows.result[done - 1], update))
    rows, stop = rows._replace(result=results), first_failure(stop, update)
    everywhere = None if layout is None else layout.k
    return pin(state, layout), *pin((rows, done, stop), everywhere)


def check_budget(spent: Cost, limits: Limits) -> Code:
    """BUDGET_SPENT where it is, else COMPLETED."""
    over = (
        (spent.gradients >= limits.gradients)
        | (spent.products >= limits.products)
        | (spent.total >= limits.total)
    )
    return code_if(jnp.asarray(over), Status.BUDGET_SPENT)


def make_limits(
    steps: int, epsilon: float | None, budget: int | Cost | None, spent: Cost
) -> Limits:
    """The limits of the next chunk, given what the run has spent."""
    never = -1.0  # no squared norm is that small
    # NumPy: these are made anew for each chunk, and JAX takes ten times as long to make one.
    return Limits(
        np.int32(steps),  # pyright: ignore[reportArgumentType]
        np.float64(never if epsilon is None else epsilon),  # pyright: ignore[reportArgumentType]
        *(np.int32(n) for n in budget_left(budget, spent)),  # pyright: ignore[reportArgumentType]
    )


def budget_left(budget: int | Cost | None, spent: Cost) -> tuple[int, int, int]:
    """The gradients, the products, and the sum of both that may still be spent."""
    if isinstance(budget, Cost):
        left = budget.gradients - spent.gradients, budget.products - spent.products, _UNLIMITED
    else:
        left = _UNLIMITED, _UNLIMITED, _UNLIMITED if budget is None else budget - spent.total
    gradients, products, total = (min(int(n), _UNLIMITED) for n in left)
    return gradients, products, total
