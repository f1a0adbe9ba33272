"""The protocol of a sampler, and the pair of them that a method draws from."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key, PyTree

from biloop.oracles import inner_value, outer_value
from biloop.problem import Problem, refuse_kind
from biloop.problem.data import count_samples
from biloop.problem.rows import Block, Rows, Slice
from biloop.samples.chance import once, stream
from biloop.schedules.arguments import Described, as_seed, is_concrete, shown
from biloop.vectors import eps, largest

_PRODUCTS_PER_DRAW = 1021  # beyond it the products of one draw meet rows of those of the next
_SLACK = 100.0  # times the rounding of a sum over the samples
_MOST_BLOCKS = 64  # on which a loss is looked at


class Sampler(Described):
    """Which rows a step sees: a function of a key, the number t of the draw, and all their number.

    Nothing is remembered between draws, so a run can be resumed at any t, and many runs go side by
    side. A new one is `check`, `batch`, `blocks` and `__call__`.
    """

    @abstractmethod
    def check(self, samples: int, name: str) -> None:
        """Refuse data of so many samples, with the numbers."""

    @abstractmethod
    def batch(self, samples: int) -> int:
        """The number of rows in a draw."""

    @abstractmethod
    def blocks(self, samples: int) -> int | None:
        """The number of fixed blocks that rows are drawn in; None where there are no such."""

    @abstractmethod
    def __call__(self, key: Key[Array, ""], t: Int[Array, ""], samples: int) -> Rows:
        """The rows of draw t."""

    def covered(self, samples: int) -> Rows | None:
        """The rows that are ever drawn; None for all of them."""
        return None


class Pair(NamedTuple):
    """One thing for the inner data and one for the outer."""

    inner: Any
    outer: Any


class Samples(eqx.Module):
    """The draws of a method: a sampler for each level, and the key that all randomness is from.

    Parameters
    ----------
    inner, outer : Sampler
        E.g. `Blocks(64)`.
    key : jax.random.key or integer
        Another key is another run; `sweep` varies it by "samples.key".

    Examples
    --------
    >>> bl.Samples(bl.Blocks(8), bl.All(), key=0)
    Samples(Blocks(size=8), All())
    """

    inner: Sampler
    outer: Sampler
    key: Key[Array, ""] = eqx.field(default=0, converter=lambda key: as_key(key))

    def rows(self, problem: Problem, t: Any, u: Any = None) -> Pair:
        """The rows of inner draw t and outer draw u (t unless given)."""
        draws = zip((t, t if u is None else u), _counts(problem), problem.windows, strict=True)
        levels = list(enumerate(draws))
        return once(lambda: Pair(*(
            self.numbered(level, n)(t) if window is None else window.rows(t)
            for level, (t, n, window) in levels
        )), t)  # fmt: skip

    def numbered(self, level: int, samples: int) -> Callable[[Any], Rows]:
        """The rows of a draw as a function of its number, for the inner (0) or outer (1) data."""
        sampler = (self.inner, self.outer)[level]
        return lambda t: sampler(stream(self.key, level + 1), t, samples)

    def draws(self, problem: Problem, first: Any, count: Any, u: Any) -> Pair:
        """Inner draw first + i as a function of i, which is below count, and outer draw u.

        If their number is known all are drawn at once, which takes as long as one of them.
        """
        if not isinstance(count, int):
            one = lambda i: self.rows(problem, first + i).inner  # noqa: E731
            return Pair(one, self.rows(problem, first, u).outer)
        places = first + jnp.arange(max(count, 1), dtype=jnp.int32)
        rows = jax.vmap(lambda t: self.rows(problem, t, u), out_axes=Pair(0, None))(places)
        return Pair(lambda i: jax.tree.map(lambda leaf: leaf[i], rows.inner), rows.outer)

    def product_rows(self, problem: Problem, t: Any, i: Any) -> Rows:
        """The inner rows of product i in a linear loop of draw t."""
        if problem.windows[0] is not None:
            raise TypeError("A stream has no batches out of order for the products of a series.")
        t, i = jnp.asarray(t, jnp.uint32), jnp.asarray(i, jnp.uint32)
        number = t * jnp.uint32(_PRODUCTS_PER_DRAW) + i
        return once(lambda: self.inner(stream(self.key, 3), number, problem.inner_samples), t)

    def chance(self, t: Any) -> Key[Array, ""]:
        """A key for other decisions of draw t."""
        return jax.random.fold_in(stream(self.key, 4), jnp.asarray(t, jnp.uint32))

    def sizes(self, problem: Problem) -> Pair:
        """The number of rows in a draw."""
        return Pair(
            self.inner.batch(problem.inner_samples), self.outer.batch(problem.outer_samples)
        )

    def blocks(self, problem: Problem) -> Pair:
        """The number of blocks, None where rows are drawn otherwise, or nobody knows it."""
        levels = zip((self.inner, self.outer), _counts(problem), problem.windows, strict=True)
        return Pair(*(
            None if window is not None and n == 0 else sampler.blocks(n)
            for sampler, n, window in levels
        ))  # fmt: skip

    def all_sizes(self, problem: Problem) -> Pair:
        """The number of rows that are ever drawn."""
        sizes, blocks = self.sizes(problem), self.blocks(problem)
        each = zip(sizes, blocks, _counts(problem), strict=True)
        return Pair(*(n or 1 if count is None else size * count for size, count, n in each))

    def all(self, problem: Problem) -> Problem:
        """The problem on all rows that are ever drawn."""
        if any(window is not None for window in problem.windows):
            raise TypeError("A stream has not all rows at hand.")
        inner = self.inner.covered(problem.inner_samples)
        outer = self.outer.covered(problem.outer_samples)
        return problem if inner is None and outer is None else problem.batch(inner, outer)

    def check(self, problem: Problem, x: PyTree, y: PyTree) -> None:
        """Refuse samplers that do not fit the data, and losses that are no means over samples."""
        refuse_kind(problem, ("minimum",), "A method that draws rows", "Use AID or ITD.")
        samplers, names = (self.inner, self.outer), ("inner_data", "outer_data")
        for sampler, n, name, window in zip(
            samplers, _counts(problem), names, problem.windows, strict=True
        ):
            if n or window is None:  # of a stream without a length there is nothing to check
                sampler.check(n, name)
        if problem.per_sample is not None:
            _check_per_sample(problem, x)
        if problem.windows[0] is problem.windows[1] is None:
            _check_batch(self, problem, x, y)
        if all(map(is_concrete, jax.tree.leaves((problem, x, y)))):
            _check_mean(self, problem, x, y)

    def __repr__(self) -> str:
        """Without the key."""
        return f"Samples({self.inner}, {self.outer})"


def as_key(key: Any) -> Key[Array, ""]:
    """A key of `jax.random`, from itself or from an integer."""
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.ndim:
            raise TypeError(f"key must be a single key, got an array of shape {key.shape}.")
        return key
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        return jax.random.key(as_seed("key")(key))
    if isinstance(key, jax.Array | np.ndarray) and key.dtype == jnp.uint32:
        return jax.random.wrap_key_data(jnp.asarray(key))
    raise TypeError(f"key must be a key such as jax.random.key(0) or an integer, got {shown(key)}.")


def _check_per_sample(problem: Problem, x: PyTree) -> None:
    assert problem.per_sample is not None
    n = problem.inner_samples
    for leaf in jax.tree.leaves(problem.per_sample(x)):
        if jnp.ndim(leaf) == 0 or len(leaf) != n:
            raise ValueError(
                f"per_sample marks a leaf of x with shape {jnp.shape(leaf)}, but there are {n} "
                f"inner samples: it must have a row for each of them."
            )


def _check_batch(samples: Samples, problem: Problem, x: PyTree, y: PyTree) -> None:
    """A loss must take other numbers of rows than all of them."""
    batch = problem.batch(*samples.rows(problem, jnp.zeros((), jnp.int32)))
    for name, value in (("inner", inner_value), ("outer", outer_value)):
        try:
            eqx.filter_eval_shape(value, batch, x, y)
        except (TypeError, ValueError, IndexError) as error:
            rows = getattr(samples.sizes(problem), name)
            raise ValueError(
                f"{name} can be evaluated on all samples, but not on a batch of {rows}: {error} Is "
                f"there an entry of x for each sample? Problem(…, per_sample=lambda x: x) hands a "
                f"batch its own."
            ) from error


def _check_mean(samples: Samples, problem: Problem, x: PyTree, y: PyTree) -> None:
    """A loss must be the mean of itself over the blocks, or batches follow another problem."""
    for name, size in zip(("inner", "outer"), _block_sizes(samples, problem), strict=True):
        n = count_samples(getattr(problem, f"{name}_data"))  # of a stream, what is at hand
        count = min(n // size, _MOST_BLOCKS)
        if count < 2:
            continue
        with jax.ensure_compile_time_eval():  # `init` may be inside jit, where all is traced
            whole, mean = map(float, _two_ways(problem, x, y, name, size, count))
        scale = max(abs(whole), abs(mean))
        if abs(whole - mean) > _SLACK * eps(y) ** 0.75 * scale and np.isfinite(scale):
            raise ValueError(
                f"{name} must be a mean over its samples: on {count * size} of them it is "
                f"{whole:.8g}, but on {count} blocks of these it is {mean:.8g} on average. Take "
                f"jnp.mean instead of jnp.sum over samples (terms without samples, such as "
                f"penalties, are fine)."
            )


def _block_sizes(samples: Samples, problem: Problem) -> Pair:
    """The rows of a block; where rows are drawn one by one, halves of the data at most."""
    sizes, blocks = samples.sizes(problem), samples.blocks(problem)
    counts = zip(sizes, blocks, _counts(problem), strict=True)
    return Pair(*(
        max(1, min(size, n // 2)) if count is None and n else size for size, count, n in counts
    ))  # fmt: skip


def _counts(problem: Problem) -> Pair:
    return Pair(problem.inner_samples, problem.outer_samples)


@eqx.filter_jit
def _two_ways(
    problem: Problem, x: PyTree, y: PyTree, name: str, size: int, count: int
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The loss on the first so many blocks, and its mean over them, near y."""
    value = inner_value if name == "inner" else outer_value
    y = _near(y)  # at y itself, zero say, both may agree by accident

    def on(rows: Rows) -> Float[Array, ""]:
        return value(problem.batch(*((rows, None) if name == "inner" else (None, rows))), x, y)

    mean = jnp.mean(lax.map(lambda i: on(Block(i, size)), jnp.arange(count, dtype=jnp.int32)))
    return on(Slice(0, size * count)), mean


def _near(y: PyTree) -> PyTree:
    size = largest(y)
    scale = 0.1 * jnp.where(size > 0, size, jnp.ones_like(size))

    def moved(leaf: Array) -> Array:
        waves = jnp.cos(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape)
        return leaf + scale.astype(leaf.dtype) * waves

    return jax.tree.map(moved, y)
