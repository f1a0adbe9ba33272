"""ITD: iterative differentiation (Algorithm 2, ITD-BiO): the derivative of x ↦ f(x, y^N(x))."""

from functools import partial
from typing import Literal, get_args

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from biloop.inner.descents import InnerSolver
from biloop.inner.descents import Memory as LoopMemory
from biloop.loops.iteration import adaptivity, count, limit
from biloop.methods import unroll
from biloop.methods.base import (
    Hypergradient,
    HypergradientInfo,
    Seen,
    Warm,
    first_warm,
    judge,
    or_none,
)
from biloop.methods.unroll_bytes import Sizes, fastest, measure, predict, segments
from biloop.oracles import Cost, inner_gradient, inner_value, outer_gradients, outer_value
from biloop.problem import Problem, as_variable, check
from biloop.schedules import Adaptive, Count, Fixed
from biloop.vectors import add_scaled

Memory = Literal["store", "recompute", "sqrt", "forward", "auto"]


class ITD(Hypergradient):
    """The hypergradient of Algorithm 2, by differentiating the N-loop.

    h = ∇_x f − α Σ_{t<N} ∇_x∇_y g(x, y^t) Π_{t<j<N} (I − α∇²_y g(x, y^j)) ∇_y f(x, y^N)

    for gradient descent, from the recursion v_{j−1} = (I − α∇²_y g(x, y^{j−1})) v_j with
    v_N = ∇_y f; for other inner methods the same with their own step. N + 2 gradients, 2N products.

    `memory` says what is kept of the way forward:

    - "store": the linearisation of each step. The fastest; needs a fixed N and no tolerance.
    - "recompute": the N iterates; each is linearised again on the way back.
    - "sqrt": every ⌈√N⌉-th iterate; those between are computed again, for almost N more gradients.
    - "forward": nothing; ∂y/∂x is carried along, for 2pN products with x of dimension p.
    - "auto": the first of "store", "recompute" and "sqrt" that is predicted to fit into
      `memory_limit` bytes, by default half of what is free when the program is compiled.

    `predict_bytes` tells what each needs. `truncate=T` goes back through the last T steps only
    (Shaban et al., 2019), with 2T products and the memory of T steps. A loop whose number of steps
    is not a plain integer (a schedule) needs `max_steps`, which caps it and is the room reserved
    for its iterates.
    """

    inner: InnerSolver
    memory: Memory = eqx.field(default="recompute", static=True)
    truncate: int | None = eqx.field(default=None, static=True)
    max_steps: int | None = eqx.field(default=None, static=True)
    warm_start_y: bool = eqx.field(default=True, static=True)
    memory_limit: int | None = eqx.field(default=None, static=True)

    def __check_init__(self):
        if not isinstance(self.inner, InnerSolver):
            raise TypeError(f"ITD needs an inner solver, e.g. GradientDescent; got {self.inner!r}.")
        if self.memory not in get_args(Memory):
            raise ValueError(f"memory must be one of {get_args(Memory)}, got {self.memory!r}.")
        for name in ("truncate", "max_steps", "memory_limit"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}.")
        if self.truncate is not None and self.memory in ("sqrt", "forward"):
            raise ValueError(
                f"truncate={self.truncate} keeps only the last steps and goes with memory="
                f'"recompute", "store" or "auto", not with memory="{self.memory}".'
            )
        if self.memory_limit is not None and self.memory != "auto":
            raise ValueError(
                f'memory_limit={self.memory_limit} is what memory="auto" has to fit into; it has '
                f'no meaning with memory="{self.memory}".'
            )
        if self.max_steps is None and not isinstance(self.inner.steps, Fixed | Adaptive):
            raise ValueError(
                "The number of inner steps is a schedule, so ITD cannot tell how many iterates to "
                "make room for: give max_steps, the largest number that can occur."
            )
        if self.memory == "store":
            self._refuse_unknown_length()

    def init(self, problem, x, y):
        warm = first_warm(problem, x, y, keep_start=not self.warm_start_y)
        return warm._replace(memory=or_none(self.inner.first_memory(warm.y)))

    def __call__(self, problem, x, warm, k):
        y0 = warm.y if self.warm_start_y else warm.start
        learnt = warm.memory or LoopMemory()
        start = (y0, self.inner.resume(y0, learnt.method))
        unrolled = self._unroll(problem, x, start, k, learnt.long)

        value, f_x, f_y = outer_gradients(problem, x, unrolled.y)
        h = add_scaled(f_x, 1.0, unrolled.pull(f_y))

        loop = unrolled.loop
        cost = Cost(loop.steps + unrolled.recomputed + 2, unrolled.products)
        result = judge(h, (value, f_x, f_y), Seen(loop.residual, loop.steps, loop.result))
        no_linear_system = jnp.full_like(loop.residual, jnp.nan)
        info = HypergradientInfo(value, loop.residual, no_linear_system, cost, result)
        memory = or_none(LoopMemory(self.inner.remember(unrolled.state), loop.long))
        return h, Warm(unrolled.y, warm.v, warm.start, memory), info

    def predict_bytes(self, problem: Problem, x: PyTree, y: PyTree) -> dict[str, int]:
        """The bytes over the data that one hypergradient needs in each mode open to this loop.

        Found by tracing one step; nothing is computed or compiled.
        """
        x, y = as_variable(x, "x"), as_variable(y, "y")
        check(problem, x, y)
        bytes_of = predict(self._sizes(problem, x, y), self._reach, whole=self.truncate is None)
        if not self._length_is_known:
            del bytes_of["store"]
        return bytes_of

    def mode(self, problem: Problem, x: PyTree, y: PyTree) -> str:
        """The mode that is taken here: `memory`, or for "auto" what it chooses now."""
        if self.memory != "auto":
            return self.memory
        return fastest(self.predict_bytes(problem, x, y), self.memory_limit)

    def _unroll(
        self,
        problem: Problem,
        x: PyTree,
        start: PyTree,
        k: Count,
        long: Float[Array, ""] | None,
    ) -> unroll.Unrolled:
        step, finish, y0 = self._step(problem), self.inner.finish, start[0]
        mode = self.mode(problem, x, y0)
        if mode == "store":
            self._refuse_unknown_length()  # the steps may have been replaced since construction
            return unroll.store(step, finish, x, start, self._room, self._reach)

        rule = self._rule(k, y0, long)
        if mode == "forward":
            return unroll.forward(step, finish, x, start, rule)
        if mode == "recompute":
            return unroll.reverse(step, finish, x, start, rule, self._reach)
        s = segments(self._sizes(problem, x, y0), self._room)
        return unroll.reverse(step, finish, x, start, rule, s.length, s.number, keep=s.keep)

    def _rule(self, k: Count, y0: PyTree, long: Float[Array, ""] | None) -> unroll.Rule:
        """What ends the loop: its steps, its tolerance, or what is left of the error."""
        steps = count(self.inner.steps, k)
        known = isinstance(steps, int)
        steps = min(steps, self._room) if known else jnp.minimum(steps, self._room)
        at = lambda before, _: self.inner.point(*before)  # noqa: E731
        rule = adaptivity(self.inner.steps, y0, at, long, k=k)
        return unroll.Rule(steps, limit(self.inner.tolerance, k), rule)

    def _step(self, problem: Problem) -> unroll.Step:
        def step(x: PyTree, carry: PyTree) -> tuple[PyTree, PyTree]:
            y, state, gradient = self.inner.step(partial(inner_gradient, problem, x), *carry)
            return (y, state), gradient

        return step

    def _sizes(self, problem: Problem, x: PyTree, y: PyTree) -> Sizes:
        g, f = partial(inner_value, problem), partial(outer_value, problem)
        return measure(self._step(problem), x, (y, self.inner.init(y)), g, f)

    @property
    def _room(self) -> int:
        """The most steps that the loop can take, known when the program is compiled."""
        match self.inner.steps:
            case Fixed(most) | Adaptive(most=most):
                return min(most, self.max_steps or most)
            case _:
                assert self.max_steps is not None  # checked on construction
                return self.max_steps

    @property
    def _reach(self) -> int:
        """The most steps that the way back goes through."""
        return self._room if self.truncate is None else min(self._room, self.truncate)

    @property
    def _length_is_known(self) -> bool:
        return isinstance(self.inner.steps, Fixed) and self.inner.tolerance is None

    def _refuse_unknown_length(self) -> None:
        if not self._length_is_known:
            raise ValueError(
                'memory="store" needs a loop whose length is known when it is compiled: steps as '
                'a plain integer and no tolerance. Use memory="recompute" or "auto".'
            )
