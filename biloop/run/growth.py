"""A run on a part of the samples that grows: when it does, and what it says of that."""

import math
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from biloop.compilation import compiled
from biloop.loops.results import Status
from biloop.methods import Growing, Method
from biloop.oracles import outer_value
from biloop.problem import Problem
from biloop.problem.data import count_samples
from biloop.problem.stream import Window
from biloop.run.engine import Engine, copied
from biloop.run.fingerprint import contents

_EVERY = 2  # outer steps between looks at rows beyond the part
_HELD = 0.5  # of what f has fallen on a part, beyond it: the rest is learned by heart
_PATIENCE = 2  # looks at which f has not fallen on the part: steps may lead up for a moment


class Growth:
    """Gives a run the problem on a part of its samples, until it is whole.

    A part is left when f on rows beyond it falls less than half as much, or when it has ended the
    run. What is decided depends on the state alone, so that a resumed run decides the same.
    """

    def __init__(self, problem: Problem, method: Method, mesh: Any) -> None:
        self._given, self._method = problem, method
        self._parts = []
        if isinstance(method, Growing) and mesh is None:
            self._parts = method.parts(problem)
        self._part = 0
        self.problem = self._on(0)

    @property
    def is_whole(self) -> bool:
        """Whether the run sees all samples."""
        return self._part >= len(self._parts) - 1

    @property
    def identity(self) -> dict[str, Any]:
        """What the fingerprint of the run has to know beside the first part."""
        return {"all data": contents(self._given)} if len(self._parts) > 1 else {}

    def begin(self, engine: Engine) -> None:
        """Go on with this engine, wherever it is."""
        self._engine = engine
        if len(self._parts) < 2:
            return
        self._show(int(engine.state.method.part))

    def steps_until_due(self, k: int, steps: int) -> int:
        """How far the run may go before it is looked at."""
        return steps - k if self.is_whole else _EVERY - k % _EVERY

    def check(self) -> Status | None:
        """Grow if it is time; why the run ends, if that has nothing to do with the part."""
        engine = self._engine
        stop = engine.ended()
        if stop is Status.BUDGET_SPENT:
            return stop
        if stop is not Status.COMPLETED:
            engine.reopen()
            self._grow()
        elif engine.k % _EVERY == 0 and self._is_exhausted():
            self._grow()
        return None

    def exact(self) -> Problem:
        """The problem on all samples."""
        return self._given

    @property
    def remark(self) -> str:
        """How many rows were used when."""
        if not self._parts:
            return ""
        assert isinstance(self._method, Growing)
        if len(self._parts) == 1:
            return self._method.why_whole(self._given)
        state = self._engine.state.method
        starts = [int(k) for k in np.asarray(state.starts)[: int(state.part) + 1]]
        last = self._parts[-1]
        told = [
            f"{'all' if part == last else f'{part.inner} and {part.outer}'} from step {start} on"
            for part, start in zip(self._parts, starts, strict=False)
        ]
        return (
            f"Of the {last.inner} inner and {last.outer} outer samples it used {', '.join(told)}."
        )

    def _is_exhausted(self) -> bool:
        """Whether what was gained on the part since the last look does not hold beyond it."""
        engine, state = self._engine, self._engine.state
        if engine.records[0].last("result") == Status.UNDONE:  # y belongs to no x that was kept
            return False
        accepted = engine.shared.outer.accepted(state.outer)
        x, own = (state.x, engine.records[0].last("value")) if accepted is None else accepted
        now = np.array([float(own), self._beyond(x)])
        gained, held = np.asarray(state.method.seen, float) - now
        if gained > 0:
            self._set(seen=jnp.asarray(now, state.method.seen.dtype), idle=jnp.zeros((), jnp.int32))
            return not pays(gained, held)
        self._set(idle=state.method.idle + 1)
        return int(state.method.idle) + 1 >= _PATIENCE

    def _beyond(self, x: PyTree) -> float:
        """f on as many rows beyond the part, with the y of the part."""
        assert isinstance(self._method, Growing)
        rows = self._method.beyond(self._given, self._parts[self._part])
        there = self._given if rows is None else self._given.batch(None, rows)
        seen = jnp.asarray(count_samples(there.outer_data), jnp.int32)
        self._set(looked=self._engine.state.method.looked + seen)
        return float(_value(there, x, self._engine.state.method.y))

    def _grow(self) -> None:
        engine, part = self._engine, self._part + 1
        self._show(part)
        problem, method, outer = engine.shared
        assert isinstance(method, Growing)
        state = method.renewed(problem, engine.state.x, engine.state.method)
        starts, never = state.starts.at[part].set(engine.k), jnp.full_like(state.seen, jnp.inf)
        state = state._replace(
            part=jnp.asarray(part, jnp.int32), starts=starts, seen=never,
            idle=jnp.zeros((), jnp.int32),
        )  # fmt: skip
        engine.state = copied(  # a buffer for each leaf
            engine.state._replace(method=state, outer=outer.restarted(engine.state.outer))
        )
        engine.compile()

    def _set(self, **fields: Any) -> None:
        state = self._engine.state
        self._engine.state = state._replace(method=state.method._replace(**fields))

    def _show(self, part: int) -> None:
        self._part = part
        self.problem = self._on(part)
        self._engine.shared = self._engine.shared._replace(problem=self.problem)

    def _on(self, part: int) -> Problem:
        """The problem on a part of its rows; it knows how many there are in all."""
        if part >= len(self._parts) - 1:
            return self._given
        assert isinstance(self._method, Growing)
        rows = self._method.rows(self._given, self._parts[part])
        counts = (self._given.inner_samples, self._given.outer_samples)
        windows = [
            None if r is None else Window(jnp.zeros((), jnp.int32), None, len(r), n)
            for r, n in zip(rows, counts, strict=True)
        ]
        return replace(self._given.batch(*rows), windows=(windows[0], windows[1]))


def pays(gained: float, held: float) -> bool:
    """Whether to stay on a part, on which f has fallen by `gained` and beyond which by `held`.

    As long as it holds beyond, a step on the part gains what one on more rows would, and is the
    cheaper one, however slow both are.
    """
    return math.isinf(gained) or held > _HELD * gained


@compiled(often="once")
def _value(problem: Problem, x: PyTree, y: PyTree) -> Float[Array, ""]:
    return outer_value(problem, x, y)
