"""ITD: iterative differentiation (Algorithm 2, ITD-BiO): the derivative of x ↦ f(x, y^N(x))."""

import math
from functools import partial
from typing import Literal, get_args

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree

from biloop.hypergradient import unroll
from biloop.hypergradient.base import (
    Hypergradient,
    HypergradientInfo,
    Seen,
    Warm,
    first_warm,
    judge,
)
from biloop.inner import InnerSolver
from biloop.loops import count, limit
from biloop.oracles import Cost, inner_gradient, outer_gradients
from biloop.problem import Problem
from biloop.schedules import Count, Fixed
from biloop.vectors import add_scaled

Memory = Literal["recompute", "sqrt", "forward"]


class ITD(Hypergradient):
    """The hypergradient of Algorithm 2, by differentiating the N-loop.

    h = ∇_x f − α Σ_{t<N} ∇_x∇_y g(x, y^t) Π_{t<j<N} (I − α∇²_y g(x, y^j)) ∇_y f(x, y^N)

    for gradient descent, from the recursion v_{j−1} = (I − α∇²_y g(x, y^{j−1})) v_j with
    v_N = ∇_y f; for other inner methods the same with their own step. N + 2 gradients, 2N products.

    `memory` says what is kept of the way forward:

    - "recompute": the N iterates; each is linearised again on the way back.
    - "sqrt": every ⌈√N⌉-th iterate; those between are computed again, for almost N more gradients.
    - "forward": nothing; ∂y/∂x is carried along, for 2pN products with x of dimension p.

    `truncate=T` goes back through the last T steps only (Shaban et al., 2019), with 2T products and
    the memory of T iterates. A loop whose number of steps is not a plain integer (a schedule) needs
    `max_steps`, which caps it and is the room reserved for its iterates.
    """

    inner: InnerSolver
    memory: Memory = eqx.field(default="recompute", static=True)
    truncate: int | None = eqx.field(default=None, static=True)
    max_steps: int | None = eqx.field(default=None, static=True)
    warm_start_y: bool = eqx.field(default=True, static=True)

    def __check_init__(self):
        if not isinstance(self.inner, InnerSolver):
            raise TypeError(f"ITD needs an inner solver, e.g. GradientDescent; got {self.inner!r}.")
        if self.memory not in get_args(Memory):
            raise ValueError(f"memory must be one of {get_args(Memory)}, got {self.memory!r}.")
        for name, number in (("truncate", self.truncate), ("max_steps", self.max_steps)):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}.")
        if self.truncate is not None and self.memory != "recompute":
            raise ValueError(
                f"truncate={self.truncate} keeps only that many iterates and goes with "
                f'memory="recompute", not with memory="{self.memory}".'
            )
        if not isinstance(self.inner.steps, Fixed) and self.max_steps is None:
            raise ValueError(
                "The number of inner steps is a schedule, so ITD cannot tell how many iterates to "
                "make room for: give max_steps, the largest number that can occur."
            )

    def init(self, problem, x, y):
        return first_warm(problem, x, y, keep_start=not self.warm_start_y)

    def __call__(self, problem, x, warm, k):
        start = warm.y if self.warm_start_y else warm.start
        unrolled = self._unroll(problem, x, start, k)

        value, f_x, f_y = outer_gradients(problem, x, unrolled.y)
        h = add_scaled(f_x, 1.0, unrolled.pull(f_y))

        loop = unrolled.loop
        cost = Cost(loop.steps + unrolled.recomputed + 2, unrolled.products)
        result = judge(h, (value, f_x, f_y), Seen(loop.residual, loop.steps, loop.result))
        no_linear_system = jnp.full_like(loop.residual, jnp.nan)
        info = HypergradientInfo(value, loop.residual, no_linear_system, cost, result)
        return h, Warm(unrolled.y, warm.v, warm.start), info

    def _unroll(self, problem: Problem, x: PyTree, y0: PyTree, k: Count) -> unroll.Unrolled:
        def step(x: PyTree, carry: PyTree) -> tuple[PyTree, PyTree]:
            y, state, gradient = self.inner.step(partial(inner_gradient, problem, x), *carry)
            return (y, state), gradient

        start = (y0, self.inner.init(y0))
        steps, tolerance = count(self.inner.steps, k), limit(self.inner.tolerance, k)
        if self.max_steps is not None:
            steps = jnp.minimum(steps, self.max_steps)
        if self.memory == "forward":
            return unroll.forward(step, x, start, steps, tolerance)
        room = steps if self.max_steps is None else self.max_steps
        assert isinstance(room, int)  # checked on construction
        stride = math.isqrt(room - 1) + 1 if self.memory == "sqrt" else 1
        if self.truncate is not None:
            room = min(room, self.truncate)
        return unroll.reverse(step, x, start, steps, tolerance, room, stride)
