"""The protocol of an estimator: a mean over all samples from few of them."""

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Array, Bool, Int, Key, PyTree

from biloop.samples import Pair
from biloop.schedules import Count
from biloop.schedules.arguments import Described


class Compact(NamedTuple):
    """A quantity on the rows drawn as `expand(numbers) + rest`, with `expand` linear.

    `numbers` are few where a model is linear, and `rest` has no samples: None for nothing.
    """

    numbers: Pair
    expand: Callable[[Pair], Pair]
    rest: Pair | None


class Draw(NamedTuple):
    """A quantity that is a mean over samples, as a step can see it: each is evaluated if called.

    `new` is on the rows that were drawn, `old` on the same rows at the last point, and `all` on all
    rows. Each is a `Pair`: what is summed over inner samples, and over outer samples. `block` are
    the numbers of the blocks, `blocks` how many there are, and `key` is for decisions of chance.
    `within` an outer step, between the draws that may see them, it is not time for all rows.
    `in_numbers` is another form of `new`, for tables.
    """

    new: Callable[[], Pair]
    old: Callable[[], Pair]
    all: Callable[[], Pair]
    block: Pair
    blocks: Pair
    key: Key[Array, ""]
    within: bool | Bool[Array, ""] = False
    in_numbers: Callable[[], Compact] | None = None

    def compact(self) -> Compact:
        """What `new` is, in a form that takes little room in a table."""
        if self.in_numbers is not None:
            return self.in_numbers()
        return Compact(self.new(), lambda numbers: numbers, None)


class Evaluations(NamedTuple):
    """How many times an estimator evaluated its quantity on the rows drawn, and on all rows."""

    drawn: int | Int[Array, ""]
    full: int | Int[Array, ""] = 0


class Estimator(Described):
    """A direction from draws: `init` and `__call__`. With all rows drawn it must be `new`."""

    @property
    def looks_back(self) -> bool:
        """Whether it uses the old point, which a method then has to keep."""
        return False

    @property
    def needs_blocks(self) -> bool:
        """Whether it keeps something for each block, so that rows must be drawn in blocks."""
        return False

    @property
    def needs_all(self) -> bool:
        """Whether it evaluates all rows now and then, so that they must be at hand."""
        return False

    @abstractmethod
    def init(self, direction: Pair, blocks: Pair) -> PyTree:
        """The state of the first step; `direction` has the shapes of what is estimated."""

    @abstractmethod
    def __call__(self, draw: Draw, state: PyTree, k: Count) -> tuple[Pair, PyTree, Evaluations]:
        """The direction in step k, and the state of the next one."""
