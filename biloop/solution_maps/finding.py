"""How y* is found: by a solver of ours, or by somebody else's."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from biloop.inner import InnerSolver
from biloop.loops.iteration import LoopInfo
from biloop.oracles import Cost, natural_step, residual
from biloop.problem import Problem
from biloop.results import Status, code
from biloop.vectors import norm


class Find(eqx.Module):
    """A way from y0 to y*, with an account of it."""

    @abstractmethod
    def __call__(self, problem: Problem, x: PyTree, y0: PyTree) -> tuple[PyTree, LoopInfo]:
        """y ≈ y*(x)."""

    @property
    def judges(self) -> bool:
        """Whether it says itself where it stops short; otherwise the y that it finds is judged."""
        return False


class Ours(Find):
    """One of our inner solvers, from its first state."""

    solver: InnerSolver

    def __call__(self, problem, x, y0):
        self.solver.check(problem)
        y, _, info = self.solver(problem, x, y0, self.solver.init(y0), 0)
        if not self.judges:  # its residual was computed before its last step
            size = norm(residual(problem, x, y, natural_step(problem, x, y)))
            info = info._replace(residual=size)
        return y, info

    @property
    def judges(self):
        return self.solver.judges


class Theirs(Find):
    """A function solve(x, y0, *data), of JAX or on the host, whose y is judged by its residual."""

    solve: Callable[..., PyTree]
    host: bool = eqx.field(static=True)

    def __call__(self, problem, x, y0):
        y = self._call(x, y0, *(problem.inner_data[0] if problem.inner_data else ()))
        step = natural_step(problem, x, y)
        size = norm(residual(problem, x, y, step))
        one = jnp.ones((), jnp.int32)
        return y, LoopInfo(size, one, Cost(one, 0 * one), code(Status.UNCONVERGED))

    def _call(self, x: PyTree, y0: PyTree, *data: PyTree) -> PyTree:
        if not self.host:
            found = self.solve(x, y0, *data)
            return jax.tree.map(lambda y, like: jnp.asarray(y, like.dtype), found, y0)
        like = jax.tree.map(lambda y: jax.ShapeDtypeStruct(y.shape, y.dtype), y0)

        def on_host(*arguments: PyTree) -> PyTree:
            found = self.solve(*jax.tree.map(jax.device_get, arguments))
            return jax.tree.map(lambda y, s: jnp.asarray(y, s.dtype).reshape(s.shape), found, like)

        return jax.pure_callback(on_host, like, x, y0, *data, vmap_method="sequential")
