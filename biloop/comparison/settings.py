"""What a comparison was made with, in words, for whoever reads or repeats it."""

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import NamedTuple

import jax
import jax.numpy as jnp

import biloop
from biloop.comparison import starts, target
from biloop.comparison.measure import accuracy
from biloop.comparison.payload import ProblemPayload
from biloop.comparison.race import Point
from biloop.estimate import StepSizes
from biloop.problem import Problem
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


def settings(
    sizes: StepSizes,
    start: float,
    loops: Loops,
    seeds: Sequence[int],
    point: Point,
    given_target: bool,
) -> dict[str, str | float]:
    """The numbers and rules behind the runs."""
    return {
        "N": ", ".join(map(str, loops.N)),
        "Q": ", ".join(map(str, loops.Q)),
        "inner step size": float(sizes.inner),
        "linear step size": float(sizes.linear),
        "largest eigenvalue of the inner Hessian (estimate)": float(sizes.L),
        "smallest (estimate)": float(sizes.mu),
        "outer step size": (
            "best of nine, three per decade, of more beyond a good end, and of those beside it"
        ),
        "seeds": ", ".join(map(str, seeds)),
        "starts": starts.RULE,
        "‖∇Φ‖² at the start": start,
        "target": f"{'‖∇Φ‖² is given' if given_target else target.RULE}, {target.VALUE_RULE}",
        "‖∇Φ‖ is measured": accuracy(point.y),
        "x and y": str(jax.tree.leaves(point.x)[0].dtype),
        "device": f"{jax.default_backend()}, {platform.machine()}",
    }


def versions() -> dict[str, str]:
    """Of what decides the numbers."""
    names = ("jax", "jaxlib", "equinox", "optax", "numpy")
    # Ours is in the code: a checkout that is not installed has no metadata.
    ours = {"python": platform.python_version(), "biloop": biloop.__version__}
    return ours | {name: version(name) for name in names}


def call(loops: Loops, seeds: Sequence[int], budget: int, target: float | None) -> str:
    """The call in Python, where problem, x0 and y0 are there."""
    given = "" if target is None else f", target={target:g}"
    arguments = f"N={loops.N}, Q={loops.Q}, seeds={list(seeds)}, budget={budget}{given}"
    return f"comparison = bl.compare(\n    problem, x0, y0, {arguments}\n)"
