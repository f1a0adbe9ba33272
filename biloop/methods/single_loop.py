"""Single-loop methods: y, v and x move together along directions at one point."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, PyTree

from biloop import vectors
from biloop.linear import Stepped
from biloop.loops.results import FIRST_FAILURE
from biloop.methods.base import Info, Residuals, checked_start
from biloop.methods.compact import check_linear, compact, is_linear
from biloop.methods.derivatives import Autodiff, Derivatives
from biloop.methods.directions import (
    NAMES,
    Drawing,
    Drawn,
    Point,
    Source,
    adjoint_parts,
    adjoint_price,
    check_estimator,
    check_samples,
    draw,
    estimate,
    judged,
)
from biloop.methods.series import series, series_price
from biloop.oracles import Cost, SampleCount, inner_gradient, outer_value
from biloop.problem import Problem
from biloop.samples import Pair, Samples
from biloop.samples.estimators import Estimator, Plain
from biloop.schedules import Count, Schedule, as_number, number_at
from biloop.schedules.arguments import as_length, shown
from biloop.vectors import add_scaled, norms, zeros_like


class SingleLoopState(NamedTuple):
    """y and v, the last point where an estimator looks back, what estimators keep, draws so far."""

    y: PyTree
    v: PyTree
    last: PyTree
    estimates: tuple[PyTree, ...]
    draws: Int[Array, ""]


class SingleLoop(Drawing):
    """One step for each of y, v and x, from estimates of their directions at (x, y, v).

    y ← y − α D_y,   v ← v − η D_v,   h = D_x

    With `linear`, v is no variable: D_x takes it from a linear loop of its own, from v = 0 on rows
    of its own. With `moves` y and v make so many steps at the new x first, and none beside it, as
    in VRBO: D_x is then where they led.

    Parameters
    ----------
    samples : Samples
        Which rows a step sees.
    inner_step, linear_step : number or schedule of k
        α and η.
    estimators : Estimator or mapping
        One for all directions, or for some: `{"y": Saga(), "vx": Storm(0.1)}`. Directions that are
        named together share their evaluations.
    derivatives : Derivatives
        `Autodiff()` or `Differences(radius)`.
    linear : Neumann or RandomNeumann, optional
    moves : int

    Examples
    --------
    >>> samples = bl.Samples(bl.Blocks(8), bl.Blocks(8), key=0)
    >>> bl.SingleLoop(samples, 0.1, 0.1, {"yv": bl.Saga(), "x": bl.Storm(0.1)}).estimators
    {'x': Storm(weight=0.1), 'yv': Saga()}
    """

    samples: Samples
    inner_step: Schedule = eqx.field(converter=as_number("inner_step"))
    linear_step: Schedule | None = eqx.field(
        default=None, converter=lambda s: None if s is None else as_number("linear_step")(s)
    )
    estimators: dict[str, Estimator] = eqx.field(
        default_factory=Plain, converter=lambda given: _by_name(given)
    )
    derivatives: Derivatives = eqx.field(default_factory=Autodiff)
    linear: Stepped | None = None
    moves: int = eqx.field(default=0, static=True, converter=as_length("moves", minimum=0))

    def __check_init__(self):
        check_samples(self.samples)
        if self.linear is None and self.linear_step is None:
            raise ValueError("SingleLoop needs the step size of v, linear_step, or a linear loop.")
        if self.linear is not None and not isinstance(self.linear, Stepped):
            raise TypeError(
                f"Each step of the linear loop meets another H, which {self.linear!r} cannot take: "
                f"use Neumann or RandomNeumann."
            )
        if self.linear is not None and self.linear_step is not None:
            raise ValueError(
                f"linear_step is for a v that is carried on, but with {self.linear!r} there is "
                f"none: give one of the two."
            )
        named = "".join(self.estimators)
        named = named if self.linear is None else named.replace("v", "")
        if sorted(named) != sorted(self._names):
            raise ValueError(
                f"Each direction ({', '.join(self._names)}) must have one estimator, got "
                f"{shown(self.estimators)}."
            )
        for names, estimator in self.estimators.items():
            check_estimator(estimator, self.samples, f"estimators[{names!r}]")

    def init(self, problem, x, y):
        x, y = checked_start(problem, x, y)
        self.samples.check(problem, x, y)
        v, count = zeros_like(y), self.samples.blocks(problem)
        point = Point(x, y, v)
        source = Source(problem, lambda i: problem)
        drawn = lambda: draw(self.samples, problem, _zero())  # noqa: E731
        estimates = []
        for names, estimator in self.estimators.items():
            shapes = [eqx.filter_eval_shape(self._evaluate(names, 0), source, point)]
            if self._has_numbers(problem, estimator):
                check_linear(problem, x, y)
                numbers = lambda names=names: compact(names, drawn(), point).numbers  # noqa: E731
                shapes.append(eqx.filter_eval_shape(numbers))
            estimates.append(estimator.init(shapes[0], count, *shapes[1:]))
        return SingleLoopState(y, v, point if self._looks_back else (), tuple(estimates), _zero())

    def __call__(self, problem, x, state, k):
        carry = (state, SampleCount(*[_zero()] * 3))
        if self.moves:
            move = lambda _, carry: self._moved(problem, x, carry, k)  # noqa: E731
            carry = lax.fori_loop(0, self.moves, move, carry)
        drawn = draw(self.samples, problem, carry[0].draws)
        D, after, spent = self._directions(drawn, x, carry, k)
        y, v = (after.y, after.v) if self.moves else self._step(after, D, k)
        value = outer_value(drawn.source.problem, x, state.y)
        sizes = Residuals(*norms(*(D[name] for name in ("y", "v") if name in D)))
        result = judged(sizes.inner, value, sizes.linear if "v" in D else None)
        # After a failure there is the last good point to go on from.
        y, v = vectors.where(result < FIRST_FAILURE, (y, v), (state.y, state.v))
        info = Info(value, Cost(0, 0), result, sizes, spent)
        return D["x"], after._replace(y=y, v=v), info

    def _moved(
        self, problem: Problem, x: PyTree, carry: tuple[SingleLoopState, SampleCount], k: Count
    ) -> tuple[SingleLoopState, SampleCount]:
        """Where one step of y and v leads, and the rows so far."""
        drawn = draw(self.samples, problem, carry[0].draws, within=True)
        D, state, spent = self._directions(drawn, x, carry, k)
        y, v = self._step(state, D, k)
        return state._replace(y=y, v=v), spent

    def _step(
        self, state: SingleLoopState, D: dict[str, PyTree], k: Count
    ) -> tuple[PyTree, PyTree]:
        y = add_scaled(state.y, -number_at(self.inner_step, k), D["y"])
        if self.linear_step is None:
            return y, state.v
        return y, add_scaled(state.v, -number_at(self.linear_step, k), D["v"])

    def _directions(
        self, drawn: Drawn, x: PyTree, carry: tuple[SingleLoopState, SampleCount], k: Count
    ) -> tuple[dict[str, PyTree], SingleLoopState, SampleCount]:
        """Estimates of all directions at (x, y, v), the state with them, and the rows so far."""
        state, spent = carry
        here = Point(x, state.y, state.v)
        last = state.last if self._looks_back else here
        D, kept = {}, []
        for (names, estimator), own in zip(self.estimators.items(), state.estimates, strict=True):
            evaluate = self._evaluate(names, k, drawn.key)
            price = partial(self._price, names, k, drawn.key)
            numbers = None
            if self._has_numbers(drawn.source.problem, estimator):
                numbers = partial(compact, names, drawn, here)
            found, own, more = estimate(
                estimator, evaluate, price, drawn, (here, last), own, k, in_numbers=numbers
            )
            D, kept, spent = D | found, [*kept, own], spent + more
        after = SingleLoopState(
            state.y, state.v, here if self._looks_back else (), tuple(kept), state.draws + 1
        )
        return D, after, spent

    def _evaluate(self, names: str, k: Count, key: Any = None) -> Any:
        """Parts of these directions as a function of a source and a point."""
        if self.linear is None:
            return partial(adjoint_parts, self.derivatives, names)
        linear, derivatives = self.linear, self.derivatives

        def evaluate(source: Source, point: Point) -> Pair:
            inner = {"y": inner_gradient(source.problem, point.x, point.y)} if "y" in names else {}
            if "x" not in names:
                return Pair(inner, {})
            length = 0 if key is None else linear.length(key, k)
            _, h = series(linear, derivatives, source, point, length, k)
            return Pair(inner, {"x": h})

        return evaluate

    def _price(self, names: str, k: Count, key: Any, sizes: Pair) -> SampleCount:
        if self.linear is None:
            return adjoint_price(self.derivatives, names, sizes)
        price = SampleCount(inner=sizes.inner if "y" in names else 0)
        if "x" in names:
            length = self.linear.length(key, k)
            price = price + series_price(self.derivatives, sizes, length)
        return price

    def _has_numbers(self, problem: Problem, estimator: Estimator) -> bool:
        """Whether a table can keep numbers of samples instead of vectors."""
        exact = self.linear is None and isinstance(self.derivatives, Autodiff)
        return exact and estimator.needs_blocks and is_linear(problem)

    @property
    def _looks_back(self) -> bool:
        return any(estimator.looks_back for estimator in self.estimators.values())

    @property
    def _names(self) -> tuple[str, ...]:
        return NAMES if self.linear is None else ("y", "x")

    def reads(self, draws, k):
        next_ones = range(draws, draws + self.moves + 1)
        return None if self.linear is not None else Pair(next_ones, next_ones)

    def stability(self, L):
        rows = [("inner", float(number_at(self.inner_step, 0)), 2 / L)]
        if self.linear_step is not None:
            rows.append(("linear", float(number_at(self.linear_step, 0)), 2 / L))
        elif self.linear is not None and (numbers := self.linear.stability(L)) is not None:
            rows.append(("linear", *numbers))
        return rows


def _by_name(given: Any) -> dict[str, Estimator]:
    if isinstance(given, Estimator):
        return {"yvx": given}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise TypeError(
            f'estimators must be an estimator or a mapping such as {{"y": Saga(), "vx": Plain()}}, '
            f"got {shown(given)}."
        )
    return dict(sorted(given.items()))  # the order that JAX gives to dictionaries


def _zero() -> Int[Array, ""]:
    return jnp.zeros((), jnp.int32)
