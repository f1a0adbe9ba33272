"""y trained anew with the x that was learned, where training it further does not help any more.

Where g is not convex, y depends on the way it came, and what it has fit it does not forget: from
one y to the next a run learns about x only as long as y is in the making. Trained from its start
with the x so far it comes farther (P. Vicol et al., On implicit bias in overparameterized bilevel
optimization, 2022: warm starts overfit y, cold ones do not).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop import vectors
from biloop.loops.results import Status
from biloop.run.buffers import copied
from biloop.run.engine import Engine
from biloop.run.sharding import place

MOST_STEPS_BACK = 4  # in a row, after which y has nothing more to say of x
_LARGE = 10**7  # entries of y: beyond, no vectors like it are kept
LESS = 1e-2  # of f: what training y anew must bring
_PATIENCE = 2  # how often in a row it may bring less


class Kept(NamedTuple):
    """The best end of a training of y: x, the method's state, f, and k.

    And when the last one began, and how many have brought nothing since then.
    """

    x: PyTree
    method: PyTree
    value: np.ndarray
    k: np.ndarray
    began: np.ndarray
    idle: np.ndarray


class Restarts:
    """Begins y again where a run on a g that is not convex gets no further.

    A run ends when that has brought nothing; it ends at the best of these trainings. The engine
    keeps what was `Kept`, at first the `start`, () where y never begins again.
    """

    def __init__(self, engine: Engine, mesh: Any) -> None:
        self._engine, self._mesh = engine, mesh
        self.start: Kept | tuple[()] = ()
        state, (_, method, outer) = engine.state, engine.shared
        small = vectors.size(state.method.y) <= _LARGE
        if outer.finds_its_size and not method.counts_rows and small:
            self.start = engine.kept = Kept(state.x, state.method, *numbers(np.inf, 0, 0, 0))

    @property
    def steps_back(self) -> int:
        """How many of the last steps in a row were taken back, since y began the last time."""
        columns, kept = self._engine.records[0].judged(), self._engine.kept
        since = columns["k"] >= (int(kept.began) if kept else 0)
        good = columns["result"][since][::-1] != Status.UNDONE
        return int(np.argmax(good)) if good.any() else len(good)

    def again(self) -> bool:
        """Begin y again, if it is worth it; otherwise the run is at its end."""
        engine = self._engine
        value, last = engine.go_back(), engine.k - self.steps_back - 1
        if not engine.kept:
            return False
        kept = Kept(*engine.kept)
        best, began = float(kept.value), int(kept.began)
        idle = 0 if value < best - LESS * abs(value) else int(kept.idle) + 1
        if value < best:
            x, method = copied((engine.state.x, engine.state.method))
            least, k = numbers(value, last)
            kept = kept._replace(x=x, method=method, value=least, k=k)
        # From an x that has not moved it would all come again. (The first y is trained for longer.)
        stayed = last == began > 0
        worth = idle < _PATIENCE and not stayed
        if worth:
            x, outer = engine.state.x, engine.shared.outer
            assert self.start
            state = engine.state._replace(method=self.start.method, outer=outer.init(x))
            engine.begin(place(state, self._mesh, "The start"))
            engine.went_back = False
            now, times = numbers(engine.k, idle)
            kept = kept._replace(began=now, idle=times)
        engine.kept = kept
        return worth

    def best(self, value: float) -> tuple[float, str]:
        """Where the end of a run is no better than what was kept: f there, and a sentence."""
        engine = self._engine
        if not (engine.kept and engine.kept.value < value):
            return value, ""
        kept = Kept(*engine.kept)
        engine.begin(engine.state._replace(x=kept.x, method=kept.method))
        return float(kept.value), (
            f"y was trained anew from its start with the x so far, the last time from k = "
            f"{int(kept.began)} on; x, y and the value are those of k = {int(kept.k)}, the best "
            f"end of these trainings."
        )


def numbers(*numbers: float) -> list[np.ndarray]:
    """As a checkpoint has them."""
    kinds = {int: np.int32, float: jnp.result_type(float)}
    return [np.asarray(number, kinds[type(number)]) for number in numbers]
