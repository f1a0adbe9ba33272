"""Functions of one task as functions of many: y has a leading axis of tasks, x has none.

    g(x, y) = Σ_t g_t(x, y_t),   f(x, y) = mean over t of f_t(x, y_t)

A sum below, so that the gradient for a task is that of its own g_t; H is block diagonal.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from biloop.problem import Problem
from biloop.problem.data import count_samples, is_sampled
from biloop.problem.rows import Rows
from biloop.problem.variables import frozen_like, thawed


class Mapped(eqx.Module):
    """function(x, y_t, *data_t) for all tasks; what stands in data as a pytree is common to all."""

    function: Callable[..., Any]

    def __call__(self, x: PyTree, y: PyTree, *data: PyTree) -> PyTree:
        """With a leading axis of tasks."""
        # The numbers and functions inside of a module are no variables, and common to all tasks.
        moving = jax.tree.map(eqx.is_inexact_array, y), _each(data)
        split, common = eqx.partition((y, data), moving)

        def one(part: PyTree) -> PyTree:
            y, data = eqx.combine(part, common)
            return self.function(x, y, *data)

        return jax.vmap(one)(split)


class Summed(Mapped):
    """Σ_t g_t."""

    def __call__(self, x, y, *data):
        return jnp.sum(Mapped(self.function)(x, y, *data))


class Averaged(Mapped):
    """The mean of f_t, and of each of its metrics."""

    def __call__(self, x, y, *data):
        each = Mapped(self.function)(x, y, *data)
        return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), each)


class Share(eqx.Module):
    """f_t / T, of which the sum over tasks is f."""

    function: Callable[..., Any]
    tasks: int = eqx.field(static=True)

    def __call__(self, x: PyTree, y: PyTree, *data: PyTree) -> Any:
        """The share of a task."""
        found = self.function(x, y, *data)
        if isinstance(found, tuple):
            return found[0] / self.tasks, found[1]
        return found / self.tasks


class Repeated(eqx.Module):
    """start(x), once for each task."""

    function: Callable[..., Any]
    tasks: int = eqx.field(static=True)

    def __call__(self, x: PyTree) -> PyTree:
        """With a leading axis of tasks."""
        return jax.tree.map(self._repeat, self.function(x))

    def _repeat(self, leaf: Any) -> Any:
        if not eqx.is_inexact_array(leaf):
            return leaf
        return jnp.broadcast_to(leaf, (self.tasks, *leaf.shape))


class SeparateProx(eqx.Module):
    """prox(x, z_t, α) for all tasks."""

    function: Callable[..., Any]

    def __call__(self, x: PyTree, z: PyTree, step: Array) -> PyTree:
        """With a leading axis of tasks."""
        return Mapped(lambda x, z: self.function(x, z, step))(x, z)


def _each(data: tuple[PyTree, ...]) -> PyTree:
    """Which entries of the data are those of tasks."""
    return tuple(is_sampled(entry) for entry in data)


def joined(problem: Problem, tasks: int) -> Problem:
    """The problem of so many tasks, from that of one whose data are those of all."""
    return dataclasses.replace(
        problem,
        inner=(Mapped if problem.is_equilibrium else Summed)(problem.inner),
        outer=Averaged(problem.outer),
        prox=None if problem.prox is None else SeparateProx(problem.prox),
        start=None if problem.start is None else Repeated(problem.start, tasks),
    )


def has_tasks(problem: Problem) -> bool:
    """Whether this is a problem of many tasks."""
    return isinstance(problem.outer, Averaged)


def of_one_task(problem: Problem) -> Problem:
    """The problem of a task, with the data of all; the inverse of `joined`."""
    if not has_tasks(problem):
        raise TypeError(
            f"This is no problem of many tasks. Make one with bl.problems.tasks(problem), from the "
            f"problem of one task with the data of all; got outer = {problem.outer!r}."
        )
    return dataclasses.replace(
        problem,
        inner=_inside(problem.inner),
        outer=_inside(problem.outer),
        prox=_inside(problem.prox),
        start=_inside(problem.start),
    )


def _inside(part: Any) -> Any:
    return None if part is None else part.function


class TaskSet(NamedTuple):
    """The problem of one task, and the data of some."""

    task: Problem
    inner_data: tuple[PyTree, ...]
    outer_data: tuple[PyTree, ...]

    @classmethod
    def of(cls, problem: Problem) -> "TaskSet":
        """The tasks of a problem of many."""
        return cls(of_one_task(problem), problem.inner_data, problem.outer_data)

    def __len__(self) -> int:
        """How many there are."""
        return count_samples(self.inner_data) or count_samples(self.outer_data)

    def rows(self, rows: Rows) -> "TaskSet":
        """Some of the tasks."""
        data = self.inner_data, self.outer_data
        some = [tuple(rows(e) if is_sampled(e) else e for e in entries) for entries in data]
        return TaskSet(self.task, *some)

    def start(self, x: PyTree, like: PyTree) -> PyTree:
        """y⁰(x) for each of them, as something like the y of other tasks."""
        assert self.task.start is not None
        return frozen_like(Repeated(self.task.start, len(self))(thawed(x)), like)

    def map(self, function: Callable[[Problem, PyTree], PyTree], each: PyTree) -> PyTree:
        """function(problem of task t, each_t) for all tasks, of which each has its share of f."""
        data = (self.inner_data, self.outer_data)
        split, common = eqx.partition(data, tuple(map(_each, data)))
        outer = Share(self.task.outer, len(self))

        def one(part: PyTree, own: PyTree) -> PyTree:
            inner_data, outer_data = eqx.combine(part, common)
            task = dataclasses.replace(self.task, inner_data=inner_data, outer_data=outer_data)
            return function(dataclasses.replace(task, outer=outer), own)

        return jax.vmap(one)(split, each)
