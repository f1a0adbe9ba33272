"""Eigenvalues of the Hessians of a problem, and the refusal of those that no loop can work with."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from biloop.compilation import compiled
from biloop.estimate import descent
from biloop.estimate.descent import Descent
from biloop.linear.lanczos import Extremes, extremes
from biloop.oracles import Product, linearise
from biloop.problem import Problem
from biloop.schedules import is_concrete

STEPS = 6  # from y towards y*(x), at most
_PRODUCTS = 10  # for the direction of each
_SETTLED = 0.01  # the share of ‖∇_y g‖ at which y is where a run will be


class Path(NamedTuple):
    """The spectra of ∇²_y g from y towards y*(x): row i after i steps, and the last y.

    There are 1 + STEPS rows; those from `reached` on, which it did not get to, repeat the first.
    """

    spectra: Extremes
    reached: Int[Array, ""]
    y: PyTree
    L: Float[Array, ""]
    """the largest of the upper bounds on λ_max"""
    at: Int[Array, ""]
    """the steps after which it was met"""
    mu: Float[Array, ""]
    """the smallest of the smallest Ritz values"""

    def rows(self) -> list[Extremes]:
        """The spectra one by one."""
        return rows(self.spectra)[: int(self.reached)]


def inner_spectrum(
    problem: Problem, x: PyTree, y: PyTree, products: int, key: PRNGKeyArray
) -> Extremes:
    """λ_min and λ_max of ∇²_y g(x, y): a way of no steps, whose program is there already."""
    return rows(_along(problem, x, y, products, key, np.zeros((), np.int32)).spectra)[0]  # pyright: ignore[reportArgumentType]


@compiled(often="once")
def joint_spectra(
    problem: Problem, x: PyTree, y: PyTree, products: int, key: PRNGKeyArray
) -> Extremes:
    """λ_min and λ_max of the Hessians of g and of f in z = (x, y), in two rows: Assumption 2."""

    def hessian_of(function: Callable[..., Any], data: tuple[PyTree, ...]) -> Product:
        # With z in the place of y, the inner Hessian is the joint one.
        lifted = Problem(lambda _, z, *data: function(*z, *data), function, inner_data=data)
        return linearise(lifted, jnp.zeros(()), (x, y))[0]

    of_g = hessian_of(problem.inner, problem.inner_data)
    of_f = hessian_of(problem.outer, problem.outer_data)

    def spectrum_of(is_f: Bool[Array, ""]) -> Extremes:
        # One after the other in a loop, so that Lanczos is compiled once.
        product = lambda v: lax.cond(is_f, of_f, of_g, v)  # noqa: E731
        return extremes(product, (x, y), products=products, key=key)

    return lax.map(spectrum_of, jnp.asarray([False, True]))


def along(problem: Problem, x: PyTree, y: PyTree, products: int, key: PRNGKeyArray) -> Path:
    """The spectra on the way from y to y*(x).

    A start can be much flatter than what follows (a saturated softmax, the rates of a Poisson
    regression), and its 1/L unstable there.
    """
    path = _along(problem, x, y, products, key, np.asarray(STEPS, np.int32))  # pyright: ignore[reportArgumentType]
    if is_concrete(path.reached):
        for spectrum in path.rows():
            refuse(spectrum)
    return path


def rows(spectra: Extremes) -> list[Extremes]:
    """Spectra along an axis one by one, on the host."""
    there = jax.device_get(spectra)
    return [jax.tree.map(lambda a, i=i: a[i], there) for i in range(len(there.largest.ritz))]


@compiled(often="once")
def _along(
    problem: Problem,
    x: PyTree,
    y: PyTree,
    products: int,
    key: PRNGKeyArray,
    steps: Int[Array, ""],
) -> Path:
    first = descent.start(problem, x, y)

    def advance(carry: tuple[Descent, Extremes, Array, Array]) -> tuple:
        here, rows, i, _ = carry
        here = lax.cond(i > 0, lambda: descent.step(problem, x, here, _PRODUCTS), lambda: here)
        hessian, _ = linearise(problem, x, here.y)
        found = extremes(hessian, here.y, products=products, key=key)
        rows = jax.tree.map(lambda rows, a: rows.at[i].set(a), rows, found)
        return here, rows, i + 1, here.over | (here.size <= _SETTLED * first.size)

    shapes = jax.eval_shape(lambda: extremes(lambda v: v, y, products=products, key=key))
    empty = jax.tree.map(lambda a: jnp.zeros((1 + STEPS, *a.shape), a.dtype), shapes)
    begin = (first, empty, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    here, rows, reached, _ = lax.while_loop(lambda c: ~c[3] & (c[2] <= steps), advance, begin)
    kept = jnp.arange(1 + STEPS, dtype=jnp.int32) < reached
    rows = jax.tree.map(lambda a: jnp.where(kept, a, a[0]), rows)
    top, low = rows.largest.upper, rows.smallest.ritz
    return Path(rows, reached, here.y, jnp.max(top), jnp.argmax(top), jnp.min(low))


def refuse(spectrum: Extremes) -> None:
    """Raise if ∇²_y g is not finite, indefinite or zero. Inside compiled code nothing is raised."""
    if not is_concrete(spectrum.largest.upper):
        return
    low, high = float(spectrum.smallest.upper), float(spectrum.largest.upper)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(
            f"The inner Hessian is not finite at these x and y: its Ritz values lie between {low} "
            f"and {high}. Look for NaN or infinite values in inner_data, x and y, and for a square "
            f"root, a logarithm or a norm taken at zero."
        )
    if low < 0:
        raise ValueError(
            f"The inner Hessian has an eigenvalue of at most {low:.4g}: g(x, ·) is not convex "
            f"there. Add a penalty ½c‖y‖² with c > {-low:.4g} to inner, or give a y closer to a "
            f"minimiser."
        )
    if high <= 0:
        raise ValueError(
            f"The inner Hessian is zero (largest eigenvalue {high:.4g}): g(x, ·) is linear and has "
            f"no minimiser. Add a penalty ½c‖y‖² to inner."
        )
