"""SAGA: the last value of every block is kept, and what a batch shows is its change."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from biloop.compilation import apart
from biloop.samples import Pair
from biloop.samples.estimators.base import Compact, Draw, Estimator, Evaluations
from biloop.vectors import InPlace, add_scaled, subtract, zeros_like


class SagaState(NamedTuple):
    """The value that each block had when it was last drawn, at first 0, and the mean of them."""

    mean: Pair
    table: InPlace


class Saga(Estimator):
    """d = mean + new − table[block];   mean += (new − table[block]) / blocks;   table[block] = new.

    Defazio, Bach and Lacoste-Julien (2014). Unbiased, and its variance goes to zero with the steps.
    A step costs what a plain one costs; the table holds the direction once for each block. Where
    inner and outer are a `Composite` with linear=True, new − table[block] = Aᵀ(s − s[block]), and
    the table holds s, a few numbers for each sample.

    Examples
    --------
    >>> bl.schemes.saba(batch=8).estimators
    {'yvx': Saga()}
    """

    @property
    def needs_blocks(self):
        return True

    def init(self, direction, blocks, numbers=None):
        table = Pair(*map(_empty, numbers or direction, blocks))
        return SagaState(zeros_like(direction), InPlace(table))

    def __call__(self, draw, state, k):
        direction, state = saga_step(draw.compact(), draw, state)
        return direction, state, Evaluations(1)


def saga_step(new: Compact, draw: Draw, state: SagaState) -> tuple[Pair, SagaState]:
    """The direction and the next state from what the block of this draw says."""
    table = state.table.content
    row = Pair(*map(_row, table, draw.block))
    change = new.expand(subtract(new.numbers, row))
    direction = add_scaled(state.mean, 1.0, change)
    direction = direction if new.rest is None else add_scaled(direction, 1.0, new.rest)
    mean = Pair(
        *map(lambda m, c, count: add_scaled(m, 1 / count, c), state.mean, change, draw.blocks)
    )
    # What is written has to wait for what is read, or XLA copies the whole table in each step.
    waiting = add_scaled(new.numbers, 0.0, row)
    return direction, SagaState(mean, InPlace(Pair(*map(_written, table, waiting, draw.block))))


def _empty(direction: PyTree, count: int) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), direction)


def _row(table: PyTree, block: Array) -> PyTree:
    read = lambda: jax.tree.map(  # noqa: E731
        lambda t: lax.dynamic_index_in_dim(t, block, keepdims=False), table
    )
    return apart(block >= 0, read, lambda: jax.tree.map(lambda t: jnp.zeros_like(t[0]), table))


def _written(table: PyTree, new: PyTree, block: Array) -> PyTree:
    return jax.tree.map(lambda t, n: lax.dynamic_update_index_in_dim(t, n, block, 0), table, new)
