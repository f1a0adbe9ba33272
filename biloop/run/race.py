"""Newton's method or momentum: who trains y, where g is not convex and y not determined by it.

Newton's steps are worth their products where few of them lead far, and those of gradients with
momentum where the Hessian says little (on transformers, deep convolutional networks). Which it is
nobody knows beforehand: after the first steps by Newton the other way begins at the same start, and
if it finds a clearly smaller f for as much again it goes on, otherwise Newton does. Whoever goes on
is not judged by the steps of the other, which stay in the record and in the cost.

It takes place where y has more entries than there are samples, so that it can learn them by heart:
when to stop is then as much a choice as x. Elsewhere f at a y on its way would say little of Φ.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop import vectors
from biloop.inner import NewtonCG
from biloop.linear import CG
from biloop.loops.results import Status
from biloop.methods import AID, Autodiff, Momentum
from biloop.outer import Entrywise
from biloop.outer.entrywise import units
from biloop.run.buffers import copied
from biloop.run.engine import Engine, Saved
from biloop.run.restarts import Restarts
from biloop.run.step import Settings, State
from biloop.run.trainings import Trainings, nothing_kept

AFTER = 3  # outer steps by Newton
_CLEARLY = 1.2  # times what f has fallen in them: with less, Newton is often ahead in the end
_RACE, _WON, _LOST = "race", "momentum", "Newton"  # stages, the first of which has no name


class Race:
    """Lets momentum run against the first steps by Newton, and the winner go on.

    `stage` is for a checkpoint to know. In the race the engine has the state of Newton as its
    `rival`.
    """

    def __init__(self, engine: Engine, mesh: Any) -> None:
        self.stage, self.restarts = "", Restarts(engine, mesh)
        self._engine, self._newton, self._epsilon = engine, engine.shared, engine.goal.epsilon
        few = 0 < engine.shared.problem.inner_samples < vectors.size(engine.state.method.y)
        possible = bool(self.restarts.start) and mesh is None and few
        self._takes_place = possible and _is_untuned(self._newton)

    @property
    def by_momentum(self) -> bool:
        """Whether y is trained by momentum now."""
        return self.stage in (_RACE, _WON)

    @property
    def is_due(self) -> bool:
        """Whether the outer steps before it have been made."""
        engine = self._engine
        more = engine.k < engine.goal.steps
        return self._takes_place and more and not self.stage and engine.records[0].rows == AFTER

    def due(self, k: int, steps: int) -> int:
        """At most these steps until somebody wants to look."""
        if self.by_momentum:
            return 1
        return min(steps, AFTER - k) if self._takes_place and k < AFTER else steps

    def begin(self) -> None:
        """Let the other way begin at the start, if that has a unit for its steps."""
        engine = self._engine
        assert self.restarts.start
        if not vectors.norm(self.restarts.start.method.y) > 0:
            return
        engine.rival, engine.state = engine.state, copied(self._first())
        engine.kept = nothing_kept(copied(engine.state.method), AFTER)
        engine.set_aside(0, AFTER)
        self.resume(_RACE)
        engine.compile()

    def restore(self, saved: Saved, columns: dict[str, np.ndarray], stage: str) -> None:
        """Go on where a checkpoint ends."""
        self._engine.restore(saved, columns)
        self.resume(stage)

    def resume(self, stage: str) -> None:
        """Go on in this stage."""
        self.stage = stage
        if self.by_momentum:
            self._engine.use(self._by_momentum)
            # Of how small ∇Φ is this h says nothing.
            self._engine.goal = self._engine.goal._replace(epsilon=None)
            self.trainings = Trainings(self._engine, self._first().method)

    def like(self, point: PyTree) -> Callable[[str], tuple[Saved, PyTree]]:
        """What a checkpoint in a stage looks like, before anything was restored; with a point."""
        return lambda stage: (self._saved(stage), point)

    def _saved(self, stage: str) -> Saved:
        state, stop, marks, kept, rival = self._engine.saved
        if stage in (_RACE, _WON):
            rival, state = state if stage == _RACE else (), self._first()
            kept = nothing_kept(state.method, AFTER)
        return state, stop, marks, kept, rival

    def check(self) -> Status | None:
        """Look at the last step by momentum; why the run ends, if so."""
        engine, stop = self._engine, self._engine.ended()
        goes_on = self.trainings.look()
        if stop.failed:
            engine.reopen()
        if self.stage == _RACE and self._is_ahead:
            self.stage, engine.rival = _WON, ()
        elif self.stage == _RACE and (stop.failed or self._is_behind or not goes_on):
            self.conclude()
        elif not goes_on:
            return Status.SETTLED
        return None if stop is Status.COMPLETED or stop.failed else stop

    def best(self, value: float) -> tuple[float, str]:
        """f at the end, or where it was kept if that is less; and a sentence."""
        if self.by_momentum:
            return self.trainings.best()
        return self.restarts.best(value)

    def concluded(self) -> Settings:
        """What the run ends with: who has not won by then has lost."""
        self.conclude()
        return self._engine.shared

    def conclude(self) -> None:
        """Who has not won by then has lost."""
        if self.stage != _RACE:
            return
        engine, rows = self._engine, self._engine.records[0].rows
        newton: State = engine.rival
        engine.state = newton._replace(k=jnp.asarray(rows, newton.k.dtype))
        engine.rival, engine.kept = (), self.restarts.start
        engine.set_aside(AFTER, rows)
        engine.use(self._newton)
        engine.goal = engine.goal._replace(epsilon=self._epsilon)
        engine.compile()
        self.stage = _LOST

    @property
    def _is_ahead(self) -> bool:
        columns = self._engine.records[0].columns()
        kept = columns["result"][:AFTER] != Status.UNDONE
        values = columns["value"][:AFTER][kept]
        gained, gains = values[0] - values.min(), values[0] - self._engine.kept.value
        return bool(gains > _CLEARLY * gained)

    @property
    def _is_behind(self) -> bool:
        """Whether as much was spent as by Newton, in vain."""
        columns = self._engine.records[0].columns()
        spent = columns["gradients"] + columns["products"]
        return bool(spent[-1] >= 2 * spent[AFTER - 1])

    @property
    def _by_momentum(self) -> Settings:
        assert self.restarts.start
        outer = self._newton.outer.on_batches(Entrywise(units(self.restarts.start.x)))
        return self._newton._replace(method=Momentum(), outer=outer)

    def _first(self) -> State:
        """Where momentum begins."""
        (problem, method, outer), start = self._by_momentum, self.restarts.start
        assert start
        k = jnp.asarray(AFTER, self._engine.state.k.dtype)
        return State(k, start.x, method.init(problem, start.x, start.method.y), outer.init(start.x))


def _is_untuned(settings: Settings) -> bool:
    """Whether it is the adaptive AID for minima in which nothing was chosen."""
    problem, method, _ = settings
    if not (isinstance(method, AID) and problem.kind == "minimum" and problem.start is None):
        return False
    untouched = method.warm_start_y and method.warm_start_v
    exact = isinstance(method.derivatives, Autodiff) and method.derivatives.recompute == "auto"
    newton = isinstance(method.inner, NewtonCG) and method.inner.tolerance is None
    linear = method.linear
    damped = isinstance(linear, CG) and linear.tolerance is None and linear.indefinite == "damp"
    return untouched and exact and newton and damped
