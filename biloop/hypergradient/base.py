"""The protocol of a hypergradient: h ≈ ∇Φ(x), and what the next outer step starts from."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from biloop.oracles import Cost
from biloop.problem import Problem, as_variable, check
from biloop.results import Code, Status, code_if, first_failure
from biloop.schedules import Count
from biloop.vectors import all_finite, norm, zeros_like


class Warm(NamedTuple):
    """What the next outer step starts from: y_k^N, the adjoint v_k^Q, and where y started.

    `start` is kept only by methods that go back to it in every outer step; otherwise it is None.
    """

    y: PyTree
    v: PyTree
    start: PyTree = None


class HypergradientInfo(NamedTuple):
    """f(x, y^N), ‖∇_y g‖ and ‖Hv − b‖ as the loops last saw them, the cost, and a result code.

    A method without a linear system has no linear residual: it is NaN.
    """

    value: Float[Array, ""]
    inner_residual: Float[Array, ""]
    linear_residual: Float[Array, ""]
    cost: Cost
    result: Code


class Hypergradient(eqx.Module):
    """A way to estimate ∇Φ(x). A new one is `init` and `__call__`."""

    @abstractmethod
    def init(self, problem: Problem, x: PyTree, y: PyTree) -> Warm:
        """Check the problem at (x, y) and say where the first outer step starts."""

    @abstractmethod
    def __call__(
        self, problem: Problem, x: PyTree, warm: Warm, k: Count
    ) -> tuple[PyTree, Warm, HypergradientInfo]:
        """h ≈ ∇Φ(x) in outer iteration k, and where the next one starts."""

    # By identity, so that `jax.jit(method)` works: by value, the step sizes have no hash.
    __eq__ = object.__eq__
    __hash__ = object.__hash__


def first_warm(problem: Problem, x: PyTree, y: PyTree, *, keep_start: bool) -> Warm:
    """The checked start: y as given, v = 0."""
    x, y = as_variable(x, "x"), as_variable(y, "y")
    check(problem, x, y)
    return Warm(y, zeros_like(y), y if keep_start else None)


class Seen(NamedTuple):
    """What a loop says of itself: the last residual, the steps used, and its result code."""

    residual: Float[Array, ""]
    steps: Int[Array, ""]
    result: Code


def judge(h: PyTree, outer: PyTree, inner: Seen, linear: Seen | None = None) -> Code:
    """The first cause of failure, in the order of computation; `outer` is f, ∇_x f and ∇_y f."""

    def not_finite(quantity: Float[Array, ""], status: Status) -> Code:
        return code_if(~jnp.isfinite(quantity), status)

    def loop(seen: Seen, status: Status) -> list[Code]:
        # Without a step there is no residual, which is no failure.
        residual = jnp.where(seen.steps > 0, seen.residual, jnp.zeros_like(seen.residual))
        return [seen.result, not_finite(residual, status)]

    return first_failure(
        *loop(inner, Status.INNER_NOT_FINITE),
        code_if(~all_finite(outer), Status.OUTER_NOT_FINITE),
        *(loop(linear, Status.LINEAR_NOT_FINITE) if linear is not None else ()),
        not_finite(norm(h), Status.HYPERGRADIENT_NOT_FINITE),
    )
