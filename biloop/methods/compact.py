"""Directions of linear models by a few numbers per sample, for estimators that keep tables.

    g = loss(x, A y) + penalty(x, y):   ∇_y g = Aᵀs + ∇_y penalty,   s = ∇loss at the outputs Ay

and likewise ∇²_y g v = Aᵀ(∇²loss Av) + …. What depends on a sample are the entries of s that belong
to it; A is made from its data, which are at hand whenever it is drawn. Numbers come from the usual
derivatives, with respect to something that is added to the outputs.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from biloop.methods.directions import Drawn, Point
from biloop.oracles import gradient_and_products, inner_gradient, outer_gradients
from biloop.problem import Composite, Problem
from biloop.problem.rows import AllRows, Rows
from biloop.problem.variables import thawed
from biloop.samples import Pair
from biloop.samples.estimators import Compact
from biloop.schedules import is_concrete
from biloop.vectors import eps, norm, scaled, subtract, zeros_like


class _Shifted(eqx.Module):
    """loss(x, A y + o), as a function of x and (y, o)."""

    model: Composite

    def __call__(self, x, both, *data):
        y, shift = both
        outputs = self.model.outputs(x, y, *data)
        return self.model.loss(x, jax.tree.map(jnp.add, outputs, shift), *data)


class _Paired(eqx.Module):
    """⟨s, A y⟩, whose gradient is Aᵀs."""

    model: Composite
    numbers: PyTree

    def __call__(self, x, y, *data):
        terms = jax.tree.map(jnp.vdot, self.numbers, self.model.outputs(x, y, *data))
        return sum(jax.tree.leaves(terms))


def _nothing(x: PyTree, y: PyTree, *data: PyTree) -> Array:
    return jnp.zeros(())


def compact(names: Sequence[str], drawn: Drawn, point: Point) -> Compact:
    """The directions with these names on the rows drawn, where both levels are linear models."""
    problem = drawn.source.problem
    inner = _Inner(problem.inner, problem.inner_data, names, point)
    if problem.per_sample is not None:
        inner.mark(jax.tree.leaves(problem.per_sample(point.x)), drawn.rows.inner)
    others = [name for name in names if name != "y"]
    outer = _Outer(problem.outer, problem.outer_data, others, point)
    return Compact(
        Pair(inner.numbers(), outer.numbers()),
        lambda numbers: Pair(inner.expand(numbers.inner), outer.expand(numbers.outer)),
        Pair(inner.rest(), outer.rest()),
    )


class _Level:
    """One level of a problem, as numbers, what they stand for, and what has no samples."""

    def __init__(
        self, model: Any, data: tuple[PyTree, ...], names: Sequence[str], point: Point
    ) -> None:
        self.model, self.data = model, data
        self.names, self.point = names, point
        x, y = thawed(point.x), thawed(point.y)
        self.outputs = jax.eval_shape(lambda: self.model.outputs(x, y, *self.data))
        self.seen = _seen(self.model, point.x, self.outputs, self.data)
        self.by_row = [False] * len(self.seen)
        self.rows: Rows = AllRows()

    def mark(self, of_samples: list[Array], rows: Rows) -> None:
        """Of these leaves of x only those rows matter."""
        leaves = jax.tree.leaves(self.point.x)
        self.by_row = [any(leaf is marked for marked in of_samples) for leaf in leaves]
        self.rows = rows

    def shifted(self) -> tuple[Problem, PyTree]:
        """The problem with something added to the outputs, and (y, 0)."""
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self.outputs)
        shifted = _Shifted(self.model)
        return Problem(shifted, shifted, self.data, self.data), (self.point.y, nothing)

    def penalty(self) -> Problem:
        function = self.model.penalty or _nothing
        return Problem(function, function)

    def expand(self, numbers: dict[str, PyTree]) -> dict[str, PyTree]:
        """Aᵀ numbers, and the entries of x that the loss uses in their places."""
        x, y, _ = self.point

        def pulled(numbers: PyTree) -> PyTree:
            return inner_gradient(Problem(_Paired(self.model, numbers), _nothing, self.data), x, y)

        return {
            name: self._placed(own) if name == "x" else pulled(own) for name, own in numbers.items()
        }

    def kept(self, x: PyTree) -> list[Array]:
        """The leaves that the loss uses, or those rows of them that were drawn."""
        each = zip(jax.tree.leaves(x), self.seen, self.by_row, strict=True)
        return [self.rows(leaf) if by_row else leaf for leaf, seen, by_row in each if seen]

    def _placed(self, kept: list[Array]) -> PyTree:
        leaves, structure = jax.tree.flatten(zeros_like(self.point.x))
        left = list(kept)
        for i, (leaf, seen, by_row) in enumerate(zip(leaves, self.seen, self.by_row, strict=True)):
            if seen:
                new = left.pop(0)
                leaves[i] = leaf.at[self.rows.numbered(len(leaf))].set(new) if by_row else new
        return jax.tree.unflatten(structure, leaves)


class _Inner(_Level):
    def numbers(self) -> dict[str, PyTree]:
        problem, both = self.shifted()
        gradient, hessian, cross = gradient_and_products(problem, self.point.x, both)
        along = (self.point.v, zeros_like(both[1]))
        made = {
            "y": lambda: gradient[1],
            "v": lambda: hessian(along)[1],
            "x": lambda: self.kept(cross(along)),
        }
        return {name: made[name]() for name in self.names}

    def rest(self) -> dict[str, PyTree]:
        x, y, v = self.point
        gradient, hessian, cross = gradient_and_products(self.penalty(), x, y)
        made = {"y": lambda: gradient, "v": lambda: hessian(v), "x": lambda: cross(v)}
        return {name: made[name]() for name in self.names}


class _Outer(_Level):
    def numbers(self) -> dict[str, PyTree]:
        problem, both = self.shifted()
        _, f_x, (_, slope) = outer_gradients(problem, self.point.x, both)
        made = {"v": lambda: slope, "x": lambda: self.kept(f_x)}
        return {name: made[name]() for name in self.names}

    def rest(self) -> dict[str, PyTree]:
        x, y, _ = self.point
        _, f_x, f_y = outer_gradients(self.penalty(), x, y)
        return {name: {"v": f_y, "x": f_x}[name] for name in self.names}


def _seen(model: Composite, x: PyTree, outputs: PyTree, data: tuple[PyTree, ...]) -> list[bool]:
    """Which leaves of x the loss uses at all."""
    made = jax.make_jaxpr(lambda x, z: model.loss(thawed(x), z, *data))(x, outputs)
    used = {id(v) for eqn in made.jaxpr.eqns for v in eqn.invars}
    return [id(v) in used for v in made.jaxpr.invars[: len(jax.tree.leaves(x))]]


def is_linear(problem: Problem) -> bool:
    """Whether both levels say that their outputs are linear in y."""
    levels = (problem.inner, problem.outer)
    return all(isinstance(level, Composite) and level.linear for level in levels)


def check_linear(problem: Problem, x: PyTree, y: PyTree) -> None:
    """Refuse outputs that are called linear in y and are not, or that depend on x."""
    if not all(map(is_concrete, jax.tree.leaves((problem, x, y)))):
        return  # `init` is being traced: there are no numbers yet
    with jax.ensure_compile_time_eval():  # or it is inside of what is
        _check_outputs(problem, x, y)


def _check_outputs(problem: Problem, x: PyTree, y: PyTree) -> None:
    some, other = _waves(y), jax.tree.map(jnp.add, x, _waves(x))
    for name, data in (("inner", problem.inner_data), ("outer", problem.outer_data)):
        outputs = getattr(problem, name).outputs
        at = lambda x, y, f=outputs, d=data: f(thawed(x), thawed(y), *d)  # noqa: E731
        once, twice, moved = at(x, some), at(x, scaled(2.0, some)), at(other, some)
        size = float(norm(once))
        apart = float(norm(subtract(twice, scaled(2.0, once)))), float(norm(subtract(moved, once)))
        if max(apart) > 1e3 * eps(y) * size:
            raise ValueError(
                f"The outputs of {name} are said to be linear in y and to depend on y and data "
                f"alone, but A(2y) − 2Ay has norm {apart[0]:.3g} and another x changes Ay by "
                f"{apart[1]:.3g}, where Ay has {size:.3g}. Leave linear=True away."
            )


def _waves(like: PyTree) -> PyTree:
    wave = lambda leaf: jnp.cos(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape)  # noqa: E731
    return jax.tree.map(wave, like)
