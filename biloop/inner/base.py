"""The protocol of the N-loop, y ≈ y*(x), and what all methods of single gradients share."""

from abc import abstractmethod
from typing import NamedTuple, Self

import equinox as eqx
from jaxtyping import Array, Bool, Float, PyTree

from biloop import vectors
from biloop.loops.adaptive import Curvature, adaptivity, curvature_state
from biloop.loops.iteration import LoopInfo, Rule, iterate, limit
from biloop.oracles import Cost, descent_map, proximal_map
from biloop.problem import Problem, refuse_kind
from biloop.schedules import Adaptive, Count, Schedule, step_count
from biloop.schedules.arguments import Described

_INSTEAD = {
    "minimum": "A minimum of a smooth g is found by GradientDescent, NewtonCG and others.",
    "proximal": "Use ProximalGradient or FISTA, or bl.schemes.auto(kind=problem.kind).",
    "equilibrium": "Use FixedPoint or Anderson, or bl.schemes.auto(kind=problem.kind).",
}


class Local(NamedTuple):
    """A problem at x, as a step sees it: `local(y)` is ∇_y g(x, y), or y − T(x, y)."""

    problem: Problem
    x: PyTree

    def __call__(self, y: PyTree) -> PyTree:
        """The one evaluation of a step."""
        return descent_map(self.problem, self.x, y)

    def prox(self, z: PyTree, step: Float[Array, ""]) -> PyTree:
        """prox(x, z, step), or z where the problem has none."""
        return proximal_map(self.problem, self.x, z, step)


class InnerSolver(Described):
    """A way to y*(x). A new one is `init` and `__call__`; a method of single gradients, `Descent`.

    The residual in the `LoopInfo` is ‖∇_y g(x, y)‖ as it was last computed, or ‖F(x, y)‖ for a
    solver of problems of another kind (see `Problem.kind`).
    """

    @abstractmethod
    def init(self, y: PyTree) -> PyTree:
        """What the first call is given as state, `()` for nothing."""

    @abstractmethod
    def __call__(
        self, problem: Problem, x: PyTree, y0: PyTree, state: PyTree, k: Count
    ) -> tuple[PyTree, PyTree, LoopInfo]:
        """y ≈ argmin_y g(x, y), started at y0, in outer iteration k; and the state for k + 1."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of problems (`Problem.kind`) that it can solve."""
        return ("minimum",)

    def check(self, problem: Problem) -> None:
        """Refuse a problem of another kind."""
        refuse_kind(problem, self.kinds, type(self).__name__, _INSTEAD[problem.kind])

    def proximal_step(self, state: PyTree, y: PyTree) -> Float[Array, ""] | None:
        """The α of its last proximal step; None if there is no such thing."""
        return None

    def stability(self, L: float) -> tuple[float, float] | None:
        """The step size, and the largest stable one on a quadratic with largest eigenvalue L."""
        return None

    @property
    def refines(self) -> bool:
        """Whether each call leaves a small share of the error, whatever the condition of g."""
        return False

    @property
    def judges(self) -> bool:
        """Whether the loop has a target, so that it says itself where it stops short of it."""
        return False


class DescentState(NamedTuple):
    """What a loop leaves to that of the next outer step: the method's own, and the curvature."""

    kept: PyTree
    curvature: Curvature | tuple[()]


class Descent(InnerSolver):
    """A method that evaluates ∇_y g once in each step, so that N steps cost N gradients.

    A new one is `start` and `step`. The y returned is where the last step led, or, if the gradient
    there was small enough, where it was evaluated. What a step remembers starts anew in each outer
    step, but for what `keep` hands to `start`.
    """

    steps: eqx.AbstractVar[Schedule]
    tolerance: eqx.AbstractVar[Schedule | None]

    @abstractmethod
    def start(self, y: PyTree, kept: PyTree) -> PyTree:
        """What the first step of a loop is given; `kept` is from the last loop, or `nothing`."""

    @abstractmethod
    def step(self, gradient: Local, y: PyTree, state: PyTree) -> tuple[PyTree, PyTree, PyTree]:
        """One step: the new y and state, and the one gradient that was evaluated for them."""

    def nothing(self, y: PyTree) -> PyTree:
        """What there is to keep before the first loop."""
        return ()

    def keep(self, state: PyTree) -> PyTree:
        """What the end of a loop leaves for the next one."""
        return ()

    def point(self, y: PyTree, state: PyTree) -> PyTree:
        """Where the next step will evaluate the gradient."""
        return y

    def finish(self, y: PyTree, state: PyTree) -> PyTree:
        """The y to return from a loop that has spent its steps."""
        return y

    def end(self, arrived: Bool[Array, ""], y: PyTree, state: PyTree) -> PyTree:
        """The y to return: where the gradient was small enough, or where the last step led."""
        if not self.judges:
            return self.finish(y, state)
        return vectors.where(arrived, self.point(y, state), self.finish(y, state))

    def stayed(self, stay: Bool[Array, ""], before: PyTree, after: PyTree) -> PyTree:
        """The (y, state) from before a step if the loop ends there, else that after it."""
        return vectors.where(stay, before, after)

    def at(self, k: Count) -> Self:
        """The method as it is in outer iteration k."""
        return self

    @property
    def judges(self) -> bool:
        """With a tolerance, or where the loop sizes itself."""
        return self.tolerance is not None or isinstance(self.steps, Adaptive)

    def init(self, y: PyTree) -> DescentState:
        """Nothing is known."""
        return DescentState(self.nothing(y), curvature_state(self.steps, y))

    def rule(self, y0: PyTree, state: DescentState, k: Count) -> Rule:
        """What ends the loop of outer iteration k."""
        at = lambda before, _: self.point(*before)  # noqa: E731
        adaptive = adaptivity(self.steps, y0, at, state.curvature, k=k)
        return Rule(step_count(self.steps, k), limit(self.tolerance, k), adaptive)

    def __call__(
        self, problem: Problem, x: PyTree, y0: PyTree, state: DescentState, k: Count
    ) -> tuple[PyTree, DescentState, LoopInfo]:
        """The loop; see `InnerSolver`."""
        gradient, now = Local(problem, x), self.at(k)

        def step(carry: tuple[PyTree, PyTree]) -> tuple[tuple[PyTree, PyTree], PyTree]:
            y, own, d = now.step(gradient, *carry)
            return (y, own), d

        start = (y0, now.start(y0, state.kept))
        rule = now.rule(y0, state, k)
        loop = iterate(step, start, y0, rule, residual_first=True, choose=now.stayed)
        y, own = loop.state
        y = now.end(loop.arrived, y, own)
        info = LoopInfo(loop.residual, loop.steps, Cost(loop.steps, 0), loop.result)
        return y, DescentState(now.keep(own), loop.curvature), info
