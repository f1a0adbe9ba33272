"""Matrix products in the form in which the device is fast.

Derivatives of a loss of X W are full of Xᵀ R, with a large X and an R of few columns. XLA computes

    on a CPU   Xᵀ R several times slower than (Rᵀ X)ᵀ, and turns the second back into the first
               unless a barrier stands in between: 20 ms instead of 7 for 20000 × 785 by 10;
    on a GPU   Xᵀ R with most of the chip idle, since few numbers are summed over many rows. As a
               batch of products of segments of rows, Σ_s Rₛᵀ Xₛ, it takes half of the time.

So a program is looked through after JAX has differentiated and vectorised it, and such products are
put into the other form. Nothing else is changed, and for other devices nothing at all.
`BILOOP_REARRANGE=0` in the environment leaves all programs as they are.
"""

import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from jaxtyping import Array

SWITCH = "BILOOP_REARRANGE"
LARGE = 2**14  # entries of X from which the form matters
FEW = 32  # columns of R up to which it does
SEGMENTS = range(25, 129)  # of rows: enough to fill a GPU, and few enough to be summed quickly
# Equations whose programs may be replaced by others with the same arguments and results.
_NESTING = {"jit", "pjit", "scan", "while", "cond", "checkpoint"}


class Target(NamedTuple):
    """What a program is compiled for."""

    platform: str
    devices: int


def rearranges(target: Target) -> bool:
    """Whether products have another form on this target, and the switch is not off."""
    return target.platform in _FORMS and os.environ.get(SWITCH, "1") != "0"


def rearrange(program: ClosedJaxpr, target: Target) -> ClosedJaxpr:
    """The program with its slow products in the other form; the same one if there are none."""
    jaxpr = _Rewriting(target)(program.jaxpr)
    return program if jaxpr is program.jaxpr else ClosedJaxpr(jaxpr, program.consts)


class _Rewriting:
    """The other form of a program and of those inside it, each of which is looked at once."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.done: dict[Jaxpr, Jaxpr] = {}

    def __call__(self, jaxpr: Jaxpr) -> Jaxpr:
        if jaxpr not in self.done:
            self.done[jaxpr] = self._rewrite(jaxpr)
        return self.done[jaxpr]

    def _rewrite(self, jaxpr: Jaxpr) -> Jaxpr:
        slow, equations = _slow_products(jaxpr), []
        for i, equation in enumerate(jaxpr.eqns):
            if i in slow:
                equations += _replaced(equation, slow[i], self.target)
            elif equation.primitive.name in _NESTING:
                equations.append(self._inside(equation))
            else:
                equations.append(equation)
        unchanged = all(a is b for a, b in zip(equations, jaxpr.eqns, strict=False)) and not slow
        return jaxpr if unchanged else jaxpr.replace(eqns=equations)

    def _inside(self, equation: JaxprEqn) -> JaxprEqn:
        params = {name: self._param(value) for name, value in equation.params.items()}
        unchanged = all(params[name] is value for name, value in equation.params.items())
        return equation if unchanged else equation.replace(params=params)

    def _param(self, value: Any) -> Any:
        """A parameter of an equation with the programs in it, if any, rewritten."""
        if isinstance(value, Jaxpr):
            return self(value)
        if isinstance(value, ClosedJaxpr):
            jaxpr = self(value.jaxpr)
            return value if jaxpr is value.jaxpr else ClosedJaxpr(jaxpr, value.consts)
        if isinstance(value, tuple):
            parts = tuple(map(self._param, value))
            return value if all(a is b for a, b in zip(parts, value, strict=True)) else parts
        return value


class _Slow(NamedTuple):
    """A product Xᵀ R (or Rᵀ X), summed over the rows of X and an axis of R."""

    X: Any
    R: Any
    axis: int
    first: bool  # whether it was Xᵀ R


def _slow_products(jaxpr: Jaxpr) -> dict[int, _Slow]:
    """The products that have another form, by the numbers of their equations."""
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
    """Whether the form matters for factors of these shapes."""
    return len(X) == 2 and math.prod(X) >= LARGE and math.prod(R) // X[0] <= min(FEW, X[1])


def _replaced(equation: JaxprEqn, slow: _Slow, target: Target) -> list[JaxprEqn]:
    """The equations that compute the same product in the other form."""
    precision = equation.params["precision"]
    if slow.first and isinstance(precision, tuple):
        precision = precision[::-1]
    numbers = {
        "precision": precision,
        "preferred_element_type": equation.params["preferred_element_type"],
    }

    def product(X: Array, R: Array) -> Array:
        R = jnp.moveaxis(R, slow.axis, 0)
        result = _FORMS[target.platform](X, R, target.devices, numbers)
        return jnp.moveaxis(result, -1, 0) if slow.first else result

    shapes = (jax.ShapeDtypeStruct(a.aval.shape, a.aval.dtype) for a in (slow.X, slow.R))
    traced = jax.make_jaxpr(product)(*shapes).jaxpr
    # Equations with fresh results, but for the last one, which has that of the product replaced.
    names = dict(zip(traced.invars, (slow.X, slow.R), strict=True))
    names |= zip(traced.outvars, equation.outvars, strict=True)
    return [
        each.replace(
            invars=[atom if isinstance(atom, Literal) else names[atom] for atom in each.invars],
            outvars=[names.setdefault(result, result) for result in each.outvars],
        )
        for each in traced.eqns
    ]


def _turned(X: Array, R: Array, devices: int, numbers: dict[str, Any]) -> Array:
    """Rᵀ X behind a barrier."""
    product = lax.dot_general(R, X, (((0,), (0,)), ((), ())), **numbers)
    return product if product.ndim == 1 else lax.optimization_barrier(product)


def _by_segments(X: Array, R: Array, devices: int, numbers: dict[str, Any]) -> Array:
    """Σ_s Rₛᵀ Xₛ over segments of rows; plainly Rᵀ X if no number of segments divides the rows.

    Each device has as many segments as any other, so that rows that are spread over devices stay
    where they are.
    """
    n = len(X)
    possible = [s * devices for s in SEGMENTS if n % (s * devices) == 0]
    if not possible or R.ndim == 1:
        return lax.dot_general(R, X, (((0,), (0,)), ((), ())), **numbers)
    segments = min(possible)
    X, R = (a.reshape(segments, n // segments, *a.shape[1:]) for a in (X, R))
    return jnp.sum(lax.dot_general(R, X, (((1,), (1,)), ((0,), (0,))), **numbers), axis=0)


_FORMS: dict[str, Callable[[Array, Array, int, dict[str, Any]], Array]] = {
    "cpu": _turned,
    "cuda": _by_segments,
    "gpu": _by_segments,
}
