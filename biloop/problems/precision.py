"""Mixed precision: functions computed in fewer bits, variables and loops in all of theirs."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from biloop.problem import Composite, Problem


class Lowered(eqx.Module):
    """function(x, y, *data) with floating arrays in `dtype`; what it returns is as precise as y."""

    function: Callable[..., Any]
    dtype: str = eqx.field(static=True)

    def __call__(self, x: PyTree, y: PyTree, *data: PyTree) -> PyTree:
        """Computed in `dtype`."""
        kept = jnp.result_type(*(leaf for leaf in jax.tree.leaves(y) if eqx.is_inexact_array(leaf)))
        return cast(self.function(*cast((x, y, *data), self.dtype)), kept)


def cast(tree: PyTree, dtype: Any) -> PyTree:
    """The tree with its floating arrays in another precision."""
    return jax.tree.map(
        lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, tree
    )


def in_precision(problem: Problem, dtype: Any = jnp.bfloat16) -> Problem:
    """The problem with its functions computed in `dtype`; x, y and v stay as they are.

    Gradients and products come back in the precision of y, in which the loops add them up: what is
    lost is the rounding of single evaluations, about 1 % in bfloat16 and 0.1 % in float16, and no
    residual falls below that. Of a `Composite` only `outputs` is computed so: its loss, a sum over
    samples, and its penalty keep their digits; inner and outer functions that are one piece should
    take means in float32 themselves.

    Parameters
    ----------
    problem : Problem
    dtype : dtype
        Of the evaluations.

    Examples
    --------
    >>> problem = bl.problems.in_precision(problem, jnp.bfloat16)
    """
    dtype = jnp.dtype(dtype)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"dtype must be a floating type such as jnp.bfloat16, got {dtype}.")
    if problem.is_equilibrium or problem.prox is not None:
        raise TypeError("Only a problem whose y minimises a smooth g can be computed in precision.")

    def lowered(function: Any) -> Any:
        if isinstance(function, Composite):
            return Composite(Lowered(function.outputs, dtype.name), function.loss, function.penalty)
        return Lowered(function, dtype.name)

    return dataclasses.replace(
        problem,
        inner=lowered(problem.inner),
        outer=lowered(problem.outer),
    )
