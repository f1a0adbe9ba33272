"""AID on batches: every step of both loops sees rows of its own."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, PyTree

from biloop import vectors
from biloop.inner import Descent
from biloop.inner.base import DescentState, Local
from biloop.linear import Stepped
from biloop.loops.step_size import BarzilaiBorwein
from biloop.methods.base import Info, Residuals, checked_loops, checked_start
from biloop.methods.derivatives import Autodiff, Derivatives
from biloop.methods.directions import (
    Drawing,
    Point,
    Source,
    adjoint_parts,
    adjoint_price,
    check_estimator,
    check_samples,
    draw,
    estimate,
    judged,
)
from biloop.methods.series import series
from biloop.oracles import Cost, SampleCount, outer_value
from biloop.problem import Problem
from biloop.problem.rows import Rows
from biloop.samples import Pair, Samples
from biloop.samples.estimators import Estimator, Plain
from biloop.schedules import Adaptive, Count, step_count
from biloop.vectors import norm, zeros_like


class SampledAIDState(NamedTuple):
    """y and v, what the inner loop keeps, the last point and estimate of h, and draws so far."""

    y: PyTree
    v: PyTree
    inner: PyTree
    last: PyTree
    estimate: PyTree
    draws: Int[Array, ""]


class SampledAID(Drawing):
    """The hypergradient of Algorithm 1 where each step draws anew.

    y ← N steps on g(x, ·) from the last y                       N gradients on B of n rows
    v ← Q steps on ∇²_y g(x, y) v = ∇_y f(x, y)                  Q products on B of n rows
    h ← estimate of ∇_x f(x, y) − ∇_x∇_y g(x, y) v               2 gradients on B′ of m, 1 product

    Parameters
    ----------
    inner : Descent
        `GradientDescent`, `Nesterov`, `HeavyBall` or `Optax` with a number of steps. What happens
        on a batch cannot be judged by a tolerance, so that there must be none.
    linear : Stepped
        `Richardson`, `Neumann` or `RandomNeumann`. Others need one H for all products.
    samples : Samples
    estimator : Estimator
        Of h; its last value is at the last x, y and v.
    derivatives : Derivatives
        `Autodiff()` or `Differences(radius)`.

    Examples
    --------
    >>> samples = bl.Samples(bl.Blocks(8), bl.Blocks(8), key=0)
    >>> loops = bl.GradientDescent(step_size=0.1, steps=5), bl.Neumann(0.1, 5)
    >>> method = bl.SampledAID(*loops, samples)
    >>> run = bl.solve(problem, x0, y0, method, outer=0.1, steps=10)
    >>> run.status.name
    'COMPLETED'
    """

    inner: Descent
    linear: Stepped
    samples: Samples
    estimator: Estimator = eqx.field(default_factory=Plain)
    derivatives: Derivatives = eqx.field(default_factory=Autodiff)

    def __check_init__(self):
        if not isinstance(self.inner, Descent):
            raise TypeError(
                f"The inner loop must make single gradient steps, each on rows of its own, such as "
                f"GradientDescent; {self.inner!r} builds on one g."
            )
        if not isinstance(self.linear, Stepped):
            raise TypeError(
                f"Each step of the linear loop meets another H, which {self.linear!r} cannot take: "
                f"use Richardson, Neumann or RandomNeumann."
            )
        for loop in (self.inner, self.linear):
            check_loop(loop)
        check_samples(self.samples)
        check_estimator(self.estimator, self.samples, "estimator")

    def init(self, problem, x, y):
        x, y = checked_start(problem, x, y)
        self.samples.check(problem, x, y)
        checked_loops(problem, self.inner)
        v, point = zeros_like(y), Point(x, y, zeros_like(y))
        source = Source(problem, lambda i: problem)
        parts = eqx.filter_eval_shape(adjoint_parts, self.derivatives, "x", source, point)
        own = self.estimator.init(parts, self.samples.blocks(problem))
        last = point if self.estimator.looks_back else ()
        draws = jnp.zeros((), jnp.int32)
        return SampledAIDState(y, v, self.inner.init(y), last, own, draws)

    def __call__(self, problem, x, state, k):
        (N, bad_N), t = counted(step_count(self.inner.steps, k)), state.draws
        Q, bad_Q = counted(self.linear.length(self.samples.chance(t + N), k))
        inner, outer = self.samples.draws(problem, t, N + 1 + Q, k)
        y, kept, gradient = descend(self.inner.at(k), problem, x, state, inner, N)

        drawn = draw(self.samples, problem, t + N, k, rows=Pair(inner(N), outer))
        products = lambda i: problem.batch(inner(N + 1 + i), None)  # noqa: E731
        source = drawn.source._replace(products=products)
        v0 = zeros_like(state.v) if self.linear.starts_cold else state.v
        v, _ = series(self.linear, self.derivatives, source, Point(x, y, v0), Q, k)

        here = Point(x, y, v)
        last = state.last if self.estimator.looks_back else here
        evaluate = partial(adjoint_parts, self.derivatives, "x")
        price = partial(adjoint_price, self.derivatives, "x")
        found, own, spent = estimate(
            self.estimator, evaluate, price, drawn, (here, last), state.estimate, k
        )
        value = outer_value(drawn.source.problem, x, y)

        inner_size = norm(gradient)
        result = judged(inner_size, value, norm(v), bad_N | bad_Q)
        good = result == 0
        y, v, kept = vectors.where(good, (y, v, kept), (state.y, state.v, state.inner))
        sizes = drawn.sizes
        spent = spent + SampleCount(inner=N * sizes.inner, outer=sizes.outer)
        spent = spent + self.derivatives.price(sizes.inner).times(Q)
        after = SampledAIDState(
            y, v, kept, here if self.estimator.looks_back else (), own, t + N + 1 + Q
        )
        return found["x"], after, Info(value, Cost(0, 0), result, Residuals(inner_size), spent)

    def reads(self, draws, k):
        N, Q = int(step_count(self.inner.steps, k)), int(self.linear.longest(k))
        return Pair(range(draws, draws + max(N, 0) + 1 + max(Q, 0)), range(k, k + 1))

    def stability(self, L):
        loops = (("inner", self.inner), ("linear", self.linear))
        rows = [(name, loop.stability(L)) for name, loop in loops]
        return [(name, *numbers) for name, numbers in rows if numbers is not None]


def descend(
    inner: Descent, problem: Problem, x: PyTree, state: Any, rows: Callable[[Any], Rows], N: Count
) -> tuple[PyTree, DescentState, PyTree]:
    """y after N steps, each on rows of its own, what the loop keeps, and the last gradient.

    Only the last step, in a loop of its own, hands out its gradient: in the others it need not be
    written down.
    """

    def step(i: Count, carry: tuple[PyTree, PyTree, PyTree]) -> tuple[PyTree, PyTree, PyTree]:
        y, own, _ = carry
        return inner.step(Local(problem.batch(rows(i), None), x), y, own)

    zero, last = zeros_like(state.y), jnp.maximum(N - 1, 0)
    start = (state.y, inner.start(state.y, state.inner.kept), zero)
    start = lax.fori_loop(0, last, lambda i, carry: (*step(i, carry)[:2], zero), start)
    y, own, gradient = lax.fori_loop(last, N, step, start)
    return inner.finish(y, own), DescentState(inner.keep(own), state.inner.curvature), gradient


def counted(steps: Count) -> tuple[Count, Array]:
    """A number of steps to make, and whether the schedule gave none (see `step_count`)."""
    if isinstance(steps, int):
        return max(steps, 0), jnp.asarray(steps < 0)
    return jnp.maximum(steps, 0), steps < 0


def check_loop(loop: Descent | Stepped) -> None:
    """Refuse loops that want to judge a batch."""
    own = {name: getattr(loop, name, None) for name in ("steps", "tolerance", "step_size")}
    if isinstance(own["steps"], Adaptive) or isinstance(own["step_size"], BarzilaiBorwein):
        raise ValueError(
            f'"auto" measures curvature between steps, which changes with the rows here: give '
            f"numbers to {loop!r}."
        )
    if own["tolerance"] is not None:
        raise ValueError(
            f"A residual on a batch says little of the whole, so that a tolerance cannot end "
            f"{loop!r}: give a number of steps."
        )
