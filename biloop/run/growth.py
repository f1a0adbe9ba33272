"""A run that begins on batches: when it goes on with all rows, and what it says of that."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from biloop.loops.results import Status
from biloop.methods import Growing, Method
from biloop.methods.growing import Point
from biloop.methods.untuned import EVERY
from biloop.outer import Entrywise, OuterStep, Staged
from biloop.outer.entrywise import units
from biloop.problem import Problem
from biloop.run.buffers import copied
from biloop.run.chunk import UNLIMITED
from biloop.run.divergence import NO_LEVELS
from biloop.run.engine import Engine
from biloop.vectors import norm, subtract

ENDLESS = 2**31 - 2  # outer steps of a run on batches that ends otherwise
_SURE = 2.0  # standard errors by which f has fallen or risen
_SHORTER = 0.5  # steps of y and v, where f does not fall any more
_PAYS = 0.01  # of what f has fallen in all
_TRIES = 4  # times that this may be
_PASSES = 1 / 8  # on batches, for each batch in a pass: with few in it noise costs more
_OWN_PASSES = 1  # where samples have entries of x of their own, which a pass sees once
_REACH = 2.0  # units of x
_STILL = 0.5  # of the length of D_y: with less, y is on its way, and f with it


class Growth:
    """Gives a run the method on batches and its outer step, and later those on all rows.

    What is decided depends on the state and the record alone, so that a resumed run decides the
    same.
    """

    def __init__(
        self, problem: Problem, method: Method, outer: OuterStep, x: PyTree, mesh: Any
    ) -> None:
        self.problem, self.method, self.outer = problem, method, outer
        self._most = UNLIMITED
        self._late = method, outer
        self._grows = isinstance(method, Growing) and mesh is None and method.takes_batches(problem)
        if self._grows:
            assert isinstance(method, Growing)
            self._samples = method.untuned(problem).samples
            self._blocks = self._samples.blocks(problem)
            share = _PASSES if problem.per_sample is None else _OWN_PASSES
            self._most_passes = share * self._blocks.inner
            early = outer.on_batches(entrywise(problem, method.batch, x))
            self.method = dataclasses.replace(method, on_batches=True)
            self.outer = Staged(early, outer)
            self._late = method, dataclasses.replace(self.outer, late=True)
        self.is_whole = not self._grows

    def steps(self, given: int | None, most: int) -> int:
        """The most outer steps; where none are given, `most` of them on all rows."""
        if given is None:
            self._most = most
        return (ENDLESS if self._grows else most) if given is None else given

    def begin(self, engine: Engine) -> None:
        """Go on with this engine, wherever it is."""
        self._engine = engine
        if self._grows and int(engine.state.method.whole) > 0:
            self._use_all()
        elif self._grows:
            engine.marks.levels[:] = np.inf  # what a batch says is no reason to look

    def steps_until_due(self, k: int, steps: int) -> int:
        """How far the run may go before it is looked at."""
        if self.is_whole:
            return steps - k
        state = self._engine.state.method
        return max(1, int(state.since) + int(state.window) - self._engine.records[0].rows)

    def check(self) -> Status | None:
        """Look at f if it is time; why the run ends, if that is not for all rows to say."""
        engine, state = self._engine, self._engine.state.method
        stop = engine.ended()
        if stop is Status.BUDGET_SPENT:
            return stop
        if stop is not Status.COMPLETED:
            engine.reopen()
        if stop.failed:
            self._shorten(back=True)
        elif stop is Status.CONVERGED:  # by what a batch says
            self._grow()
        elif engine.records[0].rows - int(state.since) >= int(state.window):
            self._judge(engine.records[0].columns(int(state.since)))
        return None

    @property
    def remark(self) -> str:
        """How many rows were used when."""
        given, (method, _) = self.problem, self._late
        if not isinstance(method, Growing):
            return ""
        if not self._grows:
            return method.why_whole(given)
        rows, start = self._samples.sizes(given), self._engine.state.method.whole
        told = f"Of the {given.inner_samples} inner and {given.outer_samples} outer samples it "
        told += f"used batches of {rows.inner} and {rows.outer} from step 0 on"
        return f"{told}, all from step {int(start)} on." if self.is_whole else f"{told}."

    def _judge(self, seen: dict[str, np.ndarray]) -> None:
        """Go on as long as f falls, or cannot be said not to, or y is on its way."""
        state = self._engine.state.method
        now, error = self._mean(seen["value"])
        length = float(np.mean(seen["inner_residual"]))
        first, earlier, before, doubt, moved = np.asarray(state.level, float)
        first = now if math.isinf(first) else first
        fell = before - now + _SURE * math.hypot(error, doubt)  # at most
        if self._engine.records[0].cost.total > self._most_passes:
            self._grow()
            return
        stands = fell < _PAYS * abs(first - now) and length > _STILL * moved
        if stands and now > earlier:
            self._shorten(back=True)
            return
        level = jnp.asarray([first, before, now, error, length], state.level.dtype)
        self._set(level=level)
        if stands:
            self._shorten(back=False)
            return
        back = copied(Point(self._engine.state.x, state.y, state.v))
        self._set(back=back, window=2 * state.window)
        self._from_here()

    def _shorten(self, back: bool) -> None:
        """Half of the steps of y and v, from the last point where f was seen to fall if need be.

        Those of x get shorter by themselves.
        """
        state = self._engine.state
        x, y, v = state.method.back
        if not back:
            x, y, v = state.x, state.method.y, state.method.v
        x, y, v = copied((x, y, v))
        self._engine.state = state._replace(x=x)
        batches = state.method.batches
        batches = batches._replace(share=_SHORTER * batches.share)
        self._set(y=y, v=v, batches=batches, tries=state.method.tries + 1)
        self._from_here()
        if int(state.method.tries) >= _TRIES:
            self._grow()

    def _mean(self, values: np.ndarray) -> tuple[float, float]:
        """The mean of f, and its error: none once every block of outer rows has been in it."""
        values = values[np.isfinite(values)].astype(float)
        missing = max(0.0, 1 - len(values) / self._blocks.outer)
        error = float(np.std(values)) * (missing / max(len(values), 1)) ** 0.5
        return float(np.mean(values)), error

    def _from_here(self) -> None:
        self._set(since=jnp.asarray(self._engine.records[0].rows, jnp.int32))

    def _grow(self) -> None:
        engine = self._engine
        self._from_here()
        self._set(whole=jnp.asarray(max(engine.k, 1), jnp.int32))
        self._use_all()
        engine.marks.levels[:] = NO_LEVELS
        problem, method, outer = engine.shared
        assert isinstance(method, Growing)
        assert isinstance(outer, Staged)
        state = method.renewed(problem, engine.state.x, engine.state.method)
        early, then = engine.state.outer
        assert isinstance(state.back, Point)
        went = norm(subtract(engine.state.x, state.back.x))
        then = outer.then.begun(outer.then.init(engine.state.x), went)
        engine.state = copied(engine.state._replace(method=state, outer=(early, then)))
        engine.compile()

    def _use_all(self) -> None:
        """From step `whole` on; a run that is given no number of steps may make so many of them."""
        method, outer = self._late
        self.is_whole, engine = True, self._engine
        engine.use(engine.shared._replace(method=method, outer=outer))
        engine.records[0].aside = (0, int(engine.state.method.since))
        steps = min(engine.goal.steps, int(engine.state.method.whole) + self._most)
        engine.goal = engine.goal._replace(steps=steps)

    def _set(self, **fields: Any) -> None:
        state = self._engine.state
        self._engine.state = state._replace(method=state.method._replace(**fields))


def entrywise(problem: Problem, batch: int, x: PyTree) -> Entrywise:
    """Steps of x on batches, by its unit.

    Between two measurements of the curvature an entry may move by twice its unit, in as many steps
    as there are draws that it is in.
    """
    few = min(max(1, EVERY * batch // problem.inner_samples), EVERY)
    draws = jax.tree.map(lambda _: EVERY, x)
    if problem.per_sample is not None:
        draws = eqx.tree_at(problem.per_sample, draws, replace_fn=lambda _: few)

    def length(unit: Array, draws: int) -> Array:
        return _REACH / float(np.sum(np.arange(1, draws + 1) ** -0.5)) * unit

    return Entrywise(jax.tree.map(length, units(x), draws))
