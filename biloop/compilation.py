"""Matrix products in the order in which a CPU is fast.

XLA computes Xᵀ R on a CPU, for a large X and an R of few columns, several times slower than
(Rᵀ X)ᵀ, and turns the second back into the first unless a barrier stands in between. Derivatives of
a loss of X W are full of Xᵀ R: with X of 20000 × 785 and ten columns it takes 20 ms instead of 7.
So a program is looked through after JAX has differentiated and vectorised it, and such products are
turned round. Nothing else is changed, and for other devices nothing at all.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun
from jaxtyping import Array

P = ParamSpec("P")
T = TypeVar("T")

LARGE = 2**14  # entries of X from which the order matters
FEW = 32  # columns of R up to which it does
# Equations whose programs may be replaced by others with the same arguments and results.
_NESTING = {"jit", "pjit", "scan", "while", "cond", "checkpoint"}


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """`eqx.filter_jit` with the slow products turned round."""
    return eqx.filter_jit(rearranged(function))


def rearranged(function: Callable[P, T]) -> Callable[P, T]:
    """The function with its slow products turned round, if it is compiled for a CPU."""

    @functools.wraps(function)
    def program(*args: P.args, **kwargs: P.kwargs) -> T:
        if jax.default_backend() != "cpu":
            return function(*args, **kwargs)
        traced, shapes, static = eqx.filter_make_jaxpr(function)(*args, **kwargs)
        results = jaxpr_as_fun(_rearranged(traced))(
            *jax.tree.leaves(eqx.filter((args, kwargs), eqx.is_array))
        )
        return eqx.combine(jax.tree.unflatten(jax.tree.structure(shapes), results), static)

    return program


def _rearranged(program: ClosedJaxpr) -> ClosedJaxpr:
    if not _any_slow(program.jaxpr):
        return program
    arguments = (
        jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in program.in_avals
    )
    return jax.make_jaxpr(lambda *args: _evaluate(program, args))(*arguments)


def _evaluate(program: ClosedJaxpr, arguments: Sequence[Array]) -> list[Array]:
    """The results of a program: its equations one after another, some of them in another form."""
    jaxpr, slow = program.jaxpr, _slow_products(program.jaxpr)
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*program.consts, *arguments), strict=True))

    def read(atom: Any) -> Array:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for i, equation in enumerate(jaxpr.eqns):
        if i in slow:
            X, R, axis, first = slow[i]
            results = [_turned(read(X), read(R), axis, first, equation.params)]
        else:
            results = _bind(equation, [read(atom) for atom in equation.invars])
        known |= zip(equation.outvars, results, strict=True)
    return [read(atom) for atom in jaxpr.outvars]


def _bind(equation: JaxprEqn, operands: Sequence[Array]) -> Sequence[Array]:
    params = equation.params
    if equation.primitive.name in _NESTING:
        params = {name: _map_programs(_rearranged, value) for name, value in params.items()}
    bound = equation.primitive.get_bind_params(params)
    # Up to some version of JAX the functions come apart from the parameters.
    functions, params = bound if isinstance(bound, tuple) else ((), bound)
    results = equation.primitive.bind(*functions, *operands, **params)
    return results if equation.primitive.multiple_results else [results]


def _map_programs(change: Callable[[ClosedJaxpr], ClosedJaxpr], param: Any) -> Any:
    """A parameter of an equation with the programs in it, if any, changed."""
    if isinstance(param, ClosedJaxpr):
        return change(param)
    if isinstance(param, Jaxpr):
        return change(ClosedJaxpr(param, ())).jaxpr
    if isinstance(param, tuple):
        return tuple(_map_programs(change, each) for each in param)
    return param


def _any_slow(jaxpr: Jaxpr) -> bool:
    """Whether there is a product to be turned round, here or in a program inside."""
    found = [bool(_slow_products(jaxpr))]

    def look(program: ClosedJaxpr) -> ClosedJaxpr:
        found.append(_any_slow(program.jaxpr))
        return program

    for equation in jaxpr.eqns:
        if equation.primitive.name in _NESTING:
            _map_programs(look, tuple(equation.params.values()))
    return any(found)


class _Slow(NamedTuple):
    """A product Xᵀ R (or Rᵀ X), summed over the rows of X and an axis of R."""

    X: Any
    R: Any
    axis: int
    first: bool  # whether it was Xᵀ R


def _slow_products(jaxpr: Jaxpr) -> dict[int, _Slow]:
    """The products that are to be turned round, by the numbers of their equations."""
    transposes, found = {}, {}
    for i, equation in enumerate(jaxpr.eqns):
        if equation.primitive is lax.transpose_p and equation.params["permutation"] == (1, 0):
            transposes[equation.outvars[0]] = equation.invars[0]
        if equation.primitive is not lax.dot_general_p:
            continue
        summed, batched = equation.params["dimension_numbers"]
        if any(batched) or len(summed[0]) != 1 or equation.params.get("out_sharding") is not None:
            continue
        factors = list(zip(equation.invars, (axis for (axis,) in summed), strict=True))
        for first in (True, False):
            (X, row), (R, axis) = factors if first else reversed(factors)
            if not isinstance(X, Literal) and X in transposes:
                X, row = transposes[X], 1 - row
            if row == 0 and _is_slow(_shape(X), _shape(R)):
                found[i] = _Slow(X, R, axis, first)
    return found


def _shape(atom: Any) -> tuple[int, ...]:
    return atom.aval.shape


def _is_slow(X: tuple[int, ...], R: tuple[int, ...]) -> bool:
    """Whether the order matters for factors of these shapes."""
    return len(X) == 2 and math.prod(X) >= LARGE and math.prod(R) // X[0] <= min(FEW, X[1])


def _turned(X: Array, R: Array, axis: int, first: bool, params: dict[str, Any]) -> Array:
    """Rᵀ X behind a barrier, and transposed if it was Xᵀ R."""
    precision = params["precision"]
    if first and isinstance(precision, tuple):
        precision = precision[::-1]
    product = lax.dot_general(
        R,
        X,
        (((axis,), (0,)), ((), ())),
        precision=precision,
        preferred_element_type=params["preferred_element_type"],
    )
    if product.ndim > 1:  # or there is nothing to transpose
        product = lax.optimization_barrier(product)
    return jnp.moveaxis(product, -1, 0) if first else product
