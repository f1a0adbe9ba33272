"""ITD: iterative differentiation (Algorithm 2, ITD-BiO): the derivative of x ↦ f(x, y^N(x))."""

from functools import partial
from typing import Literal, NamedTuple, get_args

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree

from biloop import vectors
from biloop.inner import Descent, DescentState, Local
from biloop.loops.iteration import LoopInfo, Rule
from biloop.methods import unroll
from biloop.methods.base import (
    Info,
    Method,
    Residuals,
    checked_loops,
    checked_start,
    is_sound,
    judge,
)
from biloop.methods.unroll_bytes import Sizes, fastest, measure, predict, segments
from biloop.oracles import (
    Cost,
    inner_value,
    outer_gradients,
    outer_value,
    pulled_back,
    started,
)
from biloop.problem import Problem
from biloop.schedules import Adaptive, Count, Fixed
from biloop.schedules.arguments import as_count, as_flag, one_of, shown
from biloop.vectors import add_scaled

Memory = Literal["store", "recompute", "sqrt", "forward", "auto"]


class ITDState(NamedTuple):
    """y_k^N, where y started if loops go back there, and what the inner method has found out."""

    y: PyTree
    start: PyTree
    inner: DescentState


class ITD(Method):
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

    Where the problem has a start y⁰(x) each loop begins there, and h has its derivative,
    (∂y⁰/∂x)ᵀ v_0, as well.

    `predict_bytes` tells what each needs. `truncate=T` goes back through the last T steps only
    (Shaban et al., 2019), with 2T products and the memory of T steps. A loop whose number of steps
    is not a plain integer (a schedule) needs `max_steps`, which caps it and is the room reserved
    for its iterates.

    Parameters
    ----------
    inner : Descent
        The N-loop: `GradientDescent`, `Nesterov`, `HeavyBall` or `Optax`.
    memory : "store", "recompute", "sqrt", "forward" or "auto"
        What is kept of the way forward, see above.
    truncate : int, optional
        The last steps through which to go back; all of them by default.
    max_steps : int, optional
        A cap on a number of steps that is no plain integer.
    warm_start_y : bool
        Whether a loop starts where the last one ended, or at y0 again.
    memory_limit : int, optional
        Bytes for "auto".

    Examples
    --------
    >>> method = bl.ITD(bl.GradientDescent(step_size=0.3, steps=30))
    >>> h, state, info = method(problem, x0, method.init(problem, x0, y0), 0)
    >>> print(f"{h:.4f}", int(info.cost.gradients), int(info.cost.products))
    0.4676 32 60
    """

    inner: Descent
    memory: Memory = eqx.field(
        default="recompute", static=True, converter=one_of("memory", get_args(Memory))
    )
    truncate: int | None = eqx.field(
        default=None, static=True, converter=as_count("truncate", optional=True)
    )
    max_steps: int | None = eqx.field(
        default=None, static=True, converter=as_count("max_steps", optional=True)
    )
    warm_start_y: bool = eqx.field(default=True, static=True, converter=as_flag("warm_start_y"))
    memory_limit: int | None = eqx.field(
        default=None,
        static=True,
        converter=as_count("memory_limit", optional=True, maximum=2**63 - 1),
    )

    def __check_init__(self):
        if not isinstance(self.inner, Descent):
            raise TypeError(
                f"ITD differentiates the steps of a descent, so inner must be one, e.g. "
                f"GradientDescent; got {shown(self.inner)}. Other inner solvers go with AID."
            )
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
        x, y = checked_start(problem, x, y, takes_start=True)
        if problem.start is not None and self.truncate is not None:
            raise ValueError(
                f"truncate={self.truncate} ends the way back before it reaches the start y⁰(x) of "
                f"this problem, whose derivative would be lost."
            )
        checked_loops(problem, self.inner)
        return ITDState(y, () if self.warm_start_y else y, self.inner.init(y))

    def __call__(self, problem, x, state, k):
        y0 = started(problem, x, state.y if self.warm_start_y else state.start)
        unrolled = self._unroll(problem, x, y0, state.inner, k)
        loop = unrolled.loop
        inner = LoopInfo(loop.residual, loop.steps, Cost(loop.steps, 0), loop.result)
        found = DescentState(self.inner.keep(unrolled.state), loop.curvature)
        value, f_x, f_y = outer_gradients(problem, x, unrolled.y)
        from_loop, on_start = unrolled.pull(f_y)
        h = add_scaled(f_x, 1.0, from_loop)
        if problem.start is not None:
            _, pull = pulled_back(lambda x: started(problem, x, y0), x)
            h = add_scaled(h, 1.0, pull(on_start))
        # A failed loop, or a y where f is not finite, leaves nothing to go on from, so what was
        # there before it is kept.
        sound = is_sound(inner) & jnp.isfinite(value)
        y, kept = vectors.where(sound, (unrolled.y, found), (state.y, state.inner))

        cost = Cost(loop.steps + unrolled.recomputed + 2, unrolled.products)
        result = judge(h, value, inner)
        return (
            h,
            ITDState(y, state.start, kept),
            Info(value, cost, result, Residuals(inner=loop.residual)),
        )

    def measures_itself(self, problem):
        # With a start Φ is where N steps lead from there, and h is its derivative.
        return self.refines or problem.start is not None

    @property
    def follows(self):
        return self.warm_start_y and not self.inner.judges

    def stability(self, L):
        numbers = self.inner.stability(L)
        return [] if numbers is None else [("inner", *numbers)]

    def predict_bytes(self, problem: Problem, x: PyTree, y: PyTree) -> dict[str, int]:
        """The bytes over the data that one hypergradient needs in each mode open to this loop.

        Found by tracing one step; nothing is computed or compiled.
        """
        x, y = checked_start(problem, x, y, takes_start=True)
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
        self, problem: Problem, x: PyTree, y0: PyTree, state: DescentState, k: Count
    ) -> unroll.Unrolled:
        inner = self.inner.at(k)
        step, finish = _step(problem, inner), inner.end
        start = (y0, inner.start(y0, state.kept))
        mode = self.mode(problem, x, y0)
        if mode == "store":
            self._refuse_unknown_length()  # the steps may have been replaced since construction
            return unroll.store(step, finish, x, start, self._room, self._reach)

        rule = self._capped(inner.rule(y0, state, k))
        if mode == "forward" and problem.start is not None:
            raise ValueError('memory="forward" does not go back to a start y⁰(x): use another.')
        if mode == "forward":
            return unroll.forward(step, finish, x, start, rule)
        if mode == "recompute":
            return unroll.reverse(step, finish, x, start, rule, self._reach)
        s = segments(self._sizes(problem, x, y0), self._room)
        return unroll.reverse(step, finish, x, start, rule, s.length, s.number, keep=s.keep)

    def _capped(self, rule: Rule) -> Rule:
        """The rule with no more steps than there is room for."""
        if isinstance(rule.steps, int):
            return rule._replace(steps=min(rule.steps, self._room))
        return rule._replace(steps=jnp.minimum(rule.steps, self._room))

    def _sizes(self, problem: Problem, x: PyTree, y: PyTree) -> Sizes:
        g, f = partial(inner_value, problem), partial(outer_value, problem)
        start = (y, self.inner.start(y, self.inner.nothing(y)))
        return measure(_step(problem, self.inner), x, start, g, f)

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


def _step(problem: Problem, inner: Descent) -> unroll.Step:
    def step(x: PyTree, carry: PyTree) -> tuple[PyTree, PyTree]:
        y, state, gradient = inner.step(Local(problem, x), *carry)
        return (y, state), gradient

    return step
