"""Runs side by side that the experiments make themselves: what differs has a leading axis."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from biloop.run.engine import Engine
from biloop.run.goal import Goal
from biloop.run.step import Settings, State, first_state


def side_by_side(
    settings: Settings, varies: Settings, x0: PyTree, y0: PyTree, steps: int
) -> Engine:
    """An engine of as many runs as x0 and y0 have rows.

    `varies` has the form of the settings, or of the upper part of it, with True where the arrays
    below have a row for each run, too.
    """
    marks = jax.tree.map(
        lambda mark, part: (
            jax.tree.map(eqx.is_array, part) if mark else jax.tree.map(lambda _: False, part)
        ),
        varies,
        settings,
    )
    varying, shared = eqx.partition(settings, marks)

    def start(varying: Settings, x0: PyTree, y0: PyTree) -> State:
        return first_state(eqx.combine(varying, shared), x0, y0)

    axes = State(None, 0, 0, 0)  # pyright: ignore[reportArgumentType]
    state = jax.vmap(start, out_axes=axes)(varying, x0, y0)
    return Engine(shared, state, Goal(steps), varying, runs=len(jax.tree.leaves(x0)[0]))


def stack(trees: Sequence[PyTree]) -> PyTree:
    """Trees of one structure as one tree with a leading axis."""
    dynamic, static = zip(*(eqx.partition(tree, eqx.is_array) for tree in trees), strict=True)
    return eqx.combine(jax.tree.map(lambda *leaves: jnp.stack(leaves), *dynamic), static[0])


def row(tree: PyTree, i: int) -> PyTree:
    """Row i of all arrays."""
    return jax.tree.map(lambda leaf: leaf[i] if eqx.is_array(leaf) else leaf, tree)
