"""Loops that size themselves on a part of the samples, which grows until it is all of them."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from biloop.methods.aid import AID, AIDState
from biloop.methods.base import Info, Method
from biloop.oracles import Cost, SampleCount
from biloop.problem import Problem
from biloop.problem.data import count_samples
from biloop.samples import Blocks, Pair, Samples, as_key
from biloop.schedules.arguments import as_count, shown

_FACTOR = 16  # from one part to the next: with less, more programs are compiled than it saves
_BATCHES = 8  # that the smallest part has


class GrowingState(NamedTuple):
    """y and v, the rest of what the loops keep, and where the run is in growing.

    `part` is the number of the part, `starts` the outer steps at which parts began, `seen` are f on
    the part and on rows beyond it when it was lowest on the part, `idle` the looks since then, and
    `looked` how many rows were looked at since the last step, to be counted in the next one.
    """

    y: PyTree
    v: PyTree
    own: PyTree
    part: Int[Array, ""]
    starts: Int[Array, " parts"]
    seen: Float[Array, "2"]
    idle: Int[Array, ""]
    looked: Int[Array, ""]


class Growing(Method):
    """AID on some of the samples, the same in each step, then on sixteen times as many, and so on.

    On a part of the rows Φ is another function, but a deterministic one, so that nothing has to be
    set: its loops size themselves, and the outer step is that of full batches. `solve` goes on with
    a part as long as f falls half as much on other rows as on those of the part, and ends on all
    rows. It begins there where there are fewer than sixteen times eight batches, or where x has a
    row for each sample, of which a part would learn its own alone. Elsewhere it is AID on all rows.
    R. H. Byrd et al., Sample size selection in optimization methods for machine learning (2012);
    R. Bollapragada et al., A progressive batching L-BFGS method (2018).

    Parameters
    ----------
    method : AID
    batch : int
        An eighth of the fewest rows to begin with.
    key : jax.random.key or integer
        Says which rows are in a part.

    Examples
    --------
    >>> bl.Growing(bl.schemes.auto(), batch=64).batch
    64
    """

    method: AID
    batch: int = eqx.field(static=True, converter=as_count("batch"))
    key: Key[Array, ""] = eqx.field(default=0, converter=as_key)

    def __check_init__(self):
        if not isinstance(self.method, AID):
            raise TypeError(f"The method of Growing must be an AID, got {shown(self.method)}.")

    def parts(self, problem: Problem) -> list[Pair]:
        """The numbers of inner and outer rows, the fewest first; the last are all."""
        n, m = problem.inner_samples, problem.outer_samples
        fewest, found = _BATCHES * self.batch, [Pair(n, m)]
        if problem.per_sample is not None:
            return found
        while found[0].inner // _FACTOR >= fewest:
            n, m = found[0].inner // _FACTOR, found[0].outer // _FACTOR
            found.insert(0, Pair(n, max(m, min(fewest, problem.outer_samples))))
        return found

    def why_whole(self, problem: Problem) -> str:
        """Why the first part is all rows already."""
        n, fewest = problem.inner_samples, _FACTOR * _BATCHES * self.batch
        few = f"{n} are fewer than {_FACTOR * _BATCHES} batches of {self.batch}"
        marked = "x has a row for each of them"
        reason = few if n < fewest else marked
        return f"It used all inner samples from the first step on: {reason}."

    def rows(self, problem: Problem, part: Pair) -> Pair:
        """Which rows are in a part: those of a smaller one, and others."""
        return Pair(*(
            None if order is None or size == len(order) else np.sort(order[:size])
            for order, size in zip(self._orders(problem), part, strict=True)
        ))  # fmt: skip

    def beyond(self, problem: Problem, part: Pair) -> np.ndarray | None:
        """As many outer rows as a part has, none of them in it; None where it has all."""
        _, order = self._orders(problem)
        if order is None or part.outer == len(order):
            return None
        return np.sort(order[part.outer : 2 * part.outer])

    def _orders(self, problem: Problem) -> list[np.ndarray | None]:
        counts = zip(jax.random.split(self.key), (problem.inner_samples, problem.outer_samples))  # noqa: B905
        return [np.asarray(jax.random.permutation(key, n)) if n else None for key, n in counts]

    def init(self, problem, x, y):
        state = self.method.init(problem, x, y)
        if problem.windows[0] is None and problem.inner_samples:  # a part has a window
            Blocks(self.batch).check(problem.inner_samples, "inner_data")
        if len(parts := self.parts(problem)) > 1:
            blocks = Blocks(self.batch)
            outer = blocks if problem.outer_samples >= self.batch else Blocks(1)
            Samples(blocks, outer, self.key).check(problem, x, y)
        never = jnp.full(2, jnp.inf, jnp.result_type(float))
        zero, starts = jnp.zeros((), jnp.int32), jnp.zeros(len(parts), jnp.int32)
        return GrowingState(state.y, state.v, _rest(state), zero, starts, never, zero, zero)

    def __call__(self, problem, x, state, k):
        h, own, info = self.method(problem, x, state.own._replace(y=state.y, v=state.v), k)
        n = count_samples(problem.inner_data) or 1
        m = count_samples(problem.outer_data) or 1
        inner, products = (info.cost.gradients - 2) * n, info.cost.products * n
        spent = SampleCount(inner, 2 * m + state.looked, products)
        info = Info(info.value, Cost(0, 0), info.result, info.residuals, spent)
        nothing = jnp.zeros_like(state.looked)
        return h, state._replace(y=own.y, v=own.v, own=_rest(own), looked=nothing), info

    def renewed(self, problem: Problem, x: PyTree, state: GrowingState) -> GrowingState:
        """The state on other samples: loops that knew how far y is from y*(x) do not any more."""
        return state._replace(own=_rest(self.method.init(problem, x, state.y)))

    @property
    def counts_rows(self):
        return True

    @property
    def refines(self):
        return self.method.refines

    @property
    def follows(self):
        return self.method.follows

    def stability(self, L):
        return self.method.stability(L)


def _rest(state: AIDState) -> AIDState:
    """The state without y and v."""
    return state._replace(y=(), v=())
