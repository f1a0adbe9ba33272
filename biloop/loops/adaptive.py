"""Loops that size themselves: enough is enough when a share of the error is left.

    ‖residual‖ / μ ≤ share · ‖y − y⁰‖

The left side bounds the error; the distance from the warm start is (but for that) the error that
the last outer step brought in. For 1/μ stands the largest inverse curvature that was seen, which
goes from one loop to the next, and between the two loops of AID: they meet one Hessian.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.schedules import Adaptive, Count, Schedule

# What one loop has learnt about 1/μ is trusted a little less in the next.
FORGET = 0.9
_SHOWN = 0.1  # over eps: a larger κ is shown by the rounding of residuals only
_UNKNOWN = 0.01  # of the share, for a loop that has seen nothing of 1/μ before
_COARSE = 8.0  # units of rounding: half precision has no smaller shares to show
_KNOWN = 0.5  # of a point: an error that is larger is none of rounding


class Curvature(NamedTuple):
    """What adaptive loops have seen of the inner Hessian: a lower bound of 1/μ, at first 0.

    `damping` is the δ of H + δI, 0 where no negative curvature was met.
    """

    inverse_mu: Float[Array, ""]
    damping: Float[Array, ""] | float = 0.0


def curvature_state(steps: Schedule, like: PyTree) -> Curvature | tuple[()]:
    """What an adaptive loop knows before it has seen anything; nothing for other loops."""
    if not isinstance(steps, Adaptive):
        return ()
    return unknown(like)


def unknown(like: PyTree) -> Curvature:
    """Nothing was seen yet."""
    zero = jnp.zeros((), vectors.accumulator(like))
    return Curvature(zero, zero)


def learn(state: PyTree, other: PyTree) -> PyTree:
    """The state of one solver with what that of another has seen of the same Hessian."""
    nodes = _curvatures(other)
    if not nodes:
        return state
    seen = jax.tree.map(lambda *numbers: jnp.max(jnp.stack(numbers)), *nodes)

    def update(node: PyTree) -> PyTree:
        if not _is_curvature(node):
            return node
        return jax.tree.map(lambda own, new: jnp.maximum(own, new.astype(own.dtype)), node, seen)

    return jax.tree.map(update, state, is_leaf=_is_curvature)


def seen_inverse_mu(state: PyTree) -> Float[Array, ""] | None:
    """The largest inverse curvature in the state of a solver; None if it looks for none."""
    seen = [node.inverse_mu for node in _curvatures(state)]
    return jnp.max(jnp.stack(seen)) if seen else None


def _curvatures(state: PyTree) -> list[Curvature]:
    return [node for node in jax.tree.leaves(state, is_leaf=_is_curvature) if _is_curvature(node)]


def _is_curvature(node: PyTree) -> bool:
    return isinstance(node, Curvature)


class Observation(NamedTuple):
    """What a step shows; s and e are the changes of the point and of its residual.

    An inverse curvature ‖s‖² / |⟨s, e⟩| between 1/L and 1/μ, a curvature between μ and L, both 0
    where nothing was seen, and the distance from where the loop started.
    """

    inverse_curvature: Float[Array, ""]
    curvature: Float[Array, ""]
    distance: Float[Array, ""]


class Adaptivity(NamedTuple):
    """The target of an adaptive loop, and how its steps are observed.

    `observe` maps its own state (at first `state`), the states of the loop before and after a step,
    and the residual to its next state and an `Observation`. `start_norm` is ‖y⁰‖, and `travelled`
    the distance that a longer loop, of which this one is a part, has gone before.
    """

    share: Float[Array, ""]
    inverse_mu: Float[Array, ""]
    start_norm: Float[Array, ""]
    observe: Callable[[PyTree, PyTree, PyTree, PyTree], tuple[PyTree, Observation]]
    state: PyTree = ()
    travelled: float | Float[Array, ""] = 0.0
    rounding: float = 1.0  # how many times eps a residual may be off, relative to L‖y‖
    # Steps without a new smallest residual: the loop gets no further. A first step that was far too
    # long is taken back by quarters, and 4³⁰ ≈ 10¹⁸ is as long as one can be.
    patience: int = 30
    waves: float = 0.0  # ... and that many times √(L/μ) more, for residuals that come in waves
    most: float | Float[Array, ""] = jnp.inf  # no larger residual is good enough


def adaptivity(
    steps: Schedule,
    origin: PyTree,
    at: Callable[[PyTree, PyTree], PyTree],
    known: Curvature | tuple[()],
    first: PyTree = None,
    k: Count | None = None,
) -> Adaptivity | None:
    """The rule of an adaptive loop, of an N-loop in outer iteration k; None for other loops.

    `at` maps the states before and after a step to the point whose residual the step computed;
    `first` is the residual at `origin`, if that is known before the first step.
    """
    if not isinstance(steps, Adaptive):
        return None
    assert isinstance(known, Curvature)
    share = steps.share if k is None else inner_share(steps, k)
    residual = vectors.zeros_like(origin) if first is None else first
    start_norm, eps = vectors.norm(origin), vectors.eps(origin)
    begin = _Last(origin, residual, jnp.asarray(first is not None), jnp.zeros_like(start_norm))

    def secant(
        last: _Last, before: PyTree, after: PyTree, residual: PyTree
    ) -> tuple[_Last, Observation]:
        point = at(before, after)
        s, e = vectors.subtract(point, last.point), vectors.subtract(residual, last.residual)
        moved, change = vectors.norm(s), vectors.norm(e)
        seen = last.known & (change > vectors.noise(point) * vectors.norm(residual)) & (moved > 0)
        # Unit vectors, as products of small ones underflow; a residual may have either sign.
        one = jnp.ones_like(change)
        moved, change = jnp.where(seen, moved, one), jnp.where(seen, change, one)
        units = vectors.scaled(1 / moved, s), vectors.scaled(1 / change, e)
        cosine = jnp.abs(vectors.inner_product(*units))
        seen = seen & (cosine > 0)
        safe, nothing = jnp.where(seen, cosine, one), jnp.zeros_like(one)
        inverse, largest = moved / change / safe, change / moved / safe
        top = jnp.maximum(last.top, jnp.where(seen, largest, nothing))
        return _Last(point, residual, jnp.ones((), bool), top), Observation(
            jnp.where(seen & (inverse * top < _SHOWN / eps), inverse, nothing),
            jnp.where(seen, largest, nothing),
            distance_from_start(point, origin, k),
        )

    return Adaptivity(share, known.inverse_mu, start_norm, secant, begin)


class _Last(NamedTuple):
    """The last point and its residual, whether there is one, and the largest curvature so far."""

    point: PyTree
    residual: PyTree
    known: Bool[Array, ""]
    top: Float[Array, ""]


def inner_share(steps: Adaptive, k: Count) -> Float[Array, ""]:
    """The share of the error that an adaptive N-loop may leave in outer iteration k.

    The first one starts cold, with an error that no outer step brought in, and must leave less for
    the first hypergradient to be worth learning from. (A Q-loop that starts at zero has to find all
    of v, and is judged by that.)
    """
    return jnp.where(jnp.asarray(k) == 0, steps.share**1.5, steps.share)


def distance_from_start(point: PyTree, origin: PyTree, k: Count | None) -> Float[Array, ""]:
    """‖y − y⁰‖, of which an adaptive loop leaves a share; in the first N-loop at most ‖y‖.

    Its start is arbitrary, and how far it is from y says nothing of how well y must be known.
    """
    distance = vectors.norm(vectors.subtract(point, origin))
    if k is None:
        return distance
    return jnp.where(jnp.asarray(k) == 0, jnp.minimum(distance, vectors.norm(point)), distance)


class Watch(NamedTuple):
    """What an adaptive loop has learnt from its steps."""

    state: PyTree  # of what observes them
    inverse_mu: Float[Array, ""]
    largest: Float[Array, ""]  # the largest curvature of this loop, a lower bound of L
    best: Float[Array, ""]  # the smallest residual
    idle: Int[Array, ""]  # steps since then
    trusted: Bool[Array, ""]  # whether what was seen before the last step is known to be enough


def watch_from(rule: Adaptivity) -> Watch:
    """Before the first step."""
    return Watch(
        rule.state,
        FORGET * rule.inverse_mu,
        jnp.zeros_like(rule.inverse_mu),
        jnp.full_like(rule.start_norm, jnp.inf),
        jnp.zeros((), jnp.int32),
        rule.inverse_mu > 0,
    )


def observe(
    rule: Adaptivity,
    watch: Watch,
    before: PyTree,
    after: PyTree,
    residual: PyTree,
    size: Float[Array, ""],
    rounding: float,
) -> tuple[Watch, Bool[Array, ""]]:
    """What is known after a step, and whether the loop has arrived.

    The first steps of all may see stiff directions only, and the error lie in one of small
    curvature, whose part of the residual is small and falls last. A loop that knows nothing from
    before goes on until the residual would show it, and must be near enough twice, with what the
    next step sees.

    A residual of L‖y‖ times the rounding error of a number is rounding: nothing is left to do. But
    where ‖residual‖ / μ is no smaller than y, y is not known for all that.
    """
    state, seen = rule.observe(watch.state, before, after, residual)
    inverse_mu = jnp.maximum(watch.inverse_mu, seen.inverse_curvature)
    largest = jnp.maximum(watch.largest, seen.curvature)
    distance = jnp.hypot(seen.distance, jnp.asarray(rule.travelled, seen.distance.dtype))
    cautious = jnp.maximum(_UNKNOWN * rule.share, jnp.minimum(_COARSE * rounding, rule.share))
    share = jnp.where(rule.inverse_mu > 0, rule.share, cautious)
    enough = inverse_mu * size <= share.astype(distance.dtype) * distance
    length = rule.start_norm + seen.distance
    rounded = size <= rule.rounding * rounding * largest * length
    rounded = rounded & (inverse_mu * size <= _KNOWN * length)
    idle = jnp.where(size < watch.best, jnp.zeros_like(watch.idle), watch.idle + 1)
    arrived = (inverse_mu > 0) & ((enough & watch.trusted) | rounded) & (size <= rule.most)
    trusted = (rule.inverse_mu > 0) | ((inverse_mu > 0) & enough)
    watch = Watch(state, inverse_mu, largest, jnp.minimum(size, watch.best), idle, trusted)
    return watch, arrived | (size == 0)


def is_idle(rule: Adaptivity, watch: Watch) -> Bool[Array, ""]:
    """Whether the residual has not become smaller for so long that it never will."""
    if rule.waves == 0:
        return watch.idle >= rule.patience
    kappa = (watch.inverse_mu * watch.largest).astype(jnp.float32)
    return watch.idle.astype(jnp.float32) >= rule.patience + rule.waves * jnp.sqrt(kappa)
