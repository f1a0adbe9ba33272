"""The three directions of a bilevel method, as means over samples, and their estimates.

    D_y = ∇_y g    D_v = ∇²_y g v − ∇_y f    D_x = ∇_x f − ∇_x∇_y g v

What is a mean over inner samples and what is one over outer samples is kept apart: the two are
drawn apart, and SAGA has a table for each.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree

from biloop.loops.results import Code, Status, code_if, first_failure
from biloop.methods.base import Method
from biloop.methods.derivatives import Derivatives
from biloop.oracles import SampleCount, outer_gradients
from biloop.problem import Problem
from biloop.samples import Pair, Samples
from biloop.samples.estimators import Compact, Draw, Estimator, Plain
from biloop.schedules import Count
from biloop.vectors import subtract

NAMES = ("y", "v", "x")


class Point(NamedTuple):
    """Where directions are evaluated."""

    x: PyTree
    y: PyTree
    v: PyTree


class Source(NamedTuple):
    """The problem on the rows of a draw, and on those of product i of a linear loop within it."""

    problem: Problem
    products: Callable[[Int[Array, ""]], Problem]


Evaluate = Callable[[Source, Any], Pair]  # of a `Point`, or what a method has for one


def adjoint_parts(
    derivatives: Derivatives, names: Sequence[str], source: Source, point: Point
) -> Pair:
    """The parts of the directions with these names, at a point that has a v."""
    gradient, hessian, cross = derivatives(source.problem, point.x, point.y)
    _, f_x, f_y = outer_gradients(source.problem, point.x, point.y)
    inner = {"y": lambda: gradient, "v": lambda: hessian(point.v), "x": lambda: cross(point.v)}
    outer = {"v": f_y, "x": f_x}
    return Pair(
        {name: inner[name]() for name in names},
        {name: outer[name] for name in names if name in outer},
    )


def joined(parts: Pair) -> dict[str, PyTree]:
    """The directions, from what is summed over inner and over outer samples."""
    inner, outer = parts
    signs: dict[str, Callable[[], PyTree]] = {
        "y": lambda: inner["y"],
        "v": lambda: subtract(inner["v"], outer["v"]),
        "x": lambda: subtract(outer["x"], inner["x"]) if "x" in inner else outer["x"],
    }
    return {name: signs[name]() for name in NAMES if name in inner or name in outer}


def adjoint_price(derivatives: Derivatives, names: Sequence[str], sizes: Pair) -> SampleCount:
    """What one evaluation of these directions costs on so many rows."""
    price = SampleCount(inner=sizes.inner if "y" in names else 0)
    for name in ("v", "x"):
        if name in names:
            price = price + SampleCount(outer=sizes.outer) + derivatives.price(sizes.inner)
    return price


def estimate(
    estimator: Estimator,
    evaluate: Evaluate,
    price: Callable[[Pair], SampleCount],
    drawn: "Drawn",
    points: tuple[Any, Any],
    state: PyTree,
    k: Count,
    join: Callable[[Pair], Any] = joined,
    in_numbers: Callable[[], Compact] | None = None,
) -> tuple[Any, PyTree, SampleCount]:
    """Directions at the first of the points, the state of the next step, and what it took."""
    here, last = points
    draw = Draw(
        new=lambda: evaluate(drawn.source, here),
        old=lambda: evaluate(drawn.source, last),
        all=lambda: evaluate(drawn.whole(), here),
        block=Pair(drawn.rows.inner.block, drawn.rows.outer.block),
        blocks=drawn.blocks,
        key=drawn.key,
        within=drawn.within,
        in_numbers=in_numbers,
    )
    parts, state, times = estimator(draw, state, k)
    spent = price(drawn.sizes).times(times.drawn)
    if not (isinstance(times.full, int) and times.full == 0):
        spent = spent + price(drawn.all_sizes).times(times.full)
    return join(parts), state, spent


class Drawn(NamedTuple):
    """Draw t of the samples of a problem, with all that estimators may ask for."""

    source: Source
    whole: Callable[[], Source]  # called where it is used: all rows are too many to be cut out
    rows: Pair
    sizes: Pair
    all_sizes: Pair
    blocks: Pair
    key: Key[Array, ""]
    within: bool | Bool[Array, ""]


def draw(
    samples: Samples,
    problem: Problem,
    t: Any,
    u: Any = None,
    within: bool | Bool[Array, ""] = False,
    rows: Pair | None = None,
) -> Drawn:
    """Inner draw t and outer draw u (t unless given); `rows` are these, if they are known."""
    rows = samples.rows(problem, t, u) if rows is None else rows

    def whole() -> Source:
        everything = samples.all(problem)
        return Source(everything, lambda i: everything)

    def products(i: Int[Array, ""]) -> Problem:
        return problem.batch(samples.product_rows(problem, t, i), None)

    return Drawn(
        source=Source(problem.batch(*rows), products),
        whole=whole,
        rows=rows,
        sizes=samples.sizes(problem),
        all_sizes=samples.all_sizes(problem),
        blocks=samples.blocks(problem),
        key=samples.chance(t),
        within=within,
    )


def judged(
    inner: float | Array,
    outer: float | Array,
    linear: float | Array | None = None,
    bad_steps: bool | Array = False,
) -> Code:
    """The first failure: a number of steps that is none, or a size or f that is not finite."""
    sizes = (inner, outer, linear)
    statuses = (Status.INNER_NOT_FINITE, Status.OUTER_NOT_FINITE, Status.LINEAR_NOT_FINITE)
    return first_failure(
        code_if(jnp.asarray(bad_steps), Status.BAD_SCHEDULE),
        *(code_if(~jnp.isfinite(a), s) for a, s in zip(sizes, statuses) if a is not None),  # noqa: B905
    )


class Drawing(Method):
    """A method that draws the rows it sees from its `samples`: a field of its own, at any place."""

    @property
    def sampled(self) -> Samples:
        return self.samples  # pyright: ignore[reportAttributeAccessIssue]


def check_samples(samples: Any) -> None:
    """Refuse what draws no rows."""
    if not isinstance(samples, Samples):
        raise TypeError(f"samples must be Samples(inner, outer, key), got {samples!r}.")


def check_estimator(estimator: Estimator, samples: Samples, name: str) -> None:
    """Refuse an estimator that the way of drawing does not allow."""
    if not isinstance(estimator, Estimator):
        raise TypeError(f"{name} must be an estimator such as {Plain()}, got {estimator!r}.")
    for sampler in (samples.inner, samples.outer):
        if estimator.needs_blocks and sampler.blocks(10**9) is None:
            raise ValueError(
                f"{type(estimator).__name__} keeps a value for each block of rows, but {sampler} "
                f"draws none: use Blocks."
            )
