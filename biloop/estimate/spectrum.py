"""Eigenvalues of the Hessians of a problem, and the refusal of those that no loop can work with."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from biloop.compilation import compiled
from biloop.inner.descents import GradientDescent
from biloop.linear.lanczos import Extremes, extremes
from biloop.oracles import linearise
from biloop.problem import Problem
from biloop.schedules import is_concrete

SETTLING = 10  # gradient steps between the two places where a start is looked at


class Settled(NamedTuple):
    """The spectrum of ∇²_y g where a run starts and a few gradient steps on, at y."""

    first: Extremes
    second: Extremes
    y: PyTree

    @property
    def L(self) -> Float[Array, ""]:
        """The larger of the two upper bounds on λ_max."""
        return jnp.maximum(self.first.largest.upper, self.second.largest.upper)

    @property
    def mu(self) -> Float[Array, ""]:
        """The smaller of the two smallest Ritz values."""
        return jnp.minimum(self.first.smallest.ritz, self.second.smallest.ritz)


@compiled
def inner_spectrum(
    problem: Problem, x: PyTree, y: PyTree, products: int, key: PRNGKeyArray
) -> Extremes:
    """λ_min and λ_max of ∇²_y g(x, y)."""
    hessian, _ = linearise(problem, x, y)
    return extremes(hessian, y, products=products, key=key)


@compiled
def joint_spectra(
    problem: Problem, x: PyTree, y: PyTree, products: int, key: PRNGKeyArray
) -> tuple[Extremes, Extremes]:
    """λ_min and λ_max of the Hessians of g and of f in z = (x, y): Assumption 2."""

    def of(function: Callable[..., Any], data: tuple[PyTree, ...]) -> Extremes:
        # With z in the place of y, the inner Hessian is the joint one.
        lifted = Problem(lambda _, z, *data: function(*z, *data), function, inner_data=data)
        hessian, _ = linearise(lifted, jnp.zeros(()), (x, y))
        return extremes(hessian, (x, y), products=products, key=key)

    return of(problem.inner, problem.inner_data), of(problem.outer, problem.outer_data)


@compiled
def _follow(descend: GradientDescent, problem: Problem, x: PyTree, y: PyTree) -> PyTree:
    return descend(problem, x, y, 0)[0]


def settled(problem: Problem, x: PyTree, y: PyTree, products: int, key: PRNGKeyArray) -> Settled:
    """The spectrum at y and after a few gradient steps of size 1/L from there.

    A start can be much flatter than what follows (a saturated softmax, say), and its 1/L unstable.
    """
    first = inner_spectrum(problem, x, y, products, key)
    refuse(first)
    descend = GradientDescent(step_size=1 / first.largest.upper, steps=SETTLING)
    y = _follow(descend, problem, x, y)
    second = inner_spectrum(problem, x, y, products, key)
    refuse(second)
    return Settled(first, second, y)


def refuse(spectrum: Extremes) -> None:
    """Raise if ∇²_y g is not finite, indefinite or zero. Inside compiled code nothing is raised."""
    if not is_concrete(spectrum.largest.upper):
        return
    low, high = float(spectrum.smallest.upper), float(spectrum.largest.upper)
    if not (jnp.isfinite(low) and jnp.isfinite(high)):
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
