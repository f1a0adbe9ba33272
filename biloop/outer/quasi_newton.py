"""The outer step that finds its own size: limited-memory BFGS on hypergradients, with a way back.

J. Nocedal, Updating quasi-Newton matrices with limited storage (1980). There is no line search,
whose every trial would cost both loops: a step that turns out bad is taken back when the next
hypergradient shows it.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from biloop import vectors
from biloop.outer.base import OuterStep
from biloop.vectors import add_scaled, inner_product, norm, subtract

_WINDOW = 3  # a value is bad only if it is above that many before it
_NOISE = 0.1  # ... by this share of their spread
_CURVED = 1e-2  # smallest cosine between the changes of x and of h that is taken for curvature
_FARTHER = 10.0  # no step is so many times longer than the last one
_TRIES = 8  # a step is not taken back more often: 4⁻⁸ of its length is not too long


class QuasiNewtonState(NamedTuple):
    """The last accepted point and the step from it, the pairs of changes, and what was seen."""

    x: PyTree
    h: PyTree
    step: PyTree  # the next point was x − step
    length: Float[Array, ""]  # ‖step‖
    S: PyTree  # changes of x, newest first; zero where there is none yet
    E: PyTree  # changes of h
    SE: Float[Array, " m"]  # their inner products
    value: Float[Array, ""]  # f(x, y^N) at the point that is being judged
    values: Float[Array, " w"]  # of the last accepted points
    norms: Float[Array, " w"]
    accepted: Int[Array, ""]
    tries: Int[Array, ""]  # steps back since then


class QuasiNewton(OuterStep):
    """x ← x − B h, with B ≈ (∇²Φ)⁻¹ from the last `memory` changes of x and h.

    The first step moves each coordinate by `first` (relative to its size, if x is larger than 1)
    and only measures the curvature. A point where a loop fails, or where f(x, y^N) has risen above
    the last three values, is left again: the step to it is repeated at a quarter of its length.
    `outer="auto"` is `QuasiNewton()`.
    """

    memory: int = eqx.field(default=10, static=True)
    first: float = eqx.field(default=0.03, static=True)

    def __check_init__(self):
        if self.memory < 1:
            raise ValueError(f"memory must be at least 1, got {self.memory}.")
        if not self.first > 0:
            raise ValueError(f"first must be greater than 0, got {self.first}.")

    def init(self, x):
        pairs = jax.tree.map(lambda a: jnp.zeros((self.memory, *a.shape), a.dtype), x)
        size = norm(x)
        nothing, zero = vectors.zeros_like(x), jnp.zeros((), jnp.int32)
        length = self.first * jnp.maximum(size, jnp.full_like(size, vectors.size(x) ** 0.5))
        never = jnp.full(_WINDOW, jnp.inf, size.dtype)  # so that nothing is above it
        return QuasiNewtonState(
            x=x,
            h=nothing,
            step=nothing,
            length=length,
            S=pairs,
            E=pairs,
            SE=jnp.zeros(self.memory, size.dtype),
            value=jnp.full_like(size, jnp.inf),
            values=never,
            norms=never,
            accepted=zero,
            tries=zero,
        )

    def observe(self, value, state):
        return state._replace(value=value.astype(state.value.dtype))

    def step(self, x, h, state):
        size = norm(h)
        highest, lowest = jnp.max(state.values), jnp.min(state.values)
        # Values are not exact: a small rise counts only if ‖h‖ rises as well. An infinite value
        # stands for a failure.
        risen = state.value - highest
        bad = (risen > _NOISE * (highest - lowest)) | ((risen > 0) & (size > jnp.max(state.norms)))
        back = bad & (state.accepted > 0) & (state.tries < _TRIES)
        state = vectors.where(back, self._back(state), self._onward(x, h, size, state))
        return subtract(state.x, state.step), state

    def undone(self, state):
        return state.tries > 0

    def _onward(
        self, x: PyTree, h: PyTree, size: Float[Array, ""], state: QuasiNewtonState
    ) -> QuasiNewtonState:
        """Accept x: learn from the step to it, and take the next one."""
        s, e = subtract(x, state.x), subtract(h, state.h)
        se, length = inner_product(s, e), norm(s)
        curved = (state.accepted > 0) & (se > _CURVED * length * norm(e))
        S, E = (_push(curved, new, old) for new, old in ((s, state.S), (e, state.E)))
        SE = _push(curved, se, state.SE)

        known = SE[0] > 0
        step = _two_loops(h, S, E, SE, self.memory)
        # Before any curvature is known: along h, and farther each time.
        reach = jnp.where(state.accepted > 0, 4 * length, state.length)
        plain = jnp.where(size > 0, reach / jnp.where(size > 0, size, 1.0), 0.0)
        step = jax.tree.map(lambda a, b: jnp.where(known, a, plain.astype(b.dtype) * b), step, h)

        limit = jnp.where(state.accepted > 0, _FARTHER * length, state.length)
        wanted = norm(step)
        shrink = jnp.where(wanted > limit, limit / jnp.where(wanted > 0, wanted, 1.0), 1.0)
        step = jax.tree.map(lambda a: shrink.astype(a.dtype) * a, step)
        return QuasiNewtonState(
            x=x,
            h=h,
            step=step,
            length=shrink * wanted,
            S=S,
            E=E,
            SE=SE,
            value=state.value,
            values=_extend(state.value, state.values),
            norms=_extend(size, state.norms),
            accepted=state.accepted + 1,
            tries=jnp.zeros_like(state.tries),
        )

    def _back(self, state: QuasiNewtonState) -> QuasiNewtonState:
        """From the last accepted point again, a quarter as far."""
        return state._replace(
            step=jax.tree.map(lambda a: a / 4, state.step),
            length=state.length / 4,
            tries=state.tries + 1,
        )


def _extend(new: Float[Array, ""], old: Float[Array, " w"]) -> Float[Array, " w"]:
    """The last values with a new one; the first fills all places."""
    return jnp.where(jnp.isinf(old[0]), new, jnp.concatenate([new[None], old[:-1]]))


def _push(when: Array, new: PyTree, old: PyTree) -> PyTree:
    """The new entry before the old ones, the last of which is dropped."""
    return jax.tree.map(
        lambda new, old: jnp.where(when, jnp.concatenate([new[None], old[:-1]]), old), new, old
    )


def _two_loops(h: PyTree, S: PyTree, E: PyTree, SE: Float[Array, " m"], memory: int) -> PyTree:
    """B h by the two-loop recursion; a pair that is still empty changes nothing."""
    filled = SE > 0
    inverses = jnp.where(filled, 1 / jnp.where(filled, SE, 1.0), 0.0)
    pairs = [(_entry(S, i), _entry(E, i), inverses[i]) for i in range(memory)]
    weights = []
    for s, e, inverse in pairs:
        weight = inverse * inner_product(s, h)
        weights.append(weight)
        h = add_scaled(h, -weight, e)
    _, newest, _ = pairs[0]
    ee = inner_product(newest, newest)
    scale = jnp.where(ee > 0, SE[0] / jnp.where(ee > 0, ee, 1.0), 1.0)
    h = jax.tree.map(lambda a: scale.astype(a.dtype) * a, h)
    for (s, e, inverse), weight in zip(reversed(pairs), reversed(weights), strict=True):
        h = add_scaled(h, weight - inverse * inner_product(e, h), s)
    return h


def _entry(stack: PyTree, i: int) -> PyTree:
    return jax.tree.map(lambda a: a[i], stack)
