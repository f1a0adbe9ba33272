"""How y* is found: by a solver of ours, or by somebody else's."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from biloop.inner import InnerSolver
from biloop.loops.iteration import LoopInfo
from biloop.loops.results import Status, code
from biloop.oracles import Cost, natural_step, residual
from biloop.problem import Problem
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

    @property
    def until_rounding(self) -> bool:
        """Whether it says that only rounding is left: by the curvature on its way to y."""
        return False


class Ours(Find):
    """One of our inner solvers, from its first state."""

    solver: InnerSolver
    is_tight: bool = eqx.field(static=True)

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

    @property
    def until_rounding(self):
        return self.is_tight


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
            return _like(self.solve(x, y0, *data), y0)
        like = jax.tree.map(lambda y: jax.ShapeDtypeStruct(y.shape, y.dtype), y0)

        def on_host(*arguments: PyTree) -> PyTree:
            return _like(self.solve(*jax.tree.map(jax.device_get, arguments)), like)

        return jax.pure_callback(on_host, like, x, y0, *data, vmap_method="sequential")


def _like(found: PyTree, like: PyTree) -> PyTree:
    """What a solver returned, in the dtypes of y; a leaf may be flat, as SciPy has it."""
    leaves, structure = jax.tree.flatten(found)
    shapes = [jnp.shape(leaf) for leaf in leaves]
    wanted = jax.tree.leaves(like)
    if structure != jax.tree.structure(like) or any(
        shape not in (y.shape, (y.size,)) for shape, y in zip(shapes, wanted, strict=True)
    ):
        raise ValueError(
            f"The solver must return something like y0, "
            f"{_shapes(like)}; it returned {_shapes(found)}."
        )
    likewise = zip(leaves, wanted, strict=True)
    made = [jnp.asarray(leaf, y.dtype).reshape(y.shape) for leaf, y in likewise]
    return jax.tree.unflatten(structure, made)


def _shapes(tree: PyTree) -> str:
    return eqx.tree_pformat(tree, width=88, struct_as_array=True)
