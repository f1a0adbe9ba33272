"""The N-loop by Newton's method, each step of which is a linear system for conjugate gradients.

R. S. Dembo, S. C. Eisenstat and T. Steihaug, Inexact Newton methods (1982), with the truncation at
negative curvature of T. Steihaug (1983) and sufficient decrease of g (L. Armijo, 1966).
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.inner.base import InnerSolver
from biloop.linear import damping
from biloop.linear.conjugate import newton_direction
from biloop.loops.adaptive import (
    FORGET,
    Curvature,
    curvature_state,
    distance_from_start,
    inner_share,
)
from biloop.loops.iteration import LoopInfo, limit
from biloop.loops.results import Status, code_if
from biloop.oracles import Cost, Product, inner_value_and_gradient, linearise
from biloop.problem import Problem
from biloop.schedules import Adaptive, Count, Schedule, as_steps, as_tolerance
from biloop.schedules.arguments import MOST
from biloop.vectors import add_scaled, inner_product, norm, scaled

_SLACK = 2.0  # after a step the gradient may be so many times what its linear system left
_MOST = 200  # points that are looked at
_MANY = 5  # ... in one outer step of many, where g is not convex and there is no tolerance
_TRIES = 30  # how often a step is shortened; each time to between a tenth and a half
_ARMIJO = 1e-4  # the share of the decrease that the slope promises
_ROUNDING = 8.0  # eps: differences of g below that share of |g| mean nothing
_NOT_QUADRATIC = 0.1  # of ∇g: what a step may leave more than its system did


class _State(NamedTuple):
    """The point to look at next, `before` + `step`, and what is known."""

    y: PyTree
    before: PyTree
    step: PyTree
    value: Float[Array, ""]  # g before the step, ∞ if there was none
    slope: Float[Array, ""]  # ⟨∇g, step⟩ there
    promise: Float[Array, ""]  # the |slope| of the step before it was shortened
    size: Float[Array, ""]  # ‖∇g‖ there
    left: Float[Array, ""]  # ‖∇g‖ after the step, if g were quadratic
    tries: Int[Array, ""]  # how often the step was shortened
    curvature: Curvature
    cost: Cost
    arrived: Bool[Array, ""]
    running: Bool[Array, ""]


class NewtonCG(InnerSolver):
    """Newton's method with as many steps and products as it takes.

    y ← y − s δ,   ∇²_y g(x, y) δ = ∇_y g(x, y)   by CG

    Both the linear systems and the loop end under the rule of `Adaptive`, the loop up to a factor
    of two: ‖∇_y g(x, y)‖ / μ ≤ 2 share · ‖y − y⁰‖. So a quadratic g takes one step, which costs two
    gradients and about √κ products. Later systems count the distance of the loop before them: the
    last correction is small, and need not be known to a share of its own.

    s is 1 unless g does not decrease as its slope promises; then the step is shortened, by a
    parabola through what is known. At negative curvature a system ends with the direction so far,
    so that the loop goes on to a minimum, local where g is not convex.

    Parameters
    ----------
    steps : Adaptive or "auto"
        The share of the error to leave, and the most products for one system.
    tolerance : number or schedule of k
        If given, the loop ends at ‖∇_y g(x, y)‖ ≤ tolerance instead, and each system leaves the
        share of its own error.

    Examples
    --------
    >>> solver = bl.NewtonCG()
    >>> y, state, info = solver(problem, x0, y0, solver.init(y0), 0)
    >>> print(np.asarray(y).round(3), int(info.steps))
    [ 0.838 -0.453  0.096] 2
    """

    steps: Schedule = eqx.field(default_factory=Adaptive, converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)

    def __check_init__(self):
        if not isinstance(self.steps, Adaptive):
            raise TypeError(
                f'NewtonCG sizes its own loops: steps must be Adaptive(share, most) or "auto", got '
                f"{self.steps!r}."
            )

    @property
    def refines(self):
        return True

    @property
    def judges(self):
        return True

    def init(self, y):
        return curvature_state(self.steps, y)

    def __call__(self, problem, x, y0, state, k):
        target = limit(self.tolerance, k)

        def body(s: _State) -> _State:
            return self._next(problem, x, y0, s, target, k)

        s = lax.while_loop(
            lambda s: s.running & (s.cost.gradients < _MOST), body, _start(y0, state)
        )
        result = code_if(~s.arrived, Status.UNCONVERGED)
        info = LoopInfo(s.size, jnp.asarray(s.cost.gradients), s.cost, result)
        return s.before, s.curvature, info

    def _left(self, spent: Cost) -> Count:
        """The evaluations that a budget leaves, but for a last look at where they led."""
        assert isinstance(self.steps, Adaptive)
        return (MOST if self.steps.left is None else self.steps.left) - sum(spent)

    def _next(
        self,
        problem: Problem,
        x: PyTree,
        y0: PyTree,
        s: _State,
        target: Float[Array, ""] | None,
        k: Count,
    ) -> _State:
        """One point: is it good enough, too far, or where the next step starts?"""
        assert isinstance(self.steps, Adaptive)
        left = self._left(s.cost)
        most = jnp.clip(left - 1, 1, self.steps.most)
        share, eps = inner_share(self.steps, k), vectors.eps(s.y)
        g, d = inner_value_and_gradient(problem, x, s.y)
        g, size = g.astype(s.value.dtype), norm(d)
        good = _is_good(s, g, size, eps)

        # What was seen of the curvature holds here only if the step met the gradient it expected.
        expected = (s.tries == 0) & (size <= _SLACK * s.left + _NOT_QUADRATIC * s.size)
        travelled = distance_from_start(s.y, y0, k)
        if target is None:
            bound = _SLACK * share.astype(travelled.dtype) * travelled
            near = expected & (s.curvature.inverse_mu * size <= bound)
            travelled = jnp.where(expected, travelled, jnp.zeros_like(travelled))
        else:
            near = size <= target.astype(size.dtype)
            travelled = jnp.zeros_like(travelled)
        near = good & (near | (size == 0))
        # A step that promises less than g can show, and does not help: only rounding is left.
        rounded = ~good & (s.promise <= _ROUNDING * eps * jnp.abs(s.value))
        lost = (s.tries >= _TRIES) | (s.cost.gradients == 0)
        running = ~near & ~rounded & (good | ~lost) & (left > 1)
        # Kinks and flat valleys: what more looks would bring the next outer step brings as well.
        patient = (jnp.asarray(k) == 0) | (s.curvature.damping == 0) | (target is not None)
        running = running & (patient | (s.cost.gradients < _MANY))

        def onward() -> _Direction:
            hessian, _ = linearise(problem, x, s.y)
            known = damping.shortened(s.curvature, s.tries)
            return _direction(hessian, d, known, share, most, travelled)

        def again() -> _Direction:
            return _Direction(s.step, s.curvature, jnp.zeros((), jnp.int32), s.left)

        step, curvature, products, left = lax.cond(running & good, onward, again)
        ratio = jnp.where(good, jnp.ones_like(g), _shortening(s, g))
        slope = jnp.where(good, inner_product(d, step), ratio * s.slope)
        here, step = vectors.where(good, s.y, s.before), scaled(ratio, step)
        return _State(
            y=add_scaled(here, 1.0, step),
            before=here,
            step=step,
            value=jnp.where(good, g, s.value),
            slope=slope,
            promise=jnp.where(good, jnp.abs(slope), s.promise),
            size=jnp.where(good, size, s.size),
            left=left,
            tries=jnp.where(good, jnp.zeros_like(s.tries), s.tries + 1),
            curvature=curvature,
            cost=s.cost + Cost(jnp.ones((), jnp.int32), products),
            # Rounding is all that an adaptive loop can ask for, but no excuse for a tolerance.
            arrived=near if target is not None else near | rounded,
            running=running,
        )


def _start(y0: PyTree, known: Curvature) -> _State:
    zero, none = jnp.zeros((), vectors.accumulator(y0)), jnp.zeros((), jnp.int32)
    never, no = jnp.full_like(zero, jnp.inf), jnp.zeros((), bool)
    return _State(
        y=y0,
        before=y0,
        step=vectors.zeros_like(y0),
        value=never,
        slope=zero,
        promise=never,
        size=jnp.full_like(zero, jnp.nan),
        left=zero,
        tries=none,
        curvature=Curvature(FORGET * known.inverse_mu, zero + known.damping),
        cost=Cost(none, none),
        arrived=no,
        running=~no,
    )


def _is_good(s: _State, g: Float[Array, ""], size: Float[Array, ""], eps: float) -> Bool[Array, ""]:
    """Whether the step led to less: of g, or of ‖∇g‖ where g can show nothing any more."""
    finite = jnp.isfinite(g) & jnp.isfinite(size)
    noise = _ROUNDING * eps * jnp.abs(s.value)
    less = g <= s.value + _ARMIJO * s.slope
    shorter = (g <= s.value + noise) & (size <= 0.9 * s.size)
    enough = jnp.where(jnp.abs(s.slope) > noise, less, shorter)
    return finite & ((s.cost.gradients == 0) | enough)


def _shortening(s: _State, g: Float[Array, ""]) -> Float[Array, ""]:
    """The minimum of the parabola through g and its slope before the step and g after it.

    Between a tenth and a half of the step; a tenth where g is not finite.
    """
    bend = g - s.value - s.slope
    ratio = -s.slope / (2 * jnp.where(bend > 0, bend, 1.0))
    usable = jnp.isfinite(bend) & (bend > 0)
    return jnp.where(usable, jnp.clip(ratio, 0.1, 0.5), jnp.full_like(ratio, 0.1))


class _Direction(NamedTuple):
    """A step, what was learnt on the way to it, its products, and what it should leave of ∇g."""

    step: PyTree
    curvature: Curvature
    products: Int[Array, ""]
    left: Float[Array, ""]


def _direction(
    hessian: Product,
    d: PyTree,
    known: Curvature,
    share: Float[Array, ""],
    most: Count,
    travelled: Float[Array, ""],
) -> _Direction:
    """The step −δ, of H + λI where that is not positive definite without.

    Where the first direction of CG already has negative curvature there is no δ: then −d, as long
    as the size of that curvature suggests.
    """
    shift = jnp.asarray(known.damping)
    known = Curvature(damping.capped(known.inverse_mu, shift), shift)
    limit_ = jnp.where(shift > 0, jnp.minimum(most, damping.PATIENCE), most)
    found = newton_direction(damping.shifted(hessian, shift), d, known, share, limit_, travelled)

    def steepest() -> tuple[PyTree, Int[Array, ""], Float[Array, ""]]:
        dd, curvature = inner_product(d, d), jnp.abs(inner_product(d, hessian(d)))
        length = jnp.where(
            curvature > 0, dd / jnp.where(curvature > 0, curvature, 1.0), jnp.ones_like(dd)
        )
        return scaled(length, d), jnp.ones((), jnp.int32), jnp.zeros_like(found.left)

    def newton() -> tuple[PyTree, Int[Array, ""], Float[Array, ""]]:
        # λδ is what the system without λ would have left.
        left = found.left + (shift * norm(found.direction)).astype(found.left.dtype)
        return found.direction, jnp.zeros((), jnp.int32), left

    downhill = inner_product(found.direction, d) > 0
    delta, more, left = lax.cond(downhill, newton, steepest)
    negative = damping.is_negative(found.lowest, found.top, d)
    after = jnp.where(
        negative,
        damping.raised(shift, found.lowest, found.top),
        damping.adjusted(shift, found.top, found.products, found.arrived, d),
    )
    learnt = Curvature(found.learnt.inverse_mu, after)
    return _Direction(scaled(-1.0, delta), learnt, found.products + more, left)
