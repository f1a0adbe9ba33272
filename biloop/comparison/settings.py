"""What a comparison is given, and what it was made with in words."""

import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop.comparison.gauge import Gauge
from biloop.comparison.payload import ProblemPayload
from biloop.comparison.terms import STARTS_RULE, TARGET_RULE, VALUE_RULE, Point
from biloop.comparison.tuning import Steps
from biloop.methods.reference import is_small
from biloop.problem import Problem, refuse_other
from biloop.run.arguments import number
from biloop.schedules.arguments import MOST, as_flag, as_length, as_text, listed, shown
from biloop.vectors import size


class Loops(NamedTuple):
    """The lengths that are tried."""

    N: tuple[int, ...]
    Q: tuple[int, ...]


def describe(problem: Problem, start: Point, name: str, description: str) -> ProblemPayload:
    """The problem and its size."""
    return ProblemPayload(
        name=name,
        dim_x=size(start.x),
        dim_y=size(start.y),
        samples=_samples(problem),
        description=description,
    )


def _samples(problem: Problem) -> int | None:
    """The leading axis of the inner data, where arrays stand in them directly."""
    shapes = [jnp.shape(entry) for entry in problem.inner_data if isinstance(entry, jax.Array)]
    return next((shape[0] for shape in shapes if shape), None)


def as_lengths(given: int | Sequence[int], name: str) -> tuple[int, ...]:
    """The lengths of a loop in order; 1 is always among them."""
    expected = "an integer of at least 1, or a sequence of them"
    lengths = [given] if isinstance(given, int | np.integer) else listed(given, name, expected)
    for n in lengths:
        if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1:
            raise ValueError(f"{name} must be integers of at least 1, got {shown(n)}.")
    lengths = map(as_length(name), lengths)
    return tuple(sorted({1, *lengths}))


def as_seeds(seeds: Iterable[int]) -> list[int]:
    """The seeds as integers, each once."""
    given = listed(seeds, "seeds", "a sequence of integers such as range(5)")
    for seed in given:
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
            raise ValueError(f"seeds must be integers of at least 0, got {seed!r}.")
    if not given or len(set(given)) < len(given):
        raise ValueError(f"seeds has no seed, or one twice: {given}.")
    return [int(seed) for seed in given]


def as_methods(methods: Any) -> Mapping[str, Any]:
    """The methods of one's own by their names, none if None."""
    if methods is None:
        return {}
    if not isinstance(methods, Mapping):
        raise TypeError(
            f"methods must be a dictionary from names to methods, e.g. "
            f"methods={{'mine': method}}; got {type(methods).__name__}."
        )
    return methods


def check_settings(
    problem: Any, budget: Any, numbers: dict[str, Any], words: tuple[Any, Any], certificates: Any
) -> None:
    """Refuse what is no problem, no limits and no words."""
    refuse_other(problem)
    for name, word in zip(("name", "description"), words, strict=True):
        as_text(name)(word)
    as_flag("certificates")(certificates)
    if not isinstance(budget, int | np.integer) or isinstance(budget, bool) or budget < 30:
        raise ValueError(f"budget must be an integer of at least 30, got {shown(budget)}.")
    if budget > MOST:
        raise ValueError(f"budget must be at most {MOST}, got {shown(budget)}.")
    for name, value in numbers.items():
        if value is not None and not 0 < number(value, name) < math.inf:
            raise ValueError(f"{name} must be a finite number greater than 0, got {shown(value)}.")


def settings(
    steps: Steps,
    gauge: Gauge,
    loops: Loops,
    seeds: Sequence[int],
    point: Point,
    given_target: bool,
) -> dict[str, str | float]:
    """The numbers and rules behind the runs."""
    return {
        "N": ", ".join(map(str, loops.N)),
        "Q": ", ".join(map(str, loops.Q)),
        "inner step size": steps.inner,
        "linear step size": steps.linear,
        "the inner step size is": steps.inner_from,
        "the linear step size is": steps.linear_from,
        "outer step size": (
            "best of nine, three per decade, of more beyond a good end, and of those beside it"
        ),
        "seeds": ", ".join(map(str, seeds)),
        "starts": STARTS_RULE,
        "‖∇Φ‖² at the start": gauge.start,
        "target": f"{'‖∇Φ‖² is given' if given_target else TARGET_RULE}, {VALUE_RULE}",
        "x and y": str(jax.tree.leaves(point.x)[0].dtype),
        "device": f"{jax.default_backend()}, {platform.machine()}",
        "‖∇Φ‖ is measured": accuracy(gauge, point.y),
    }


def accuracy(gauge: Gauge, y: PyTree) -> str:
    """How well ‖∇Φ‖ was measured, in words."""
    if is_small(y):
        return f"exactly, to rounding, about {100 * gauge.error:.2g} %"
    return f"until it changes by less than 10 %; the largest change was {100 * gauge.error:.2g} %"


def versions() -> dict[str, str]:
    """Of what decides the numbers."""
    names = ("biloop", "jax", "jaxlib", "equinox", "optax", "numpy")
    return {"python": platform.python_version()} | {name: _version(name) for name in names}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # a checkout that is not installed
        return "not installed"


def call(
    loops: Loops,
    seeds: Sequence[int],
    budget: int,
    numbers: Mapping[str, float | None],
    schemes: Sequence[str] | None,
    own: bool,
    batch: int | None,
) -> str:
    """The call in Python, where problem, x0 and y0 are there, and methods if there were any."""
    given: dict[str, Any] = {n: float(value) for n, value in numbers.items() if value is not None}
    given |= {} if schemes is None else {"schemes": list(schemes)}
    given |= {"methods": "methods"} if own else {}
    given |= {} if batch is None else {"batch": batch}
    arguments = f"N={loops.N}, Q={loops.Q}, seeds={list(seeds)}, budget={budget}"
    for name, value in given.items():
        arguments += f", {name}={value:g}" if isinstance(value, float) else f", {name}={value}"
    return f"comparison = bl.compare(\n    problem, x0, y0, {arguments}\n)"
