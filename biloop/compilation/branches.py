"""Branches that keep XLA on a CPU from fusing: what a branch computes is computed once.

On a CPU a conditional costs less than a tenth of a microsecond. On a GPU it may wait for the host,
and kernels are so long to launch that fusing is right: there the first branch stands alone.
"""

from collections.abc import Callable

import jax
import jax.core
import jax.custom_batching
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, PyTree


def on_cpu() -> bool:
    """Whether programs are compiled for a CPU."""
    return jax.default_backend() == "cpu"


@jax.custom_batching.custom_vmap
def everywhere(holds: Bool[Array, ""]) -> Bool[Array, ""]:
    """Whether it holds in all of the lanes that `vmap` puts side by side: one answer for them.

    With an answer for each lane a branch would be computed on both sides, and fused.
    """
    return holds


@everywhere.def_vmap
def _over_lanes(
    width: int, batched: list[bool], holds: Bool[Array, " lanes"]
) -> tuple[Array, bool]:
    del width, batched
    return everywhere(jnp.all(holds)), False


def apart(likely: Array, value: Callable[[], PyTree], other: Callable[[], PyTree]) -> PyTree:
    """value(), materialised; `other` is for the case that `likely` does not hold, which is never.

    The compiler must not see that, so `likely` has to be a comparison of numbers it does not know.
    Where nothing is compiled there is nothing to keep apart.
    """
    traced = isinstance(likely, jax.core.Tracer)
    return lax.cond(everywhere(likely), value, other) if traced and on_cpu() else value()
