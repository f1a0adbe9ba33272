"""The outer step that finds its own size: limited-memory BFGS on hypergradients, with a way back.

J. Nocedal, Updating quasi-Newton matrices with limited storage (1980). There is no line search,
whose every trial would cost both loops: a step that turns out bad is taken back when the next
hypergradient shows it.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.outer.base import OuterStep
from biloop.outer.pairs import Pairs, inverse_times, is_empty, no_pairs, push
from biloop.schedules.arguments import as_count, positive
from biloop.vectors import inner_product, norm, subtract

_WINDOW = 3  # a value is bad only if it is above that many before it
_NOISE = 0.1  # ... by this share of their spread
_LAG = 1e-2  # of f: errors of values that are larger are none
_FORGET = 0.5  # of what was seen of the errors of values, in each step
_LEFT = 0.1  # of a change of h: what loops that leave a share of the error may show a step later
_CURVED = 1e-2  # smallest cosine between the changes of x and of h that is taken for curvature
_FARTHER = 2.0  # no step is so many times longer than the last one: behind a valley is a plateau
_BLIND = 1e-3  # of x: the shortest first step, where f is near 0 and says nothing
_SHORT = 0.9  # of the slope that was left by a step: it was too short (P. Wolfe, 1969)
_TRIES = 8  # a step is not taken back more often: 4⁻⁸ of its length is not too long ...
_FAILURES = 24  # ... unless a loop fails; but where 4⁻²⁴ of it fails as well, x cannot be left


class QuasiNewtonState(NamedTuple):
    """The last accepted point and the step from it, the pairs of changes, and what was seen."""

    x: PyTree
    h: PyTree
    step: PyTree  # the next point was x − step
    length: Float[Array, ""]  # ‖step‖, 0 before there is one
    reach: Float[Array, ""]  # the longest first step
    pairs: Pairs
    values: Float[Array, " w"]  # of the last accepted points
    norms: Float[Array, " w"]
    doubt: Float[Array, ""]  # what f has lately changed by without h knowing of it
    left: Float[Array, ""]  # what the loops may have left of earlier changes of h
    accepted: Int[Array, ""]
    tries: Int[Array, ""]  # steps back since then


class QuasiNewton(OuterStep):
    """x ← x − B h, with B ≈ (∇²Φ)⁻¹ from the last `memory` changes of x and h.

    The first step would change f by the share `first` of its value if the slope stayed as it is.
    Its length is between ‖x‖/1000 and ‖x‖, whatever the unit of x; from x = 0, which has none, it
    is at most √p, where p = dim x. It only measures the curvature, and no later step is more than
    twice as long as the one before. A point where a loop fails, or where f(x, y^N) has risen above
    the last three values, is left again: the step to it is repeated at a quarter of its length.
    `outer="auto"` is `QuasiNewton()`.

    What is carried from step to step is bounded: 2 · memory + 3 vectors like x, 23 by default;
    `predict_bytes(x)` tells.

    Parameters
    ----------
    memory : int
        The pairs of changes that are kept, each two vectors of the size of x.
    first : number
        The share of f by which the first step would change it.

    Examples
    --------
    >>> run = bl.solve(problem, x0, y0, outer=bl.QuasiNewton(memory=5), steps=20, epsilon=1e-8)
    >>> run.status.name
    'CONVERGED'
    """

    memory: int = eqx.field(default=10, static=True, converter=as_count("memory"))
    first: Float[Array, ""] = eqx.field(default=0.5, converter=positive("first"))

    def init(self, x):
        nothing, zero = vectors.zeros_like(x), vectors.zeros((), jnp.int32)
        unknown = vectors.zeros((), vectors.accumulator(x))
        # So that nothing is above it. By NumPy: an operation outside of a program compiles one.
        never = np.full(_WINDOW, np.inf, unknown.dtype)
        return QuasiNewtonState(
            x=x,
            h=nothing,
            step=nothing,
            length=unknown,
            reach=jax.device_put(never[0]),
            pairs=no_pairs(x, self.memory),
            values=jax.device_put(never),
            norms=jax.device_put(never),
            doubt=unknown,
            left=unknown,
            accepted=zero,
            tries=zero,
        )

    def predict_bytes(self, x: PyTree) -> int:
        """What the state takes, from the shapes of x alone; nothing is computed."""
        state = jax.eval_shape(self.init, jax.eval_shape(lambda: jax.tree.map(jnp.asarray, x)))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))

    def step(self, x, h, value, state):
        size, value = norm(h), value.astype(state.values.dtype)
        highest, lowest = jnp.max(state.values), jnp.min(state.values)
        # Values are not exact: a small rise counts only if ‖h‖ rises as well.
        risen = value - highest
        lag = jnp.minimum(state.doubt, _LAG * jnp.abs(highest))
        small = _NOISE * (highest - lowest) + jnp.where(state.accepted > 0, lag, 0.0)
        bad = (risen > small) | ((risen > 0) & (size > jnp.max(state.norms)))
        failed = jnp.isnan(value)
        back = (
            (bad | failed)
            & (state.accepted > 0)
            & (state.tries < jnp.where(failed, _FAILURES, _TRIES))
        )
        s, e = subtract(x, state.x), subtract(h, state.h)
        se, length, change = inner_product(s, e), norm(s), norm(e)
        # After a long step a short one shows what was left of the first, not a curvature.
        seen = (state.accepted > 0) & (change > state.left)
        curved = seen & (se > _CURVED * length * change)
        state = state._replace(pairs=push(state.pairs, curved & ~back, s, e))
        # A choice between the pairs would copy them: they are the same either way.
        left = _LEFT * jnp.maximum(change, state.left)
        onward = self._onward(x, h, value, size, length, curved, state)
        onward = onward._replace(left=jnp.where(state.accepted > 0, left, state.left), pairs=())
        refused = self._back(state)._replace(pairs=())
        state = vectors.where(back, refused, onward)._replace(pairs=state.pairs)
        return subtract(state.x, state.step), state, ~back

    def accepted(self, state):
        return state.x, np.asarray(state.values)[0]

    def begun(self, state, length):
        length = length.astype(state.reach.dtype)
        return state._replace(reach=jnp.where(length > 0, length, state.reach))

    @property
    def finds_its_size(self):
        return True

    def _onward(
        self,
        x: PyTree,
        h: PyTree,
        value: Float[Array, ""],
        size: Float[Array, ""],
        length: Float[Array, ""],
        curved: Bool[Array, ""],
        state: QuasiNewtonState,
    ) -> QuasiNewtonState:
        """Accept x, to which the last step of this length led, and take the next one.

        Where that step has changed the slope by little, and shows no curvature, the pairs do not
        know how far to go: farther than before.
        """
        before, after = inner_product(state.h, state.step), inner_product(h, state.step)
        seen = before > vectors.eps(x) * jnp.abs(value)  # below, slopes are rounding
        short = ~curved & (length > 0) & seen & (after >= _SHORT * before)
        # The same x again, which was looked at more closely: as if it had been accepted before.
        length = jnp.where(length > 0, length, state.length)
        step = inverse_times(state.pairs, h)
        nonzero = jnp.where(size > 0, size, 1.0)
        # Before any curvature is known: along h, and farther each time. (Where h was zero there was
        # no step.)
        first = _first_length(x, self.first.astype(size.dtype) * jnp.abs(value) / nonzero)
        first = jnp.minimum(first, state.reach)
        began = (length > 0) & (state.accepted > 0)
        reach = jnp.where(began, _FARTHER * length, first)
        plain = jnp.where(size > 0, reach / nonzero, 0.0)
        plainly = jax.tree.map(lambda a: plain.astype(a.dtype) * a, h)
        step = vectors.where(is_empty(state.pairs), plainly, step)

        # Half of what the slope promised is what a step to the minimum of a quadratic gains.
        promised = 0.5 * before
        gained = state.values[0] - value
        # y lags behind x, and f with it, to first order in the step; Φ itself changes by what the
        # slopes at both ends say, to second order.
        slopes = promised + 0.5 * after
        doubt = jnp.maximum(jnp.abs(gained - slopes), _FORGET * state.doubt)
        limit = jnp.where(began, _FARTHER * length, first)
        wanted = norm(step)
        far = (wanted > limit) | (short & began)
        shrink = jnp.where(far, limit / jnp.where(wanted > 0, wanted, 1.0), 1.0)
        step = jax.tree.map(lambda a: shrink.astype(a.dtype) * a, step)
        return QuasiNewtonState(
            x=x,
            h=h,
            step=step,
            length=shrink * wanted,
            reach=state.reach,
            pairs=state.pairs,
            values=_extend(value, state.values),
            norms=_extend(size, state.norms),
            doubt=jnp.where(state.accepted > 0, doubt, state.doubt),
            left=state.left,
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


def _first_length(x: PyTree, natural: Float[Array, ""]) -> Float[Array, ""]:
    """How far the first step goes: as far as f and its slope say, within what x shows of its unit.

    An x that is nothing against what they say shows none.
    """
    size, plain = norm(x), vectors.size(x) ** 0.5
    shown = size > _BLIND * natural
    length = jnp.where(shown, jnp.clip(natural, _BLIND * size, size), jnp.minimum(natural, plain))
    return jnp.where(length > 0, length, jnp.full_like(length, _BLIND * plain))


def _extend(new: Float[Array, ""], old: Float[Array, " w"]) -> Float[Array, " w"]:
    """The last values with a new one; the first fills all places."""
    return jnp.where(jnp.isinf(old[0]), new, jnp.concatenate([new[None], old[:-1]]))
