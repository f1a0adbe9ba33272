"""Proximal gradient steps for g + r with a proximal map for r, plain and accelerated.

    y⁺ = prox(x, y − α ∇_y g(x, y), α),   residual (y − y⁺) / α

The residual is zero exactly at the minimiser, and ∇_y g where r = 0.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.inner.base import Descent, DescentState, Local
from biloop.loops.adaptive import Curvature
from biloop.loops.iteration import LoopInfo, Rule, iterate
from biloop.loops.step_size import check_representable
from biloop.oracles import Cost
from biloop.schedules import Adaptive, Schedule, as_steps, as_tolerance, is_concrete, positive
from biloop.vectors import add_scaled, inner_product, norm, scaled, subtract

_TRIAL = 1e-3  # length of the very first step, relative to y
_TRIES = 12  # ... each a sixteenth of the one before
_OVERSHOT = 2.0  # α times a curvature: from there on steps lead away
_LONGER = 1.25  # the first step of a loop over the last of the one before, if that saw enough
_ENOUGH = 5  # curvatures
_PATIENCE = 2000  # steps without a new smallest residual: accelerated steps come in waves
_ROUNDING = 8.0  # eps: a sum over many samples is rounded more than once
_STABLE = 0.5  # of a step of FISTA where y stands still


class Secant(eqx.Module):
    """Step sizes from the curvatures that are met: α = 1 / max ‖∇g(z) − ∇g(z⁻)‖ / ‖z − z⁻‖.

    Never above 1/(the largest curvature met in this loop), so that it settles; a step that met more
    than 2/α is taken back. It costs no evaluation.
    """


def _as_step(value: Any) -> Float[Array, ""] | Secant:
    if isinstance(value, Secant) or (isinstance(value, str) and value == "auto"):
        return Secant()
    return positive("step_size")(value)


class Steps(NamedTuple):
    """Where the last gradient was evaluated, that gradient, α, and how many curvatures were met."""

    z: PyTree
    d: PyTree
    size: Float[Array, ""]  # 0 before the first
    known: Bool[Array, ""]  # whether there was a step in this loop
    met: Int[Array, ""]


class _Point(NamedTuple):
    """From where to step, with which gradient and α, and whether a step was taken back."""

    z: PyTree
    d: PyTree
    size: Float[Array, ""]
    back: Bool[Array, ""]


class _Proximal(Descent):
    """What both methods share: step sizes, given or found."""

    step_size: eqx.AbstractVar[Float[Array, ""] | Secant]

    @property
    def kinds(self):
        return ("minimum", "proximal")

    def nothing(self, y):
        if isinstance(self.step_size, Secant):
            return jnp.zeros((), vectors.accumulator(y))
        if is_concrete(self.step_size):
            check_representable(float(self.step_size), y)
        return ()

    def rule(self, y0, state, k):
        rule = Descent.rule(self, y0, state, k)
        if rule.adaptive is None:
            return rule
        patient = rule.adaptive._replace(rounding=_ROUNDING, patience=_PATIENCE)
        return rule._replace(adaptive=patient)

    def proximal_step(self, state, y):
        if not isinstance(self.step_size, Secant):
            return self.step_size
        return jnp.where(state.kept > 0, state.kept, jnp.ones_like(state.kept))

    def stability(self, L):
        return None if isinstance(self.step_size, Secant) else (float(self.step_size), 2 / L)

    def _first(self, y: PyTree, kept: PyTree) -> Steps | tuple[()]:
        if not isinstance(self.step_size, Secant):
            return ()
        met = (kept > 0).astype(jnp.int32)  # what a loop has found is no trial: it may only shrink
        return Steps(y, vectors.zeros_like(y), kept, jnp.zeros((), bool), met)

    def _kept(self, steps: PyTree) -> PyTree:
        if not isinstance(self.step_size, Secant):
            return ()
        longer = jnp.where(steps.met >= _ENOUGH, _LONGER, 1.0).astype(steps.size.dtype)
        return longer * steps.size

    def _sized(self, local: Local, z: PyTree, last: PyTree) -> tuple[_Point, PyTree]:
        """The step from z, or again from where the last one started if that was too long."""
        d = local(z)
        if not isinstance(self.step_size, Secant):
            return _Point(z, d, self.step_size, jnp.zeros((), bool)), last
        s, e = norm(subtract(z, last.z)), norm(subtract(d, last.d))
        length = norm(d)
        seen = last.known & (s > 0) & (e > vectors.noise(z) * length)
        curvature = jnp.where(seen, e / jnp.where(s > 0, s, 1.0), jnp.zeros_like(s))
        found = 1 / jnp.where(seen, curvature, 1.0)
        # Before the first curvature a step is a trial.
        size = jnp.where(last.met > 0, jnp.minimum(found, last.size), found)
        unseen = jnp.where(last.size > 0, last.size, _trial(local, z, d, last.size > 0))
        # Nothing to measure: the step was short, unless there is nothing left to do.
        unseen = jnp.where(last.known & (last.met == 0) & (s > 0), 4 * unseen, unseen)
        size = lax.stop_gradient(jnp.where(seen, size, unseen))
        spoilt = last.known & ~jnp.isfinite(length)
        size = jnp.where(spoilt, last.size / 16, size)
        back = spoilt | (seen & (last.size * curvature > _OVERSHOT))
        here, slope = vectors.where(back, (last.z, last.d), (z, d))
        met = last.met + seen.astype(jnp.int32)
        after = Steps(here, slope, size, jnp.ones((), bool), met)
        return _Point(here, slope, size, back), after


def _trial(local: Local, z: PyTree, d: PyTree, known: Bool[Array, ""]) -> Float[Array, ""]:
    """A first α that leads only a little away from z, unless one is known.

    Not ‖αd‖ alone: where d is small (a start at the minimum of g without r) so large an α makes the
    residual small wherever z is. And not the way into the set of a constraint, which no α shortens.
    """
    z, d = lax.stop_gradient((z, d))
    z_norm, length = norm(z), norm(d)
    reach = _TRIAL * jnp.where(z_norm > 0, z_norm, 1.0)
    longest = reach / jnp.where(length > 0, length, 1.0)

    def shorter(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        size, _, tries = carry
        inside = local.prox(z, longest * 16.0**-_TRIES)
        moved = norm(subtract(inside, local.prox(add_scaled(z, -size, d), size)))
        again = moved > 2 * reach
        return jnp.where(again, size / 16, size), again, tries + 1

    start = longest, ~known, jnp.zeros((), jnp.int32)
    return lax.while_loop(lambda c: c[1] & (c[2] < _TRIES), shorter, start)[0]


class ProximalGradient(_Proximal):
    """Proximal gradient descent (ISTA), for g + r with a proximal map for r.

    y ← prox(x, y − α ∇_y g(x, y), α)

    N steps cost N gradients; without a prox it is gradient descent.

    Parameters
    ----------
    step_size : number or "auto"
        α, at most 1/L. "auto" finds it from the gradients that are computed anyway.
    steps : integer, schedule of k or "auto"
        N, the largest number of steps.
    tolerance : number or schedule of k
        The loop ends at ‖y − prox(x, y − α∇_y g, α)‖ / α ≤ tolerance. 0 spends all steps.

    Examples
    --------
    >>> bl.ProximalGradient("auto", steps=500, tolerance=1e-8)
    ProximalGradient(step_size=Secant(), steps=500, tolerance=1e-08)
    """

    step_size: Float[Array, ""] | Secant = eqx.field(converter=_as_step)
    steps: Schedule = eqx.field(converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)

    def start(self, y, kept):
        return self._first(y, kept)

    def step(self, gradient, y, state):
        at, state = self._sized(gradient, y, state)
        after = gradient.prox(add_scaled(at.z, -at.size, at.d), at.size)
        return after, state, scaled(1 / at.size, subtract(at.z, after))

    def keep(self, state):
        return self._kept(state)


class _Accelerated(NamedTuple):
    """The point to evaluate next, t of the momentum, and the step sizes so far."""

    z: PyTree
    t: Float[Array, ""]
    steps: Steps | tuple[()]


class FISTA(_Proximal):
    """Accelerated proximal gradient descent with restarts, for g + r with a proximal map for r.

    y⁺ ← prox(x, z − α ∇_y g(x, z), α),   z⁺ ← y⁺ + ((t − 1)/t⁺) (y⁺ − y),   t⁺ = (1 + √(1 + 4t²))/2

    A. Beck and M. Teboulle (2009); t goes back to 1 where the momentum leads uphill, ⟨z − y⁺,
    y⁺ − y⟩ > 0 (B. O'Donoghue and E. Candès, 2015), so that no μ has to be known. Where there is a
    target the last steps are plain: the residual reported is that of the y returned.

    Parameters
    ----------
    step_size, steps, tolerance
        As for `ProximalGradient`.

    Examples
    --------
    >>> bl.FISTA("auto", steps="auto")
    FISTA(step_size=Secant(), steps=Adaptive(share=0.1, most=1000))
    """

    step_size: Float[Array, ""] | Secant = eqx.field(converter=_as_step)
    steps: Schedule = eqx.field(converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)

    @property
    def refines(self):
        return isinstance(self.steps, Adaptive)

    def start(self, y, kept):
        return _Accelerated(y, jnp.ones((), vectors.accumulator(y)), self._first(y, kept))

    def point(self, y, state):
        return state.z

    def end(self, arrived, y, state):
        return y  # what came out of the proximal map: in its set, and sparse

    def step(self, gradient, y, state):
        at, steps = self._sized(gradient, state.z, state.steps)
        if isinstance(self.step_size, Secant):
            at = at._replace(size=_shorter_at_rest(at.size, state.z, state.steps))
        after = gradient.prox(add_scaled(at.z, -at.size, at.d), at.size)
        moved, pulled = subtract(after, y), subtract(at.z, after)
        restart = at.back | (inner_product(pulled, moved) > 0)
        t = jnp.where(restart, jnp.ones_like(state.t), state.t)
        t_next = (1 + jnp.sqrt(1 + 4 * t**2)) / 2
        momentum = lax.stop_gradient(jnp.where(restart, jnp.zeros_like(t), (t - 1) / t_next))
        z = add_scaled(after, momentum, moved)
        return after, _Accelerated(z, t_next, steps), scaled(1 / at.size, pulled)

    def keep(self, state):
        return self._kept(state.steps)

    def __call__(self, problem, x, y0, state, k):
        rule = self.rule(y0, state, k)
        own = self.start(y0, state.kept)
        most = jnp.asarray(rule.steps)
        # With a target one step is left for the y that is returned.
        held = rule._replace(steps=jnp.where(most > 0, most - 1, most)) if rule.judges else rule
        loop = _loop(self, Local(problem, x), y0, own, held, first=not rule.judges)
        y, own = loop.state
        info = LoopInfo(loop.residual, loop.steps, Cost(loop.steps, 0), loop.result)
        after = DescentState(self.keep(own), loop.curvature)
        if not rule.judges:
            return y, after, info

        # From the point that came out, without momentum: it is y that is judged. Where y0 was good
        # enough it stays: a first step only measures.
        y = vectors.where(loop.arrived & (loop.steps == 1), y0, y)
        plain = ProximalGradient(self.step_size, self.steps, self.tolerance)
        again = plain.rule(y0, DescentState((), loop.curvature), k)
        left = again._replace(steps=most - loop.steps)
        check = _loop(plain, Local(problem, x), y, own.steps, left, first=True)
        y, kept = check.state[0], plain.keep(check.state[1])
        learnt = check.curvature
        if isinstance(learnt, Curvature) and isinstance(loop.curvature, Curvature):
            most = jnp.maximum(learnt.inverse_mu, loop.curvature.inverse_mu)
            learnt = learnt._replace(inverse_mu=most)
        steps = loop.steps + check.steps
        info = LoopInfo(check.residual, steps, Cost(steps, 0), check.result)
        return y, DescentState(kept, learnt), info


def _shorter_at_rest(size: Array, z: PyTree, last: Steps) -> Array:
    """α, or half of it where z rests: there a step beyond 4/3L shows in derivatives alone."""
    z, moved = lax.stop_gradient((z, subtract(z, last.z)))
    rests = last.known & (norm(moved) <= _ROUNDING * vectors.eps(z) * norm(z))
    return jnp.where(rests, _STABLE * size, size)


def _loop(solver: _Proximal, gradient: Local, y: PyTree, own: PyTree, rule: Rule, *, first: bool):
    """The loop of a descent; see `iterate` for `first`."""

    def step(carry: tuple[PyTree, PyTree]) -> tuple[tuple[PyTree, PyTree], PyTree]:
        y, own, d = solver.step(gradient, *carry)
        return (y, own), d

    return iterate(step, (y, own), y, rule, residual_first=first)
