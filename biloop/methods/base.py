"""The protocol of a method: h ≈ ∇Φ(x), and what the next outer step starts from."""

from abc import abstractmethod
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from biloop.inner import InnerSolver
from biloop.linear import LinearSolver
from biloop.loops.iteration import LoopInfo
from biloop.loops.results import FIRST_FAILURE, Code, Status, code_if, first_failure
from biloop.oracles import Cost, SampleCount
from biloop.problem import Problem, check
from biloop.problem.variables import as_variable
from biloop.samples import Pair, Samples
from biloop.schedules import Count
from biloop.schedules.arguments import Described
from biloop.vectors import norm


class Residuals(NamedTuple):
    """‖∇_y g‖ and ‖Hv − ∇_y f‖ as the loops last computed them; NaN where there is no such loop."""

    inner: Float[Array, ""] | float = jnp.nan
    linear: Float[Array, ""] | float = jnp.nan


class Info(NamedTuple):
    """What an observer wants to know of one hypergradient: f(x, y^N), its cost, how it went.

    A method that draws rows gives the rows that it has used instead of a cost, and its value is on
    a batch.
    """

    value: Float[Array, ""]
    cost: Cost
    result: Code
    residuals: Residuals = Residuals()
    samples: SampleCount | None = None


class Method(Described):
    """A way to estimate ∇Φ(x). A new one is `init` and `__call__`.

    The state is a named tuple with a field `y`, the inner solution so far; what else is in it is
    the method's own. After a failure it must still be a state to go on from.
    """

    @abstractmethod
    def init(self, problem: Problem, x: PyTree, y: PyTree) -> PyTree:
        """Check the problem at (x, y) and make the state of the first outer step."""

    @abstractmethod
    def __call__(
        self, problem: Problem, x: PyTree, state: PyTree, k: Count
    ) -> tuple[PyTree, PyTree, Info]:
        """h ≈ ∇Φ(x) in outer iteration k, and the state of the next one."""

    @property
    def refines(self) -> bool:
        """Whether calls at one x, each from where the last ended, lead to ∇Φ(x) in large strides.

        Then the method measures itself; otherwise its h is judged by another one.
        """
        return False

    def measures_itself(self, problem: Problem) -> bool:
        """Whether ∇Φ of this problem is what calls of the method at one x lead to."""
        return self.refines

    def solution(self, problem: Problem, x: PyTree, state: PyTree) -> PyTree:
        """The y that belongs to x, for a method that draws what it sees."""
        return state.y

    @property
    def sampled(self) -> Samples | None:
        """What it draws rows from; None for a method that sees all of them in every step."""
        return None

    @property
    def shares_y(self) -> bool:
        """Whether all samples have one y; tasks have one each."""
        return True

    @property
    def counts_rows(self) -> bool:
        """Whether its cost is in rows, so that a run tells it in passes over the samples."""
        return self.sampled is not None

    def reads(self, draws: int, k: int) -> Pair | None:
        """The numbers of the inner and of the outer draws of outer step k, as ranges.

        `draws` is that of its state; where a length is of chance, the ranges are the longest. None
        for a method that does not draw one after the other, which a stream cannot be given to.
        """
        return None

    @property
    def follows(self) -> bool:
        """Whether calls at one x should lead y on to the minimiser, and none of them says so.

        That is, the inner loop has no target of its own, and h is right at the minimiser alone.
        """
        return False

    def stability(self, L: float) -> list[tuple[str, float, float]]:
        """The step sizes of the loops, each with the largest that is stable for curvatures up to L.

        A row is ("inner" or "linear", the step size, the largest stable one).
        """
        return []

    # By identity, so that `jax.jit(method)` works: by value, the step sizes have no hash.
    __eq__ = object.__eq__  # pyright: ignore[reportAssignmentType]
    __hash__ = object.__hash__  # pyright: ignore[reportAssignmentType]


def checked_start(
    problem: Problem, x: PyTree, y: PyTree, *, takes_start: bool = False
) -> tuple[PyTree, PyTree]:
    """x and y as floating arrays at which the problem can be evaluated."""
    x, y = as_variable(x, "x"), as_variable(y, "y")
    check(problem, x, y)
    if problem.start is not None and not takes_start:
        raise TypeError(
            "This method carries y from one outer step to the next and cannot take a problem with "
            "a start y⁰(x). Use ITD, which differentiates the start, or AID, which starts there."
        )
    return x, y


def checked_loops(problem: Problem, inner: InnerSolver, linear: LinearSolver | None = None) -> None:
    """Refuse loops that are not for this kind of problem."""
    inner.check(problem)
    if linear is not None and problem.is_equilibrium:
        linear.refuse_symmetric_only()


def is_sound(loop: LoopInfo) -> Bool[Array, ""]:
    """Whether a loop neither failed nor left the finite numbers."""
    # Without a step there is no residual, which is no failure.
    return (loop.result < FIRST_FAILURE) & (jnp.isfinite(loop.residual) | (loop.steps == 0))


def judge(
    h: PyTree, value: Float[Array, ""], inner: LoopInfo, linear: LoopInfo | None = None
) -> Code:
    """The first cause of failure, in the order of computation."""

    def not_finite(quantity: Float[Array, ""], status: Status) -> Code:
        return code_if(~jnp.isfinite(quantity), status)

    def loop(info: LoopInfo, status: Status) -> Code:
        residual = jnp.where(info.steps > 0, info.residual, jnp.zeros_like(info.residual))
        return first_failure(info.result, not_finite(residual, status))

    before = loop(inner, Status.INNER_NOT_FINITE)
    after = first_failure(
        not_finite(value, Status.OUTER_NOT_FINITE),
        *([] if linear is None else [loop(linear, Status.LINEAR_NOT_FINITE)]),
        not_finite(norm(h), Status.HYPERGRADIENT_NOT_FINITE),
    )
    # A gradient of f that is not finite spoils what follows; whether it was that is for the
    # diagnosis to find out, since each reduction over y costs a small problem some percent.
    return first_failure(before, after)
