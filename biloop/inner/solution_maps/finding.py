"""How y* is found: by a solver of ours, or by somebody else's."""

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.inner import InnerSolver
from biloop.loops.iteration import LoopInfo
from biloop.loops.results import Status, code
from biloop.oracles import Cost, curved_by, natural_step, residual
from biloop.problem import Problem
from biloop.schedules.arguments import as_flag
from biloop.vectors import norm, scaled

_ROUNDING = 20.0  # times what a rounding of y changes in F: a residual that is larger is none
_ROUNDS = 4  # each from where the last one ended


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
    """One of our inner solvers, from its first state.

    A loop takes for rounding what would be rounding of its start, or with the largest curvature on
    its way. Where that is more than rounding of what was found, it goes on from there; and what is
    no more is the end, however it came to it.
    """

    solver: InnerSolver
    is_tight: bool = eqx.field(static=True)

    def __call__(self, problem, x, y0):
        self.solver.check(problem)
        zero = jnp.zeros((), jnp.int32)
        never = jnp.full((), jnp.inf, vectors.accumulator(y0))
        nothing = LoopInfo(never, zero, Cost(zero, zero), code(Status.UNCONVERGED))
        start = _Found(y0, self.solver.init(y0), nothing, zero, jnp.ones((), bool))
        found = lax.while_loop(
            lambda last: last.again, lambda last: self._closer(problem, x, last), start
        )
        y, info = found.y, found.info
        if not self.judges:  # its residual was computed before its last step
            size = norm(residual(problem, x, y, natural_step(problem, x, y)))
            info = info._replace(residual=size)
        return y, info

    def _closer(self, problem: Problem, x: PyTree, last: "_Found") -> "_Found":
        """Another call of the solver, if that brought something."""
        y, state, info = self.solver(problem, x, last.y, last.state, 0)
        closer = (last.rounds == 0) | (info.residual < last.info.residual)
        again = jnp.zeros((), bool)
        if self.is_tight:
            rounded = info.residual <= _ROUNDING * _rounding(problem, x, y)
            short = rounded & (info.result == code(Status.UNCONVERGED))
            info = info._replace(result=jnp.where(short, code(Status.COMPLETED), info.result))
            again = closer & ~rounded & (info.result == code(Status.COMPLETED))
            again = again & (last.rounds < _ROUNDS)
        y, size, result = vectors.where(
            closer,
            (y, info.residual, info.result),
            (last.y, last.info.residual, last.info.result),
        )
        info = LoopInfo(size, last.info.steps + info.steps, last.info.cost + info.cost, result)
        return _Found(y, state, info, last.rounds + 1, again)

    @property
    def judges(self):
        return self.solver.judges

    @property
    def until_rounding(self):
        return self.is_tight


def _rounding(problem: Problem, x: PyTree, y: PyTree) -> Float[Array, ""]:
    """‖F_yᵀ e‖ for e a rounding of each entry of y, in one direction or the other."""
    step, same = natural_step(problem, x, y), scaled(vectors.eps(y), y)
    errors = jax.tree.map(lambda e: jnp.stack([e, _alternating(e)]), same)
    # One after the other by one program: that of an inner problem in g is long.
    return jnp.max(lax.map(lambda e: curved_by(problem, x, y, step, e), errors))


def _alternating(a: Array) -> Array:
    """Every second entry with its other sign."""
    signs = 1 - 2 * (jnp.arange(a.size, dtype=jnp.int32) % 2)
    return a * signs.reshape(a.shape).astype(a.dtype)


class _Found(NamedTuple):
    """y and how it was found, what the solver knows, and whether to go on from there."""

    y: PyTree
    state: PyTree
    info: LoopInfo
    rounds: Int[Array, ""]
    again: Bool[Array, ""]


class Theirs(Find):
    """A function solve(x, y0, *data), of JAX or on the host, whose y is judged by its residual."""

    solve: Callable[..., PyTree]
    host: bool = eqx.field(static=True, converter=as_flag("host"))

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
