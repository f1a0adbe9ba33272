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
from jaxtyping import Array, Int, PyTree

from biloop.loops.iteration import Loop, Rule, iterate
from biloop.loops.results import Status, code
from biloop.vectors import add_scaled, inner_product, norm, size, where, zeros_like

Step = Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]  # x, carry -> carry, gradient
Finish = Callable[[Array, PyTree, PyTree], PyTree]  # arrived, y, state -> the y to return
Transpose = Callable[[PyTree], tuple[PyTree, PyTree]]  # weights -> for x, for the carry before


def _within(rule: Rule, carry_of: Callable[[PyTree], PyTree]) -> Rule:
    """The rule for a loop whose state has the carry somewhere in it."""
    if rule.adaptive is None:
        return rule
    observe = rule.adaptive.observe
    return rule._replace(
        adaptive=rule.adaptive._replace(
            observe=lambda own, before, after, residual: observe(
                own, carry_of(before), carry_of(after), residual
            )
        )
    )


class Unrolled(NamedTuple):
    """A loop that was run, with the means to differentiate where it ended.

    `pull` maps w to (∂y/∂x)ᵀ w, and to the weights that are left on the y that the loop started at
    (None from `forward`, which does not go back there). `recomputed` counts the gradients and
    `products` the products that pulling costs.
    """

    y: PyTree
    state: PyTree
    loop: Loop
    pull: Callable[[PyTree], tuple[PyTree, PyTree]]
    recomputed: Int[Array, ""]
    products: Int[Array, ""]


def store(step: Step, finish: Finish, x: PyTree, start: PyTree, steps: int, last: int) -> Unrolled:
    """Keep the linearisation of each of the last `last` steps, and compute nothing twice."""
    carry = lax.fori_loop(0, steps - last, lambda _, carry: step(x, carry)[0], start)
    carry, gradient, transpose = linearise_steps(step, x, carry, last, keep=True)
    arrived = jnp.zeros((), bool)
    y, weights = _finish(finish, arrived, carry)

    def pull(w: PyTree) -> tuple[PyTree, PyTree]:
        on_x, (on_start, _) = transpose(weights(w))
        return on_x, on_start

    used = jnp.asarray(steps, jnp.int32)
    loop = Loop(carry, norm(gradient), used, used, arrived, code(Status.COMPLETED))
    products = jnp.asarray(2 * last, jnp.int32)
    return Unrolled(y, carry[1], loop, pull, jnp.zeros_like(used), products)


def linearise_steps(
    step: Step, x: PyTree, carry: PyTree, length: int, *, keep: bool
) -> tuple[PyTree, PyTree, Transpose]:
    """The carry after `length` steps, their last gradient, and the way back through them.

    With `keep` the linearisations are kept until then, otherwise the carries from which they are
    made again. What is the same in every step, such as the data, JAX keeps once.
    """
    advance = step if keep else jax.checkpoint(step, prevent_cse=False)
    smooth, rest = eqx.partition(carry, eqx.is_inexact_array)

    def run(x: PyTree, smooth: PyTree) -> tuple[PyTree, tuple[PyTree, PyTree]]:
        def body(carries: tuple[PyTree, PyTree], _: None) -> tuple[tuple[PyTree, PyTree], None]:
            carry, gradient = advance(x, carries[0])
            return (carry, lax.stop_gradient(gradient)), None

        carry = eqx.combine(smooth, rest)
        (carry, gradient), _ = lax.scan(body, (carry, zeros_like(carry[0])), length=length)
        return eqx.filter(carry, eqx.is_inexact_array), (carry, gradient)

    _, transpose, (carry, gradient) = jax.vjp(run, x, smooth, has_aux=True)
    return carry, gradient, transpose


