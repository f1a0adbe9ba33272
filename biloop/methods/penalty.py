"""First-order methods: derivatives of y*(x) from two minimisers that differ by a little of f.

    y_s(x) = argmin_y g(x, y) + (s/λ) f(x, y)

The derivative of the value of that problem with respect to s/λ is f(x, y*(x)), so that differences
of its gradient in x are ∇Φ(x): no second derivatives of g are taken.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, PyTree

from biloop import vectors
from biloop.methods.base import Info, Residuals, checked_start
from biloop.methods.directions import (
    Drawing,
    Drawn,
    Source,
    check_estimator,
    check_samples,
    draw,
    estimate,
    judged,
)
from biloop.methods.sampled_aid import counted
from biloop.oracles import Cost, SampleCount, inner_gradients, outer_gradients, outer_value
from biloop.problem import Problem
from biloop.samples import Pair, Samples
from biloop.samples.estimators import Estimator, Plain
from biloop.schedules import Count, Schedule, as_number, as_steps, number_at, step_count
from biloop.schedules.arguments import as_flag
from biloop.vectors import add_scaled, norm, scaled, subtract

_X, _Y = 0, 1  # the place of a gradient among those of (x, y)


class Copies(NamedTuple):
    """x, and the minimisers with more of f (s = 1) and with none or less (s = 0 or −1)."""

    x: PyTree
    upper: PyTree
    lower: PyTree


class PenaltyState(NamedTuple):
    """y is the lower copy; what estimates of the copies and of h keep, and draws so far.

    `last` has the points of the last estimates, where an estimator looks back.
    """

    y: PyTree
    upper: PyTree
    last: Pair
    estimates: Pair
    draws: Int[Array, ""]


_Carry = tuple[PenaltyState, SampleCount, Array]  # the last has the size of the last step


class Penalty(Drawing):
    """F2SA of Kwon, Kwon, Wright and Nowak (2023), https://arxiv.org/abs/2301.10945.

    u ← u − α (∇_y g(x, u) + ∇_y f(x, u) / λ),   y ← y − α ∇_y g(x, y)      T times
    h = ∇_x f(x, u) + λ (∇_x g(x, u) − ∇_x g(x, y))

    h is off by O(1/λ). With `central` the lower copy has −1/λ of f, and
    h = ½(∇_x f(x, u) + ∇_x f(x, y)) + ½λ (∇_x g(x, u) − ∇_x g(x, y)), off by O(1/λ²): F2SA-2.

    Parameters
    ----------
    samples : Samples
    inner_step : number or schedule of k
        α.
    multiplier : number or schedule of k
        λ. The larger it is, the smaller the bias, and the larger the noise of h.
    steps : integer or schedule of k
        T, of both copies of y.
    estimator : Estimator
        Of all directions; `Storm` makes F3SA.
    central : bool
        Whether a second copy is moved the other way, which makes F2SA-2.

    Examples
    --------
    >>> samples = bl.Samples(bl.All(), bl.All())
    >>> method = bl.Penalty(samples, inner_step=0.3, multiplier=100.0, steps=30)
    >>> h, state, info = method(problem, x0, method.init(problem, x0, y0), 0)
    >>> print(f"{h:.2f}")  # that of `Exact` is 0.4676
    0.47
    """

    samples: Samples
    inner_step: Schedule = eqx.field(converter=as_number("inner_step"))
    multiplier: Schedule = eqx.field(converter=as_number("multiplier"))
    steps: Schedule = eqx.field(default=1, converter=as_steps(minimum=1))
    estimator: Estimator = eqx.field(default_factory=Plain)
    central: bool = eqx.field(default=False, static=True, converter=as_flag("central"))

    def __check_init__(self):
        check_samples(self.samples)
        check_estimator(self.estimator, self.samples, "estimator")

    def init(self, problem, x, y):
        x, y = checked_start(problem, x, y)
        self.samples.check(problem, x, y)
        here, count = Copies(x, y, y), self.samples.blocks(problem)
        source = Source(problem, lambda i: problem)
        estimates = Pair(*(
            self.estimator.init(eqx.filter_eval_shape(self._parts(which), source, here), count)
            for which in (_Y, _X)
        ))  # fmt: skip
        last = Pair(here, here) if self.estimator.looks_back else Pair((), ())
        return PenaltyState(y, y, last, estimates, jnp.zeros((), jnp.int32))

    def __call__(self, problem, x, state, k):
        T, bad_T = counted(step_count(self.steps, k))
        nothing = SampleCount(*[jnp.zeros((), jnp.int32)] * 3)
        carry = (state, nothing, jnp.zeros((), vectors.accumulator(state.y)))
        move = lambda i, carry: self._move(problem, x, i, carry, k)  # noqa: E731
        moved, spent, size = lax.fori_loop(0, T, move, carry)

        here = Copies(x, moved.upper, moved.y)
        drawn = draw(self.samples, problem, moved.draws)
        parts, moved, more = self._estimate(_X, drawn, here, moved, k)
        h = self._hypergradient(parts, k)
        value = outer_value(drawn.source.problem, x, moved.y)
        result = judged(size, value, bad_steps=bad_T)
        y, upper = vectors.where(result == 0, (moved.y, moved.upper), (state.y, state.upper))
        info = Info(value, Cost(0, 0), result, Residuals(size), spent + more)
        return h, moved._replace(y=y, upper=upper), info

    def _move(self, problem: Problem, x: PyTree, i: Count, carry: _Carry, k: Count) -> _Carry:
        """One step of both copies; the first of an outer step may be the time for all rows."""
        state, spent, _ = carry
        drawn = draw(self.samples, problem, state.draws, within=jnp.asarray(i) > 0)
        here = Copies(x, state.upper, state.y)
        parts, state, more = self._estimate(_Y, drawn, here, state, k)
        alpha, inverse = number_at(self.inner_step, k), 1 / number_at(self.multiplier, k)
        d_upper = add_scaled(parts.inner["upper"], inverse, parts.outer["upper"])
        d_lower = parts.inner["lower"]
        if self.central:
            d_lower = add_scaled(d_lower, -inverse, parts.outer["lower"])
        y, upper = add_scaled((state.y, state.upper), -alpha, (d_lower, d_upper))
        return state._replace(y=y, upper=upper), spent + more, norm(d_lower)

    def _estimate(
        self, which: int, drawn: Drawn, here: Copies, state: PenaltyState, k: Count
    ) -> tuple[Pair, PenaltyState, SampleCount]:
        """The gradients in x or y at both copies, and the state with their estimates."""
        place = 0 if which == _Y else 1
        last = state.last[place] if self.estimator.looks_back else here
        parts, own, spent = estimate(
            self.estimator, self._parts(which), self._price, drawn, (here, last),
            state.estimates[place], k, join=lambda parts: parts,
        )  # fmt: skip
        name = Pair._fields[place]
        kept = here if self.estimator.looks_back else ()
        after = state._replace(
            last=state.last._replace(**{name: kept}),
            estimates=state.estimates._replace(**{name: own}),
            draws=state.draws + 1,
        )
        return parts, after, spent

    def _hypergradient(self, parts: Pair, k: Count) -> PyTree:
        multiplier = number_at(self.multiplier, k)
        g_x = subtract(parts.inner["upper"], parts.inner["lower"])
        if not self.central:
            return add_scaled(parts.outer["upper"], multiplier, g_x)
        f_x = scaled(0.5, add_scaled(parts.outer["upper"], 1.0, parts.outer["lower"]))
        return add_scaled(f_x, multiplier / 2, g_x)

    def _parts(self, which: int) -> Callable[[Source, Copies], Pair]:
        """∇_x or ∇_y of g at both copies and of f at the upper one, or at both if `central`."""

        def evaluate(source: Source, here: Copies) -> Pair:
            problem, x = source.problem, here.x
            copies = {"upper": here.upper, "lower": here.lower}
            with_f = copies if self.central else {"upper": here.upper}
            return Pair(
                {name: inner_gradients(problem, x, y)[which] for name, y in copies.items()},
                {name: outer_gradients(problem, x, y)[1:][which] for name, y in with_f.items()},
            )

        return evaluate

    def _price(self, sizes: Pair) -> SampleCount:
        return SampleCount(inner=2 * sizes.inner, outer=(1 + self.central) * sizes.outer)

    def reads(self, draws, k):
        next_ones = range(draws, draws + max(int(step_count(self.steps, k)), 0) + 1)
        return Pair(next_ones, next_ones)

    def stability(self, L):
        return [("inner", float(number_at(self.inner_step, 0)), 2 / L)]
