"""How many runs fit into memory side by side."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from jaxtyping import PyTree

from biloop.compilation.device_memory import free_bytes
from biloop.run.chunk import Given, Limits
from biloop.run.goal import NEVER
from biloop.run.step import NUMBERS, Settings

_SHARE = 0.5  # of the memory that is free


def lanes_that_fit(needs: Callable[[int], int], most: int) -> int:
    """The largest width up to `most` that needs at most half of the free memory.

    `needs(width)` is in bytes, and linear in the width but for a constant.
    """
    free = _SHARE * free_bytes()
    wide = needs(most)
    if wide <= free or most == 1:
        return most
    single = needs(1)
    each = max(1.0, (wide - single) / (most - 1))
    return int(min(most, max(1, 1 + (free - single) // each)))


def tree_bytes(tree: PyTree) -> int:
    """The size of all arrays of a tree, be they there or only planned."""
    return sum(_size(leaf) for leaf in jax.tree.leaves(tree))


def peak_bytes(jaxpr: Jaxpr) -> int:
    """The most that a program keeps at one time beside its arguments, line by line.

    What is compiled needs less: most intermediate values are never written to memory.
    """
    last_use: dict[Any, int] = {}
    for line, equation in enumerate(jaxpr.eqns):
        last_use |= dict.fromkeys(_variables(equation.invars), line)
    last_use |= dict.fromkeys(_variables(jaxpr.outvars), len(jaxpr.eqns))

    kept: dict[Any, int] = {}
    peak = 0
    for line, equation in enumerate(jaxpr.eqns):
        kept |= {variable: _size(variable.aval) for variable in equation.outvars}
        peak = max(peak, sum(kept.values()) + max(map(peak_bytes, _inside(equation)), default=0))
        kept = {v: size for v, size in kept.items() if last_use.get(v, line) > line}
    return peak


def _inside(equation: JaxprEqn) -> Iterator[Jaxpr]:
    """The programs that an equation runs: the body of a loop, a function."""
    for parameter in jax.tree.leaves(
        tuple(equation.params.values()), is_leaf=lambda p: isinstance(p, ClosedJaxpr | Jaxpr)
    ):
        if isinstance(parameter, ClosedJaxpr):
            yield parameter.jaxpr
        elif isinstance(parameter, Jaxpr):
            yield parameter


def _variables(atoms: Sequence[Any]) -> list[Any]:
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _size(value: Any) -> int:
    return value.size * value.dtype.itemsize


def planned_given(shared: Settings, varying: Settings, width: int) -> Given:
    """The arguments of a chunk of so many runs, to trace it without making them."""
    none, ints = np.full(width, NEVER), np.zeros(width, np.int32)
    left = ints if not shared.method.counts_rows else ints.astype(jnp.result_type(float))
    stay, levels = np.zeros((), bool), np.full((len(NUMBERS), width), np.inf)
    limits = Limits(np.int32(1), levels, none, stay, left, left, left)  # pyright: ignore[reportArgumentType]
    return Given(shared, varying, limits, ints)  # pyright: ignore[reportArgumentType]
