"""One step of the base loop, and the only place where its failure is decided.

    h ← method(x);   x ← outer step along −h

What a step hands on is always good: where a loop failed, or the new x is not finite, x stays where
it was, and the method has kept what it had before.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.loops.results import FIRST_FAILURE, Code, Status, code, code_if, first_failure
from biloop.methods import Method
from biloop.oracles import SampleCount, outer_metrics
from biloop.outer import OuterStep
from biloop.problem import Problem, same_space
from biloop.problem.variables import as_variable
from biloop.schedules import is_concrete


class Settings(NamedTuple):
    """What a run is given beside its start; all arrays in it are arguments of the program."""

    problem: Problem
    method: Method
    outer: OuterStep


def sample_sizes(settings: Settings) -> tuple[int, int] | None:
    """The numbers of inner and outer samples for a method that draws rows; None for others."""
    if not settings.method.counts_rows:
        return None
    return settings.problem.inner_samples or 1, settings.problem.outer_samples or 1


class State(NamedTuple):
    """All that the next outer step needs; a checkpoint holds this and the trace.

    In a program of many runs each has its own but for k, which is common: loop sizes that depend on
    it would otherwise differ within the program, and all loops run to the longest.
    """

    k: Int[Array, ""]
    x: PyTree
    method: PyTree
    outer: PyTree


Numbers = Float[Array | np.ndarray, "..."]
Counts = Int[Array | np.ndarray, "..."]


class Row(NamedTuple):
    """What one outer step leaves in the record; or many of them, as columns."""

    value: Numbers
    hypergradient_norm: Numbers
    inner_residual: Numbers
    linear_residual: Numbers
    gradients: Counts
    products: Counts
    result: Counts
    inner_samples: Counts
    outer_samples: Counts
    product_samples: Counts
    metrics: Mapping[str, Numbers]


NUMBERS = Row._fields[:4]
COUNTS = Row._fields[4:-1]
SAMPLES = Row._fields[-4:-1]  # rows that were drawn, zero for a method that draws none


def outer_step(
    settings: Settings, state: State, epsilon: Float[Array, ""], stay: Bool[Array, ""]
) -> tuple[State, Row, Code]:
    """The next state, a row for the record, and why to stop (or COMPLETED).

    With `stay`, or where ‖h‖² ≤ epsilon, x is not moved: it is the x that h belongs to.
    """
    problem, method, outer = settings
    h, method_state, info = method(problem, state.x, state.method, state.k)
    size = vectors.norm(h)
    failed = jnp.asarray(info.result) >= FIRST_FAILURE

    value = jnp.where(failed, jnp.full_like(info.value, jnp.nan), info.value)
    x, outer_state, accepted = outer.step(state.x, h, value, state.outer)
    # A point that was left again, or where a loop failed, is no solution however small h is there.
    small = accepted & ~failed & (size**2 <= epsilon.astype(size.dtype))
    update = code_if(~vectors.all_finite(x), Status.UPDATE_NOT_FINITE)
    result = first_failure(
        info.result, code_if(~jnp.isfinite(size), Status.HYPERGRADIENT_NOT_FINITE)
    )
    fatal = first_failure(jnp.where(accepted, result, code(Status.UNDONE)), update)
    x = vectors.where(stay | small | (fatal >= FIRST_FAILURE), state.x, x)

    row = Row(
        info.value,
        size,
        jnp.asarray(info.residuals.inner),
        jnp.asarray(info.residuals.linear),
        jnp.asarray(info.cost.gradients),
        jnp.asarray(info.cost.products),
        fatal,
        *map(jnp.asarray, info.samples or SampleCount()),
        metrics=outer_metrics(problem, state.x, method_state.y) if problem.has_aux else {},
    )
    if outer.finds_its_size:
        # Where g is not convex y depends on its path: it goes back with x, if x does.
        goes_back = ~accepted & ~stay & (info.result == code(Status.NONCONVEX))
        method_state = vectors.where(~goes_back, method_state, state.method)
    stop = jnp.where(fatal >= FIRST_FAILURE, fatal, code_if(small, Status.CONVERGED))
    k = state.k + (stop < FIRST_FAILURE).astype(state.k.dtype)
    return State(k, x, method_state, outer_state), row, stop


def first_state(settings: Settings, x0: Any, y0: Any, v0: Any = None) -> State:
    """Where a run starts, once all of it has been checked."""
    problem, method, outer = settings
    x, y = as_variable(x0, "x0"), as_variable(y0, "y0")
    for name, variable in (("x0", x), ("y0", y)):
        traced = not all(map(is_concrete, jax.tree.leaves(variable)))
        if not traced and not vectors.is_finite_here(variable):
            raise ValueError(f"{name} has entries that are NaN or infinite.")
    state = method.init(problem, x, y)
    if v0 is not None:
        if "v" not in state._fields:
            raise TypeError(
                f"v0 is the start of an adjoint, which {type(method).__name__} has not."
            )
        v = as_variable(v0, "v0")
        same_space(v, y, "v0", "y0")
        state = state._replace(v=v)
    return State(vectors.zeros((), jnp.int32), x, state, outer.init(x))