def reverse(
    step: Step,
    finish: Finish,
    x: PyTree,
    start: PyTree,
    rule: Rule,
    recent: int,
    segments: int = 0,
    *,
    keep: bool = False,
) -> Unrolled:
    """Keep the carries of the last `recent` steps, and that before each of `segments` segments.

    A segment is `recent` steps long. The last one, whole or not, is pulled back through the carries
    that were kept; those before it are run again, one at a time, from where they started. Without
    segments the way back ends after `recent` steps: truncation, if there were more.
    """
    # Indices are not negative: lax.rem and lax.div spare the corrections of % and //.
    length = jnp.asarray(recent, jnp.int32)
    # A step that is not kept has written its place before that was known.
    slots = recent + 1 if rule.judges else recent

    def forward(
        state: tuple[Array, PyTree, PyTree, PyTree],
    ) -> tuple[tuple[Array, PyTree, PyTree, PyTree], PyTree]:
        t, carry, latest, starts = state
        latest = _write(latest, lax.rem(t, jnp.asarray(slots, jnp.int32)), carry)
        if segments:
            # Written in every step of a segment, the place of the next one ends with its start.
            starts = _write(starts, lax.div(t + (length - 1), length), carry)
        carry, gradient = step(x, carry)
        return (t + 1, carry, latest, starts), gradient

    def choose(stay: Array, before: PyTree, after: PyTree) -> PyTree:
        # What was written to the buffers is beyond the steps that are gone back through.
        return *where(stay, before[:2], after[:2]), *after[2:]

    zero = jnp.zeros((), jnp.int32)
    first = (zero, start, _buffer(start, slots), _buffer(start, segments + 1 if segments else 0))
    rule = _within(rule, lambda state: state[1])
    loop = iterate(forward, first, start[0], rule, residual_first=True, choose=choose)
    _, carry, latest, starts = loop.state
    y, weights = _finish(finish, loop.arrived, carry)
    used = loop.moves
    whole = lax.div(jnp.maximum(used - 1, 0), length) if segments else zero

    def pull(w: PyTree) -> tuple[PyTree, PyTree]:
        rest = jnp.minimum(used - whole * length, length)
        totals = _backward(step, x, latest, used - 1, rest, (zeros_like(x), weights(w)))
        if not segments:
            return totals[0], totals[1][0]

        def segment(j: Array, totals: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
            total, weights = totals
            carry = _read(starts, whole - 1 - j)
            _, _, transpose = linearise_steps(step, x, carry, recent, keep=keep)
            contribution, weights = transpose(weights)
            return add_scaled(total, 1.0, contribution), weights

        total, (on_start, _) = lax.fori_loop(0, whole, segment, totals)
        return total, on_start

    reached = used if segments else jnp.minimum(used, length)
    return Unrolled(y, carry[1], loop, pull, whole * length, 2 * reached)


def _backward(
    step: Step, x: PyTree, latest: PyTree, last: Array, length: Array, totals: PyTree
) -> PyTree:
    """Pull (total over x, weights on the carry) back through `length` steps, the last one first.

    v_{j−1} = (∂step/∂carry)ᵀ v_j,   total ← total + (∂step/∂x)ᵀ v_j
    """
    slots = jnp.asarray(jax.tree.leaves(latest)[0].shape[0], jnp.int32)

    def body(i: Array, totals: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        total, weights = totals
        carry, rest = eqx.partition(_read(latest, lax.rem(last - i, slots)), eqx.is_inexact_array)
        _, transpose = jax.vjp(lambda x, carry: _smooth(step, x, carry, rest), x, carry)
        contribution, weights = transpose(weights)
        return add_scaled(total, 1.0, contribution), weights

    return lax.fori_loop(0, length, body, totals)


def forward(step: Step, finish: Finish, x: PyTree, start: PyTree, rule: Rule) -> Unrolled:
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

    rule = _within(rule, lambda state: state[0])
    loop = iterate(advance, (start, tangents), start[0], rule, residual_first=True)
    carry, response = loop.state
    y, weights = _finish(finish, loop.arrived, carry)

    def pull(w: PyTree) -> tuple[PyTree, PyTree]:
        on_carry = weights(w)
        slopes = jax.vmap(lambda column: inner_product(column, on_carry))(response)
        return unravel(slopes.astype(flat.dtype)), None

    zero = jnp.zeros((), jnp.int32)
    return Unrolled(y, carry[1], loop, pull, zero, 2 * size(x) * loop.steps)


def _smooth(step: Step, x: PyTree, carry: PyTree, rest: PyTree) -> PyTree:
    """The floating part of a step's carry as a function of x and of the floating part before it."""
    return eqx.filter(step(x, eqx.combine(carry, rest))[0], eqx.is_inexact_array)


def _finish(
    finish: Finish, arrived: Array, carry: PyTree
) -> tuple[PyTree, Callable[[PyTree], PyTree]]:
    """The y that the loop returns, and the way from weights on it to weights on the carry."""
    smooth, rest = eqx.partition(carry, eqx.is_inexact_array)
    y, transpose = jax.vjp(lambda smooth: finish(arrived, *eqx.combine(smooth, rest)), smooth)
    return y, lambda w: transpose(w)[0]


def _buffer(carry: PyTree, slots: int) -> PyTree:
    return jax.tree.map(lambda c: jnp.zeros((slots, *c.shape), c.dtype), carry)


def _read(history: PyTree, slot: Array) -> PyTree:
    return jax.tree.map(lambda h: lax.dynamic_index_in_dim(h, slot, keepdims=False), history)


def _write(history: PyTree, slot: Array, carry: PyTree) -> PyTree:
    return jax.tree.map(
        lambda h, c: lax.dynamic_update_index_in_dim(h, c, slot, axis=0), history, carry
    )
