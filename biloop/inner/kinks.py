"""Kinks of g, where ∇_y g jumps and no derivative of y*(x) is what it seems.

A program that is made of smooth operations has none. Of others it is looked whether ∇_y g changes
in the same way over a short distance across y as over longer ones. Where it is continuous it
changes by less, and where it is rounding that changes, in another way.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jaxtyping import Array, Float, PyTree

from biloop import vectors
from biloop.compilation import compiled
from biloop.oracles import inner_gradient, inner_value
from biloop.problem import Problem
from biloop.vectors import norm

_LENGTHS = (1 / 64, 1 / 8, 1.0)  # of the longest distance
_SAME = 0.25  # of a change: by how much it may differ from that over eight times the distance


def across(problem: Problem, x: PyTree, y: PyTree, start: PyTree) -> Float[Array, ""]:
    """How much ∇_y g changes at y itself: 0 where g is smooth, or is no function to be minimised.

    Six gradients, none where the program of g says that it is smooth. All entries of y move at
    once, by cube roots of a rounding of y, or of its distance from `start`.
    """
    nothing = jnp.zeros((), vectors.accumulator(y))
    if problem.kind != "minimum" or has_no_kinks(problem, x, y):
        return nothing
    size = jnp.maximum(norm(y), norm(vectors.subtract(y, start))) / vectors.size(y) ** 0.5
    far = vectors.eps(y) ** (1 / 3) * jnp.where(size > 0, size, jnp.ones_like(size))
    direction = jax.tree.map(_irregular, y)

    def change(length: Array) -> PyTree:
        ends = (vectors.add_scaled(y, sign * length, direction) for sign in (1.0, -1.0))
        return vectors.subtract(*(inner_gradient(problem, x, end) for end in ends))

    changes = jax.lax.map(change, jnp.asarray(_LENGTHS, far.dtype) * far)
    short, middle, longest = (jax.tree.map(lambda a, i=i: a[i], changes) for i in range(3))
    same = jnp.ones((), bool)
    for one, longer in ((short, middle), (middle, longest)):
        same = same & (norm(vectors.subtract(longer, one)) <= _SAME * norm(one))
    return jnp.where(same, norm(short), nothing)


def _irregular(a: Array) -> Array:
    """Entries between ½ and 3/2 of alternating sign, of which no simple sum is zero."""
    i = jnp.arange(a.size, dtype=jnp.int32).reshape(a.shape)
    length = 0.5 + (i * 40503 % 65536).astype(jnp.float32) / 65536  # D. Knuth's multiplier
    return ((1 - 2 * (i % 2)).astype(jnp.float32) * length).astype(a.dtype)


# What polynomials, exponentials, logarithms and sigmoids are made of, and what only moves numbers
# about. A root is not among them, being |y| as √y².
_SMOOTH = frozenset(
    (
        *("add", "add_any", "sub", "mul", "neg", "div", "square", "integer_pow", "exp", "exp2"),
        *("log", "log1p", "expm1", "tanh", "logistic", "erf", "erfc", "sin", "cos"),
        *("dot_general", "conv_general_dilated", "reduce_sum", "cumsum", "copy"),
        *("broadcast_in_dim", "reshape", "transpose", "squeeze", "expand_dims", "slice"),
        *("dynamic_slice", "concatenate", "pad", "rev", "gather"),
    )
)
_CALLS = frozenset(["jit", "pjit", "closed_call", "remat", "checkpoint"])


def has_no_kinks(problem: Problem, x: PyTree, y: PyTree) -> bool:
    """Whether the program of g(x, ·) says so; where it does not, g may still be smooth."""
    return _program_is_smooth.shape(problem, x, y)


@compiled  # so that g is traced for this once
def _program_is_smooth(problem: Problem, x: PyTree, y: PyTree) -> bool:
    return _is_smooth(jax.make_jaxpr(lambda y: inner_value(problem, x, y))(y).jaxpr)


def _is_smooth(program: Jaxpr) -> bool:
    """Whether the results are smooth in the arguments, as far as they are differentiated."""
    moving = set(program.invars)
    for equation in program.eqns:
        if moving.intersection(_variables(equation.invars)) and not _stands(equation):
            moving.update(equation.outvars)
    wanted = set(_variables(program.outvars))
    for equation in reversed(program.eqns):
        if not moving.intersection(equation.outvars) or not wanted.intersection(equation.outvars):
            continue
        if not _step_is_smooth(equation):
            return False
        wanted.update(_variables(equation.invars))
    return True


def _variables(atoms: Sequence[Any]) -> list[Var]:
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _stands(equation: JaxprEqn) -> bool:
    """Whether no derivative passes: a maximum that a softmax subtracts is no kink of it."""
    return equation.primitive.name == "stop_gradient"


def _step_is_smooth(equation: JaxprEqn) -> bool:
    name, parameters = equation.primitive.name, equation.params
    if name == "convert_element_type":  # a number that is rounded to an integer is not
        return jnp.issubdtype(parameters["new_dtype"], jnp.inexact)
    if name in _CALLS:
        called = parameters["jaxpr"]
        return _is_smooth(called.jaxpr if isinstance(called, ClosedJaxpr) else called)
    return name in _SMOOTH
