"""Batches first, as long as they pay, and then loops that size themselves on all samples."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from biloop.methods.aid import AID, AIDState
from biloop.methods.base import Info, Method
from biloop.methods.untuned import EVERY, Untuned, UntunedState
from biloop.oracles import Cost, SampleCount
from biloop.problem import Problem
from biloop.problem.data import count_samples
from biloop.samples import All, Blocks, Samples, as_key
from biloop.schedules.arguments import as_count, as_flag, shown

_FEWEST = 256  # batches: with fewer, full gradients cost little more


class Point(NamedTuple):
    """x, y and v that a run can go back to."""

    x: PyTree
    y: PyTree
    v: PyTree


class GrowingState(NamedTuple):
    """y and v, the rest of what both methods keep, and where the run is.

    `back` is the last point where f was looked at and had fallen; `level` are the first f, that
    of the last two looks, its error and the length of D_y then. f is looked at next `window` rows
    of the record after row `since`. All samples are used from step `whole` on.
    """

    y: PyTree
    v: PyTree
    own: PyTree
    batches: UntunedState | tuple[()]
    back: Point | tuple[()]
    level: Float[Array, "5"]
    since: Int[Array, ""]
    window: Int[Array, ""]
    tries: Int[Array, ""]
    whole: Int[Array, ""]


class Growing(Method):
    """A single loop on batches that nobody tunes, and AID on all samples once that has stopped.

    On batches it is `Untuned`, with steps of x that are entrywise. `solve` looks at f, the mean
    over the batches of twice as many steps each time. As long as it falls the run goes on; where it
    does not, those of y and v are half as long, from the last look if f has risen. After the
    fifth time, or after b/8 passes of b batches each (b where samples have their own entries of x),
    it uses all rows. It begins with these where b < 256. Sweeps refuse it; called by itself it is
    AID on all rows.

    Parameters
    ----------
    method : AID
    batch : int
        The inner rows of a batch. The outer ones are as many, or fewer where there are fewer: a
        pass over both takes as many batches.
    key : jax.random.key or integer
        Says which rows are in a batch.
    on_batches : bool
        Where the run is, for `solve` to say.

    Examples
    --------
    >>> bl.Growing(bl.schemes.auto(), batch=64).batch
    64
    """

    method: AID
    batch: int = eqx.field(static=True, converter=as_count("batch"))
    key: Key[Array, ""] = eqx.field(default=0, converter=as_key)
    on_batches: bool = eqx.field(default=False, static=True, converter=as_flag("on_batches"))

    def __check_init__(self):
        if not isinstance(self.method, AID):
            raise TypeError(f"The method of Growing must be an AID, got {shown(self.method)}.")

    def takes_batches(self, problem: Problem) -> bool:
        """Whether there are enough samples to begin with batches of them."""
        smooth = problem.kind == "minimum" and problem.start is None
        return smooth and problem.inner_samples >= _FEWEST * self.batch

    def why_whole(self, problem: Problem) -> str:
        """Why all rows are used from the beginning."""
        few = f"{problem.inner_samples} are fewer than {_FEWEST} batches of {self.batch}"
        enough = problem.inner_samples >= _FEWEST * self.batch
        reason = "y is no minimum that can be carried on" if enough else few
        return f"It used all inner samples from the first step on: {reason}."

    def untuned(self, problem: Problem) -> Untuned:
        """The single loop on batches."""
        n, m = problem.inner_samples, problem.outer_samples
        fewer = max(1, min(self.batch, round(self.batch * m / n), m)) if n else 1
        outer = Blocks(fewer) if m else All()
        return Untuned(Samples(Blocks(self.batch), outer, self.key))

    def init(self, problem, x, y):
        state = self.method.init(problem, x, y)
        if problem.windows[0] is None and problem.inner_samples:
            Blocks(self.batch).check(problem.inner_samples, "inner_data")
        batches = ()
        if self.takes_batches(problem):
            batches = self.untuned(problem).init(problem, x, y)._replace(y=(), v=())
        zero, never = jnp.zeros((), jnp.int32), jnp.full(5, jnp.inf, jnp.result_type(float))
        back = Point(x, state.y, state.v) if batches else ()
        return GrowingState(
            state.y, state.v, _rest(state), batches, back, never, zero, zero + 2 * EVERY, zero, zero
        )  # fmt: skip

    def __call__(self, problem, x, state, k):
        if self.on_batches:
            assert isinstance(state.batches, UntunedState)
            batches = state.batches._replace(y=state.y, v=state.v)
            h, batches, info = self.untuned(problem)(problem, x, batches, k)
            y, v, batches = batches.y, batches.v, batches._replace(y=(), v=())
            return h, state._replace(y=y, v=v, batches=batches), info
        h, own, info = self.method(problem, x, state.own._replace(y=state.y, v=state.v), k)
        n = count_samples(problem.inner_data) or 1
        m = count_samples(problem.outer_data) or 1
        spent = SampleCount((info.cost.gradients - 2) * n, 2 * m, info.cost.products * n)
        info = Info(info.value, Cost(0, 0), info.result, info.residuals, spent)
        return h, state._replace(y=own.y, v=own.v, own=_rest(own)), info

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
