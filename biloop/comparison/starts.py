"""Where the runs of each seed start."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop.comparison.judge import host_norm
from biloop.comparison.race import Point
from biloop.problem import as_variable
from biloop.sweeps.cells import is_function

SHARE = 0.1
RULE = (
    "the first seed starts at x0 and y0, each other a tenth of the way off in a random direction: "
    "of the length over which ∇Φ changes by its own size, and of ‖y0 − y*(x0)‖"
)


def at_seed(start: PyTree | Callable[[int], PyTree], seed: int, name: str) -> PyTree:
    """The start itself, or what the function gives for this seed."""
    return as_variable(start(seed) if is_function(start) else start, name)


def spread_starts(
    x0: Any, y0: Any, seeds: Sequence[int], solved: PyTree, length: float
) -> list[Point]:
    """A start for each seed; `solved` is y*(x0), `length` what a step of x means here."""
    distance = host_norm(jax.tree.map(np.subtract, solved, at_seed(y0, seeds[0], "y0")))

    def start(seed: int) -> Point:
        rng = np.random.default_rng(seed)
        x, y = at_seed(x0, seed, "x0"), at_seed(y0, seed, "y0")
        if seed != seeds[0] and not is_function(x0):
            x = _moved(x, SHARE * length, rng)
        if seed != seeds[0] and not is_function(y0):
            y = _moved(y, SHARE * distance, rng)
        return Point(x, y)

    return [start(seed) for seed in seeds]


def _moved(a: PyTree, length: float, rng: np.random.Generator) -> PyTree:
    """a, and from there so far in a random direction."""
    d = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), a)
    scale = length / host_norm(d)
    return jax.tree.map(lambda a, d: a + jnp.asarray(scale * d, a.dtype), a, d)
