"""The protocol of a hypergradient: h ≈ ∇Φ(x), and what the next outer step starts from."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from biloop.oracles import Cost
from biloop.problem import Problem, as_variable, check
from biloop.results import FIRST_FAILURE, Code, Status, code, code_if, first_failure
from biloop.schedules import Count
from biloop.vectors import all_finite, norm, zeros_like


class Warm(NamedTuple):
    """What the next outer step starts from: y_k^N, the adjoint v_k^Q, and where y started.

    `start` is kept only by methods that go back to it in every outer step; otherwise it is None.
    `memory` is what loops that size themselves have learnt: step sizes and curvatures.
    """

    y: PyTree
    v: PyTree
    start: PyTree = None
    memory: PyTree = None


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


def or_none(memory: PyTree) -> PyTree:
    """The memory, or None if there is nothing in it: then `Warm(y, v)` is all that a user needs."""
    return memory if jax.tree.leaves(memory) else None


class Seen(NamedTuple):
    """What a loop says of itself: the last residual, the steps used, and its result code."""

    residual: Float[Array, ""]
    steps: Int[Array, ""]
    result: Code


def judge(h: PyTree, outer: PyTree, inner: Seen, linear: Seen | None = None) -> Code:
    """The first cause of failure, in the order of computation; `outer` is f, ∇_x f and ∇_y f."""
    value, *_ = outer

    def not_finite(quantity: Float[Array, ""], status: Status) -> Code:
        return code_if(~jnp.isfinite(quantity), status)

    def loop(seen: Seen, status: Status) -> Code:
        # Without a step there is no residual, which is no failure.
        residual = jnp.where(seen.steps > 0, seen.residual, jnp.zeros_like(seen.residual))
        return first_failure(seen.result, not_finite(residual, status))

    before = loop(inner, Status.INNER_NOT_FINITE)
    after = first_failure(
        not_finite(value, Status.OUTER_NOT_FINITE),
        *([] if linear is None else [loop(linear, Status.LINEAR_NOT_FINITE)]),
        not_finite(norm(h), Status.HYPERGRADIENT_NOT_FINITE),
    )
    # A gradient of f that is not finite spoils what follows, and is looked for only then: each
    # reduction over y costs a small problem some percent.
    blame = lax.cond(
        after >= FIRST_FAILURE,
        lambda: code_if(~all_finite(outer), Status.OUTER_NOT_FINITE),
        lambda: code(Status.COMPLETED),
    )
    return first_failure(before, blame, after)
