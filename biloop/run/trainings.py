"""y trained by momentum, from its start again and again, with the x that was learned so far."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop.loops.results import FIRST_FAILURE
from biloop.run.buffers import copied
from biloop.run.engine import Engine
from biloop.run.restarts import LESS, Kept, numbers
from biloop.run.step import State

_FEWEST = 4  # outer steps without a smaller f, after which y begins again ...
_SHARE = 0.5  # ... or so many of those of this training until its best, if that is more
_PATIENCE = 3  # how often in a row beginning again may bring nothing
_SHORTER = 0.5  # the steps of y after a training that has brought nothing ...
_SHORT = 0.1  # ... and where y has left the finite numbers


def nothing_kept(method: PyTree, k: int) -> Kept:
    """What is kept where the first training begins, at step k."""
    return Kept((), method, *numbers(np.inf, k, k, 0))


class Trainings:
    """Begins y again where f has not become smaller for a while, and keeps the best point.

    No step is taken back. Begins with the state of the engine, which is that of `Momentum`; the
    engine keeps what was `Kept`, whose x is in the state of the method.
    """

    def __init__(self, engine: Engine, start: PyTree) -> None:
        self._engine, self._start = engine, start

    def look(self) -> bool:
        """Keep the last point if f is smallest there, and begin y again if it is time.

        False where the run is at its end, as that has brought nothing.
        """
        engine, kept = self._engine, Kept(*self._engine.kept)
        columns = engine.records[0].judged()
        values = np.where(np.isfinite(columns["value"]), columns["value"], np.inf)
        earlier = columns["k"] < int(kept.began)
        before, since = values[earlier], values[~earlier]
        if len(since) == 0:
            return True
        if since[-1] < kept.value:
            value, k = numbers(float(since[-1]), int(columns["k"][-1]))
            engine.kept = kept = kept._replace(method=copied(engine.state.method), value=value, k=k)
        failed, best = columns["result"][-1] >= FIRST_FAILURE, int(np.argmin(since))
        if not failed and len(since) - 1 - best < max(_FEWEST, _SHARE * (best + 1)):
            return True
        low = np.min(before, initial=np.inf)
        idle = 0 if since[best] + LESS * abs(since[best]) < low else int(kept.idle) + 1
        if idle >= _PATIENCE:
            return False
        self._again(kept, idle, _SHORT if failed else _SHORTER if idle else 1.0)
        return True

    def _again(self, kept: Kept, idle: int, share: float) -> None:
        engine = self._engine
        state, k = engine.state, engine.records[0].rows
        method = copied(self._start)._replace(step_size=share * state.method.step_size)
        # The x of another y may need long steps again.
        outer = copied(engine.shared.outer.init(state.x))
        engine.state = State(jnp.asarray(k, state.k.dtype), state.x, method, outer)
        began, times = numbers(k, idle)
        engine.kept = kept._replace(began=began, idle=times)

    def best(self) -> tuple[float, str]:
        """Go to the best point: f there, and a sentence."""
        engine, kept = self._engine, Kept(*self._engine.kept)
        method = copied(kept.method)
        engine.state = engine.state._replace(x=copied(method.x), method=method)
        return float(kept.value), (
            f"y was trained by momentum, from its start on with the x so far, the last time from "
            f"k = {int(kept.began)}, and h is that of one such step; x, y and the value are those "
            f"of k = {int(kept.k)}, where f is smallest: y is on its way there, and does not "
            f"minimise g(x, ·)."
        )
