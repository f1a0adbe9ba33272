"""Many tasks at once, each with an inner problem of its own, all with one x."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from biloop.loops.results import FIRST_FAILURE, Code
from biloop.methods.base import Info, Method, Residuals, checked_start
from biloop.methods.each_task import TaskSet, of_one_task
from biloop.oracles import Cost, SampleCount
from biloop.problem import Problem
from biloop.problem.composite import as_pytree
from biloop.problem.rows import Block
from biloop.samples import Blocks, Samples, Uniform, as_key
from biloop.schedules import Count
from biloop.schedules.arguments import as_count, shown

Draw = Callable[[Key[Array, ""]], tuple[tuple[PyTree, ...], tuple[PyTree, ...]]]


class TasksState(NamedTuple):
    """The state of the method for each task of the problem, with a leading axis."""

    each: Any

    @property
    def y(self) -> PyTree:
        """The inner solutions of all tasks."""
        return self.each.y


class DrawnTasksState(NamedTuple):
    """Where new tasks are drawn nothing is carried on: y is what was given for those at hand."""

    y: PyTree


class Tasks(Method):
    """A method for each task of `problems.tasks(…)`: every task ends its own loops.

    h = mean over tasks t of h_t,   h_t from method(problem of task t, x)

    What is known of a task (y, v, the curvature that was seen) is carried on to its next turn. The
    tasks go side by side in one program, which computes for as long as the longest loop takes: this
    is what is counted, in evaluations for all tasks of the problem.

    Parameters
    ----------
    method : Method
        For one task: `ITD(…)` with a start y⁰(x) = x is MAML, `AID(…)` with a penalty ‖y − x‖² is
        iMAML.
    batch : int, optional
        The number of tasks in each outer step; all of them unless given.
    draw : function of a key, optional
        Draws a new task: returns its inner_data and outer_data. With it every outer step sees
        `batch` tasks that nobody has seen before, from a start y⁰(x); those of the problem are
        held out, and the run ends with their value and their y. Without it the tasks are those of
        the problem.
    key : jax.random.key or integer
        Draw k is made with fold_in(key, k).

    Examples
    --------
    >>> maml = bl.Tasks(bl.ITD(bl.GradientDescent(step_size=0.1, steps=5)), batch=25, key=0)
    >>> maml.batch  # of the tasks of `problems.tasks`, in each outer step
    25
    """

    method: Method
    batch: int | None = eqx.field(
        default=None, static=True, converter=as_count("batch", optional=True)
    )
    draw: Draw | None = eqx.field(
        default=None,
        converter=lambda draw: None if draw is None else as_pytree(draw, "draw, if given,"),
    )
    key: Key[Array, ""] = eqx.field(default=0, converter=as_key)

    def __check_init__(self):
        if not isinstance(self.method, Method):
            raise TypeError(
                f"Tasks needs a method for a task, e.g. ITD(…); got {shown(self.method)}."
            )
        if self.method.sampled is not None:
            raise TypeError(
                f"The method {shown(self.method)} draws rows itself, and cannot be that of a task."
            )
        if self.draw is not None and self.batch is None:
            raise ValueError("With draw=… say how many tasks are drawn for a step: batch=25, say.")

    def init(self, problem, x, y):
        x, y = checked_start(problem, x, y, takes_start=True)
        tasks = TaskSet.of(problem)
        if self.draw is not None:
            self._check_draw(tasks)
            return DrawnTasksState(y)
        if self.batch is not None:
            Blocks(self.batch).check(len(tasks), "inner_data")
        return self._first(tasks, x, y)

    def __call__(self, problem, x, state, k):
        tasks = TaskSet.of(problem)
        if self.draw is not None:
            new = self._new(tasks.task, k)
            first = self._first(new, x, new.start(x, state.y))
            h, _, info = self._step(new, x, first, k)
            return h, state, self._priced(info)
        if self.batch is None:
            return self._step(tasks, x, state, k)
        rows = Blocks(self.batch)(self.key, jnp.asarray(k), len(tasks))
        some = jax.tree.map(rows, state)
        h, after, info = self._step(tasks.rows(rows), x, some, k)
        return h, jax.tree.map(partial(_put, rows), state, after), self._priced(info)

    def solution(self, problem, x, state):
        """Each task of the problem at x, from where it is."""
        if self.sampled is None:
            return state.y
        tasks = TaskSet.of(problem)
        first = state
        if self.draw is not None:
            first = self._first(tasks, x, tasks.start(x, state.y))
        return self._step(tasks, x, first, 0)[1].y

    def _first(self, tasks: TaskSet, x: PyTree, y: PyTree) -> TasksState:
        return TasksState(tasks.map(lambda task, y: self.method.init(task, x, y), y))

    def _new(self, task: Problem, k: Count) -> TaskSet:
        """The tasks of outer step k, which no other step sees."""
        assert self.draw is not None
        assert self.batch is not None
        keys = jax.random.split(jax.random.fold_in(self.key, k), self.batch)
        return TaskSet(task, *jax.vmap(self.draw)(keys))

    def _step(
        self, tasks: TaskSet, x: PyTree, state: TasksState, k: Count
    ) -> tuple[PyTree, TasksState, Info]:
        """The method once for each task.

        Each has its share of f, so that h is the sum, and v and residuals are of the joint problem.
        """
        h, each, info = tasks.map(lambda task, own: self.method(task, x, own, k), state.each)
        h = jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), h)
        # A method may count with Python's integers, which vmap makes int64 where there are such.
        cost = Cost(*(jnp.max(count).astype(jnp.int32) for count in info.cost))
        residuals = Residuals(*(jnp.sqrt(jnp.sum(sizes**2)) for sizes in info.residuals))
        joint = Info(jnp.sum(info.value), cost, _worst(info.result), residuals)
        return h, TasksState(each), joint

    def _priced(self, info: Info) -> Info:
        """The account in tasks that were drawn."""
        gradients, products = ((self.batch or 1) * count for count in info.cost)
        rows = SampleCount(inner=gradients, products=products)
        return info._replace(cost=Cost(0, 0), samples=rows)

    def _check_draw(self, tasks: TaskSet) -> None:
        assert self.draw is not None
        if tasks.task.start is None:
            raise ValueError(
                "A task that was just drawn has no y to go on from: give the problem a start "
                "y⁰(x), e.g. bl.Problem(…, start=lambda x: x)."
            )
        drawn = jax.eval_shape(self.draw, self.key)
        wanted = jax.eval_shape(lambda: (tasks.inner_data, tasks.outer_data))
        wanted = jax.tree.map(lambda leaf: leaf.update(shape=leaf.shape[1:]), wanted)
        if drawn != wanted:
            raise ValueError(
                f"draw(key) must return the inner_data and the outer_data of one task, {wanted}; "
                f"it returns {drawn}."
            )

    @property
    def sampled(self):
        if self.batch is None:
            return None
        sampler = (Blocks if self.draw is None else Uniform)(self.batch)
        return Samples(sampler, sampler, self.key)

    def measures_itself(self, problem):
        return self.method.measures_itself(of_one_task(problem))

    @property
    def follows(self):
        return self.method.follows

    @property
    def shares_y(self):
        return False

    def stability(self, L):
        return self.method.stability(L)


def _put(rows: Block, whole: Array, part: Array) -> Array:
    """The whole with other rows."""
    return jax.lax.dynamic_update_slice_in_dim(whole, part, rows.number * rows.size, axis=0)


def _worst(codes: Int[Array, " tasks"]) -> Code:
    """The first failure; without one what `first_failure` prefers."""
    rank = jnp.where(codes >= FIRST_FAILURE, jnp.iinfo(codes.dtype).max, jnp.abs(codes))
    return codes[jnp.argmax(rank)]
