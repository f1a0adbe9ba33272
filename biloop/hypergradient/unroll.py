"""The derivative of an inner loop with respect to x, backwards or forwards.

A step maps a carry (y, state) to the next one. Only its floating leaves are differentiated: the
counters of an optimizer are carried along.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from biloop.loops import Loop, iterate
from biloop.schedules import Count
from biloop.vectors import add_scaled, inner_product, size, zeros_like

Step = Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]  # x, carry -> carry, gradient


class Unrolled(NamedTuple):
    """A loop that was run, with the means to differentiate where it ended.

    `pull` maps w to (∂y/∂x)ᵀ w. `recomputed` counts the gradients and `products` the products that
    pulling costs.
    """

    y: PyTree
    loop: Loop
    pull: Callable[[PyTree], PyTree]
    recomputed: Int[Array, ""]
    products: Int[Array, ""]


def reverse(
    step: Step,
    x: PyTree,
    start: PyTree,
    steps: Count,
    tolerance: Float[Array, ""] | None,
    room: int,
    stride: int,
) -> Unrolled:
    """Keep the carry before every `stride`-th step, the last ⌈room/stride⌉ of them.

    With stride 1 and fewer places than steps, the way back ends after `room` steps: truncation.
    """
    slots = -(-room // stride)

    def forward(
        state: tuple[Array, PyTree, PyTree],
    ) -> tuple[tuple[Array, PyTree, PyTree], PyTree]:
        t, carry, history = state
        history = _write(history, (t // stride) % slots, carry, stride == 1 or t % stride == 0)
        carry, gradient = step(x, carry)
        return (t + 1, carry, history), gradient

    zero = jnp.zeros((), jnp.int32)
    first = (zero, start, _buffer(start, slots))
    loop = iterate(forward, first, start[0], steps, tolerance)
    _, (y, state), history = loop.state
    used = loop.steps
    reached = jnp.minimum(used, slots * stride)

    def pull(w: PyTree) -> PyTree:
        weights = (w, zeros_like(eqx.filter(state, eqx.is_inexact_array)))
        totals = (zeros_like(x), weights)
        if stride == 1:
            # The last step was taken from slot (used − 1) mod slots.
            return _backward(step, x, history, used - 1, reached, totals)[0]

        segments = (used + stride - 1) // stride

        def segment(j: Array, totals: PyTree) -> PyTree:
            s = segments - 1 - j
            length = jnp.minimum(stride, used - s * stride)
            carries = _replay(step, x, _read(history, s), length, stride)
            return _backward(step, x, carries, length - 1, length, totals)

        return lax.fori_loop(0, segments, segment, totals)[0]

    recomputed = zero if stride == 1 else used - (used + stride - 1) // stride
    return Unrolled(y, loop, pull, recomputed, 2 * reached)


def _replay(step: Step, x: PyTree, carry: PyTree, length: Array, slots: int) -> PyTree:
    """The carries before each of `length` steps from `carry`."""

    def body(t: Array, c: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        carry, history = c
        carry, _ = step(x, carry)
        return carry, _write(history, t + 1, carry)

    history = _write(_buffer(carry, slots), 0, carry)
    return lax.fori_loop(0, length - 1, body, (carry, history))[1]


def _backward(
    step: Step, x: PyTree, history: PyTree, last: Array, length: Array, totals: PyTree
) -> PyTree:
    """Pull (total over x, weights on the carry) back through `length` steps, the last one first.

    v_{j−1} = (∂step/∂carry)ᵀ v_j,   total ← total + (∂step/∂x)ᵀ v_j
    """
    slots = jax.tree.leaves(history)[0].shape[0]

    def body(i: Array, totals: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        total, weights = totals
        carry, rest = eqx.partition(_read(history, (last - i) % slots), eqx.is_inexact_array)
        _, transpose = jax.vjp(lambda x, carry: _smooth(step, x, carry, rest), x, carry)
        contribution, weights = transpose(weights)
        return add_scaled(total, 1.0, contribution), weights

    return lax.fori_loop(0, length, body, totals)


def forward(
    step: Step,
    x: PyTree,
    start: PyTree,
    steps: Count,
    tolerance: Float[Array, ""] | None,
) -> Unrolled:
    """Carry ∂(y, state)/∂x along, one tangent for each of the p coordinates of x."""
    flat, unravel = ravel_pytree(x)
    basis = jax.vmap(unravel)(jnp.eye(flat.size, dtype=flat.dtype))
    tangents = jax.tree.map(
        lambda c: jnp.zeros((flat.size, *c.shape), c.dtype),
        eqx.filter(start, eqx.is_inexact_array),
    )

    def advance(state: tuple[PyTree, PyTree]) -> tuple[tuple[PyTree, PyTree], PyTree]:
        carry, tangents = state
        smooth, rest = eqx.partition(carry, eqx.is_inexact_array)

        def tangent(dx: PyTree, dcarry: PyTree) -> PyTree:
            return jax.jvp(
                lambda x, carry: _smooth(step, x, carry, rest), (x, smooth), (dx, dcarry)
            )[1]

        # The point is the same for all tangents, so it is linearised once.
        tangents = jax.vmap(tangent)(basis, tangents)
        carry, gradient = step(x, carry)
        return (carry, tangents), gradient

    loop = iterate(advance, (start, tangents), start[0], steps, tolerance)
    (y, _), (response, _) = loop.state

    def pull(w: PyTree) -> PyTree:
        return unravel(
            jax.vmap(lambda column: inner_product(column, w))(response).astype(flat.dtype)
        )

    return Unrolled(y, loop, pull, jnp.zeros((), jnp.int32), 2 * size(x) * loop.steps)


def _smooth(step: Step, x: PyTree, carry: PyTree, rest: PyTree) -> PyTree:
    """The floating part of a step's carry as a function of x and of the floating part before it."""
    return eqx.filter(step(x, eqx.combine(carry, rest))[0], eqx.is_inexact_array)


def _buffer(carry: PyTree, slots: int) -> PyTree:
    return jax.tree.map(lambda c: jnp.zeros((slots, *c.shape), c.dtype), carry)


def _read(history: PyTree, slot: Array) -> PyTree:
    return jax.tree.map(lambda h: lax.dynamic_index_in_dim(h, slot, keepdims=False), history)


def _write(history: PyTree, slot: int | Array, carry: PyTree, when: bool | Array = True) -> PyTree:
    return jax.tree.map(
        lambda h, c: lax.dynamic_update_index_in_dim(
            h,
            c
            if when is True
            else jnp.where(when, c, lax.dynamic_index_in_dim(h, slot, keepdims=False)),
            slot,
            axis=0,
        ),
        history,
        carry,
    )
