"""What the modes of ITD, and products of AID, keep in bytes, before anything runs; and what fits.

With C the bytes of a carry (y and what the inner method remembers), D those of its part on which
the derivative of a step depends, R those of a step's linearisation and G those that a gradient of g
needs on its way, a loop of N steps keeps

    store        N R                             every linearisation
    recompute    N D + R                         every iterate, and one linearisation at a time
    sqrt         (N/s) C + s R, or s D + R       s = ⌈√N⌉: the starts of segments, and one segment
    forward      p (2C + G) and p²               p tangents of the carry, with x of dimension p

besides what is the same in every step and kept once. Data are not counted: no mode copies them.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
from jax.extend.core import Literal
from jaxtyping import PyTree

from biloop.compilation.device_memory import free_bytes
from biloop.methods.unroll import Step, linearise_steps
from biloop.oracles import inner_gradient, inner_value
from biloop.problem import Problem
from biloop.vectors import size

BY_SPEED = ("store", "recompute", "sqrt")  # what "auto" chooses from
_SHARE = 0.5  # of the memory that is free: other programs and the rest of the run need some, too


class Sizes(NamedTuple):
    """The bytes of the pieces: C, D, R and G of above, what is kept once, f's needs, and of x."""

    carry: int
    iterate: int
    linearisation: int
    inner: int
    once: int
    outer: int
    x: int
    p: int


class Segments(NamedTuple):
    """The segments of mode "sqrt": their length, their number, and whether to keep linearisations.

    All but the last segment are run again. Where the linearisations of a whole one take less than
    all iterates would, they are kept meanwhile; otherwise each step is linearised once more.
    """

    length: int
    number: int
    keep: bool


def measure(
    step: Step,
    x: PyTree,
    start: PyTree,
    inner: Callable[[PyTree, PyTree], PyTree],
    outer: Callable[[PyTree, PyTree], PyTree],
) -> Sizes:
    """The sizes for this step from this start, by tracing it; g and f are functions of x and y.

    Two lengths tell what is kept in each step from what is kept once.
    """

    def kept(length: int, keep: bool) -> int:
        return _new_bytes(
            lambda x, start: linearise_steps(step, x, start, length, keep=keep)[2], x, start
        )

    def gradient(function: Callable[[PyTree, PyTree], PyTree]) -> int:
        return _new_bytes(lambda x, y: jax.vjp(function, x, y)[1], x, start[0])

    two = kept(2, keep=True)
    linearisation = kept(3, keep=True) - two
    return Sizes(
        carry=tree_bytes(start),
        iterate=kept(3, keep=False) - kept(2, keep=False),
        linearisation=linearisation,
        inner=gradient(inner),
        once=two - 2 * linearisation,
        outer=gradient(outer),
        x=tree_bytes(x),
        p=size(x),
    )


def segments(sizes: Sizes, room: int) -> Segments:
    """The segments of a loop of at most `room` steps."""
    length = math.isqrt(room - 1) + 1
    number = -(-room // length)
    kept = number * sizes.carry + length * sizes.linearisation
    return Segments(length, number, keep=kept <= room * sizes.iterate)


def predict(sizes: Sizes, room: int, *, whole: bool) -> dict[str, int]:
    """Bytes over the data that each mode needs to go back through `room` steps.

    `whole` says that these are all steps of the loop: the other modes cannot truncate.
    """
    C, D, R, G, p = sizes.carry, sizes.iterate, sizes.linearisation, sizes.inner, sizes.p
    # Beside what is kept lives either a step of the way back or the gradient of the outer function.
    work = max(sizes.once + R + 2 * C, sizes.outer) + sizes.x
    modes = {"store": room * R + work, "recompute": room * D + work}
    if not whole:
        return modes
    s = segments(sizes, room)
    # The last segment's iterates are gone when another one is run again.
    modes["sqrt"] = s.number * C + s.length * (max(R, D) if s.keep else D) + work
    modes["forward"] = p * (2 * C + G + sizes.x) + work
    return modes


def fastest(predicted: dict[str, int], limit: int | None) -> str:
    """The fastest mode of these that needs at most `limit` bytes, or a share of what is free.

    A limit that was given is kept to: nothing fitting is an error. One that was guessed is not
    worth refusing to run, and the frugalest mode is taken.
    """
    allowed = limit if limit is not None else int(_SHARE * free_bytes())
    modes = {mode: predicted[mode] for mode in BY_SPEED if mode in predicted}
    for mode, needed in modes.items():
        if needed <= allowed:
            return mode
    frugalest = min(modes, key=modes.__getitem__)
    if limit is None:
        return frugalest
    raise ValueError(
        f"ITD needs at least {modes[frugalest]} bytes (memory={frugalest!r}), more than "
        f"memory_limit={limit}. Raise the limit, go back through the last T steps only with "
        f"truncate=T, or use AID, which keeps nothing of the inner loop."
    )


def predict_products(problem: Problem, x: PyTree, y: PyTree) -> dict[str, int]:
    """Bytes over the data for products with second derivatives of g(x, y).

    "keep" is one linearisation of ∇_y g, for all products; "recompute" what one product has on its
    way, the intermediate values of g and their tangents.
    """

    def kept(function: Callable[..., PyTree]) -> int:
        return _new_bytes(lambda x, y: jax.vjp(partial(function, problem), x, y)[1], x, y)

    return {"keep": kept(inner_gradient), "recompute": 2 * kept(inner_value)}


def fits(needed: int) -> bool:
    """Whether so many bytes are a small part of what is free."""
    return needed <= _SHARE * free_bytes()


def _new_bytes(function: Callable[..., PyTree], *arguments: PyTree) -> int:
    """Bytes of the arrays in the result of `function` that are not among its arguments or data."""
    jaxpr = jax.make_jaxpr(lambda *arguments: jax.tree.leaves(function(*arguments)))(*arguments)
    jaxpr = jaxpr.jaxpr
    made = {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    made -= {*jaxpr.invars, *jaxpr.constvars}
    return sum(_array_bytes(v.aval) for v in made)


def tree_bytes(tree: PyTree) -> int:
    """The bytes of the arrays in a tree."""
    return sum(_array_bytes(leaf) for leaf in jax.tree.leaves(tree))


def _array_bytes(array: jax.Array | jax.ShapeDtypeStruct) -> int:
    return math.prod(array.shape) * array.dtype.itemsize
