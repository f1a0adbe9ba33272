"""The N-loop by Newton's method, each step of which is a linear system for conjugate gradients.

R. S. Dembo, S. C. Eisenstat and T. Steihaug, Inexact Newton methods (1982).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.inner.descents import InnerInfo, InnerSolver, Memory
from biloop.linear import CG
from biloop.loops.iteration import FORGET, first_length, inner_share
from biloop.oracles import inner_gradient, linearise
from biloop.results import FIRST_FAILURE, Code, Status, code, code_if, first_failure
from biloop.schedules import Adaptive, Schedule
from biloop.vectors import add_scaled, norm, subtract

_SLACK = 2.0  # after a step the gradient may be so many times what its linear system left
_MOST = 30  # gradients
_TRIES = 8  # a step is not shortened more often: 4⁻⁸ of its length is not too long
_PATIENCE = 3  # steps that do not halve the gradient: only rounding is left


class _State(NamedTuple):
    """The point to look at next, before + step, and what is known."""

    y: PyTree
    before: PyTree
    step: PyTree
    size: Float[Array, ""]  # ‖∇_y g‖ before the step, ∞ if there was none
    best: Float[Array, ""]  # the smallest so far
    idle: Int[Array, ""]  # looks since that was halved
    tries: Int[Array, ""]  # how often the step was shortened
    long: Float[Array, ""]  # the largest inverse curvature seen, for 1/μ
    gradients: Int[Array, ""]
    products: Int[Array, ""]
    over: Bool[Array, ""]
    result: Code


class NewtonCG(InnerSolver):
    """Newton's method with as many steps and products as it takes.

    y ← y − δ,   ∇²_y g(x, y) δ = ∇_y g(x, y)   by `CG`

    Both the linear systems and the loop end under the rule of `Adaptive`, the loop up to a factor
    of two: ‖∇_y g(x, y)‖ / μ ≤ 2 share · ‖y − y⁰‖. So a quadratic g takes one step, which costs two
    gradients and about √κ products. Later systems count the way of the loop before them: the last
    correction is small, and need not be known to a share of its own. A step that makes the gradient
    longer is repeated at a quarter of its length.
    """

    steps: Schedule = eqx.field(default_factory=Adaptive)
    tolerance: Schedule | None = None

    def __check_init__(self):
        if not isinstance(self.steps, Adaptive):
            raise TypeError(
                f"NewtonCG sizes its own loops: steps must be Adaptive, got {self.steps!r}."
            )

    def init(self, y):
        return ()

    def step(self, gradient, y, state):
        # AID calls the loop as a whole; only ITD takes its steps, to go back through them.
        raise TypeError(
            "NewtonCG goes with AID: ITD cannot differentiate its linear systems. Give ITD "
            "GradientDescent or another method of single gradients."
        )

    def stability(self, L):
        return None

    def __call__(self, problem, x, y0, k, memory=None):
        memory = self.first_memory(y0) if memory is None else memory
        assert isinstance(self.steps, Adaptive)
        share = inner_share(self.steps, k)
        solve = CG(Adaptive(share, self.steps.most))
        zero, none, fine = vectors.zeros_like(y0), jnp.zeros((), jnp.int32), code(Status.COMPLETED)

        def body(s: _State) -> _State:
            d = inner_gradient(problem, x, s.y)
            hessian, _ = linearise(problem, x, s.y)
            size, way = norm(d), norm(subtract(s.y, y0))
            back = ~(size <= s.size) & (s.tries < _TRIES)  # a NaN counts as longer
            idle = jnp.where(size <= 0.5 * s.best, none, s.idle + 1)
            close = (s.gradients > 0) & (s.long * size <= _SLACK * share.astype(way.dtype) * way)
            over = close | (size == 0) | (~back & (idle >= _PATIENCE))
            over = over | (jnp.isnan(size) & (s.gradients == 0))

            def newton() -> tuple[PyTree, Float[Array, ""], Int[Array, ""], Code]:
                delta, info = solve(hessian, d, None, k, s.long, way)
                assert info.memory is not None  # its loop is adaptive
                return jax.tree.map(jnp.negative, delta), info.memory, info.products, info.result

            def shorter() -> tuple[PyTree, Float[Array, ""], Int[Array, ""], Code]:
                return jax.tree.map(lambda a: a / 4, s.step), s.long, none, fine

            def nothing() -> tuple[PyTree, Float[Array, ""], Int[Array, ""], Code]:
                return zero, s.long, none, fine

            which = jnp.where(over, 0, jnp.where(back, 1, 2))
            step, long, products, result = lax.switch(which, (nothing, shorter, newton))
            start = vectors.where(back & ~over, s.before, s.y)
            return _State(
                y=add_scaled(start, 1.0, step),
                before=start,
                step=step,
                size=jnp.where(back & ~over, s.size, size),
                best=jnp.minimum(size, s.best),
                idle=idle,
                tries=jnp.where(back, s.tries + 1, none),
                long=long,
                gradients=s.gradients + 1,
                products=s.products + products,
                over=over | (result >= FIRST_FAILURE),
                result=first_failure(s.result, result),
            )

        far = jnp.full_like(norm(y0), jnp.inf)
        long = first_length(self.steps, y0) if memory.long is None else memory.long
        assert long is not None
        nowhere = jnp.zeros((), bool)
        start = _State(y0, y0, zero, far, far, none, none, FORGET * long, none, none, nowhere, fine)
        s = lax.while_loop(lambda s: ~s.over & (s.gradients < _MOST), body, start)
        result = first_failure(s.result, code_if(~s.over, Status.UNCONVERGED))
        memory = Memory(None, s.long)
        return s.y, InnerInfo(s.size, s.gradients, result, memory, s.products)
