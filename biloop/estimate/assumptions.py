"""From a problem to the constants of Assumptions 1-4, each with what is known about it."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from biloop.estimate.sampling import Point, hessian_change, minimised_points
from biloop.estimate.spectrum import along, inner_spectrum, joint_spectra, refuse, rows
from biloop.estimate.values import Estimate, Value, Values
from biloop.linear.lanczos import FAILURE, PRODUCTS, Extremes
from biloop.problem import Problem, check, refuse_kind
from biloop.problem.variables import as_variable
from biloop.schedules.arguments import as_count, as_flag, as_seed, number, positive


class _Findings(NamedTuple):
    """All that was measured."""

    inner: list[Extremes]
    joint: list[Extremes]
    points: list[Point]
    places: int
    """Where f and g were looked at in (x, y); ∇²_y g also on the way to y*(x)."""
    hessian_change: float


def constants(
    problem: Problem,
    x: PyTree,
    y: PyTree,
    *,
    joint: bool = True,
    L: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    M: float | None = None,
    products: int = PRODUCTS,
    samples: int = 4,
    radius: float = 1.0,
    steps: int = 50,
    seed: int = 0,
) -> Estimate:
    """L, μ, ρ and M of Assumptions 1-4, as far as they show around (x, y).

    L     largest |eigenvalue| of ∇²g and ∇²f in z = (x, y): Assumption 2, which every certificate
          needs. `joint=False` takes λ_max of ∇²_y g instead: cheaper, and what step sizes need.
    μ     smallest Ritz value of ∇²_y g: never below the true one
    ρ     fastest change of ∇²_y g and ∇_x∇_y g that was met: never above the true one
    M     largest ‖∇_y f(x′, y)‖ at y ≈ y*(x′)

    Looked at are (x, y), where a few Newton steps lead from there, and y ≈ y*(x′) for x′ = x and
    `samples` random x′ at the distance `radius` (at most `steps` Newton steps each). The
    assumptions speak of all (x, y); no sampling can, so that each of `estimate.values` has a label.

    What the caller knows can be given: L, rho and M as upper bounds, mu as a lower bound (the
    coefficient of a penalty, say). L, mu and rho are refused if what was met contradicts them.
    `rho=0` says that ∇²_y g is the same everywhere: its eigenvalues at one point are those at all.

    Parameters
    ----------
    problem : Problem
    x, y : pytrees
        Around where to look.
    joint : bool
        Whether L is of all second derivatives, or of ∇²_y g alone.
    L, mu, rho, M : numbers, optional
        What is known: L, rho and M as upper bounds, mu as a lower one.
    products : int
        Of each Lanczos run, and as many vectors.
    samples : int
        Random x′ to look at.
    radius : number
        Their distance from x.
    steps : int
        The most Newton steps to each y*(x′).
    seed : int
        Of what is random.

    Returns
    -------
    Estimate
        `L`, `mu`, `rho`, `M`, usable wherever `theory.Constants` are, and `values` with labels.

    Examples
    --------
    >>> quadratic = bl.problems.quadratic(10.0)
    >>> found = bl.estimate.constants(quadratic.problem, quadratic.x0, quadratic.y0, rho=0.0)
    >>> print(f"{found.L / found.mu:.2f}", found.values.mu.label)
    10.00 exact
    """
    x, y = as_variable(x, "x"), as_variable(y, "y")
    check(problem, x, y)
    refuse_kind(problem, ("minimum",), "constants", "The theory is for smooth minima.")
    samples, steps = as_count("samples", 0)(samples), as_count("steps")(steps)
    products, length = as_count("products")(products), float(positive("radius")(radius))
    joint, key = as_flag("joint")(joint), jax.random.key(as_seed("seed")(seed))
    L, mu, rho, M = map(_known, ("L", "mu", "rho", "M"), (L, mu, rho, M))
    found = _measured(problem, x, y, joint, products, samples, length, steps, key)
    constant_hessian = rho == 0
    return Estimate.of(
        Values(
            L=_smoothness(found, L, joint, constant_hessian, products),
            mu=_strong_convexity(found, mu, constant_hessian, products),
            rho=_hessian_lipschitz(found, rho),
            M=_gradient_bound(found, M),
        )
    )


def _known(name: str, value: Any) -> float | None:
    """A number that the caller may give, with all its digits."""
    if value is None:
        return None
    number(value, name)  # refuses what is none
    return float(value)


def _measured(
    problem: Problem,
    x: PyTree,
    y: PyTree,
    joint: bool,
    products: int,
    samples: int,
    radius: float,
    steps: int,
    key: PRNGKeyArray,
) -> _Findings:
    path = along(problem, x, y, products, key)
    points = list(
        minimised_points(problem, x, path.y, samples=samples, radius=radius, steps=steps, key=key)
    )
    inner = path.rows()
    for point in points:
        inner.append(inner_spectrum(problem, point.x, point.y, products, key))
        refuse(inner[-1])
    places = [(x, y), (x, path.y), *((point.x, point.y) for point in points)]
    spectra: list[Extremes] = []
    if joint:
        for place in places:
            spectra += rows(joint_spectra(problem, *place, products, key))
    _, scale = _largest(spectra + inner)
    changes = [
        hessian_change(problem, *place, jnp.asarray(scale), jax.random.fold_in(key, i))
        for i, place in enumerate(places)
    ]
    return _Findings(inner, spectra, points, len(places), max(map(float, changes)))


def _largest(spectra: list[Extremes]) -> tuple[float, float]:
    """Bounds from below and above on the largest |eigenvalue| of several operators."""
    certain = max(float(max(s.largest.lower, -s.smallest.upper)) for s in spectra)
    probable = max(float(max(s.largest.upper, -s.smallest.lower)) for s in spectra)
    return certain, probable


def _smoothness(
    found: _Findings, given: float | None, joint: bool, same: bool, products: int
) -> Value:
    # ∇²_y g is a block of ∇²g; where it bounds more from below, Lanczos saw it better there.
    low, high = _largest(found.joint + found.inner if joint else found.inner)
    if given is not None:
        return _given("L", given, low)
    of = "|∇²g|, |∇²f| in (x, y)" if joint else "λ_max(∇²_y g)"
    places = found.places if joint else len(found.inner)
    source = f"{of} at {places} points, ≤ {products} products each"
    if joint or not same:
        return Value(high, "estimate", source, lower=low)
    return _everywhere(found.inner[0], source, upper_side=True)


def _strong_convexity(found: _Findings, given: float | None, same: bool, products: int) -> Value:
    smallest = min(found.inner, key=lambda s: float(s.smallest.upper)).smallest
    upper, ritz = float(smallest.upper), float(smallest.ritz)
    if given is not None:
        if not 0 < given <= upper:
            raise ValueError(
                f"mu must be greater than 0 and at most {upper:.4g}, the smallest eigenvalue met, "
                f"got {given}."
            )
        return Value(float(given), "lower bound", "given", lower=float(given), upper=upper)
    if ritz <= upper - ritz:
        raise ValueError(
            f"The smallest eigenvalue of the inner Hessian that was met, {ritz:.4g}, is zero to "
            f"rounding: it cannot be told whether g(x, ·) is strongly convex. Give mu, the "
            f"coefficient of a penalty ½μ‖y‖² that inner contains, or add one."
        )
    source = f"λ_min(∇²_y g) at {len(found.inner)} points, ≤ {products} products each"
    if not same:
        return Value(upper, "upper bound", source, upper=upper)
    return _everywhere(found.inner[0], source, upper_side=False)


def _everywhere(spectrum: Extremes, source: str, *, upper_side: bool) -> Value:
    """An eigenvalue of ∇²_y g that is the same at all points, since rho = 0 was given."""
    bracket = spectrum.largest if upper_side else spectrum.smallest
    low, high = max(float(bracket.lower), 0.0), float(bracket.upper)
    if spectrum.exact:
        return Value(float(bracket.ritz), "exact", f"{source}; all eigenvalues found", low, high)
    source += f"; wrong with probability {FAILURE:g}" if upper_side else ""
    return Value(high, "upper bound", source, low, high)


def _hessian_lipschitz(found: _Findings, given: float | None) -> Value:
    low = found.hessian_change
    if given is not None:
        return _given("rho", given, low)
    source = f"change of ∇_y∇g in directions tried at {found.places} points"
    return Value(low, "lower bound", source, lower=low)


def _gradient_bound(found: _Findings, given: float | None) -> Value:
    largest = max(point.outer_gradient for point in found.points)
    if given is not None:
        return _given("M", given, 0.0)
    residual = max(point.residual for point in found.points)
    source = f"‖∇_y f‖ at {len(found.points)} x, where ‖∇_y g‖ ≤ {residual:.1g}"
    return Value(largest, "estimate", source)


def _given(name: str, value: float, lower: float) -> Value:
    if not lower <= value < math.inf:
        raise ValueError(
            f"{name} must be finite and at least {lower:.4g}, the value met; got {value}."
        )
    return Value(float(value), "upper bound", "given", lower=lower, upper=float(value))
