"""Whether an optax transformation leads uphill, as with a negative learning rate."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from biloop.inner import Optax
from biloop.methods import Method
from biloop.outer import OptaxStep, OuterStep
from biloop.run.outcome import risen
from biloop.run.record import Record


def uphill(method: Method, outer: OuterStep, x: PyTree, y: PyTree, record: Record) -> str:
    """A sentence if a run that grew was led to by steps along a gradient, not against it."""
    if not (risen(record) or record.last("inner_residual") > record.first("inner_residual")):
        return ""
    for place, part, kind, point in (("inner", method, Optax, y), ("outer", outer, OptaxStep, x)):
        is_one = lambda node, kind=kind: isinstance(node, kind)  # noqa: E731
        for one in filter(is_one, jax.tree.leaves(part, is_leaf=is_one)):
            if bool(_climbs(one.transformation, point)):
                return (
                    f"The first step of the {place} optax transformation leads along the gradient, "
                    f"uphill: is its learning rate negative?"
                )
    return ""


@jax.jit
def _climbs(transformation: Any, point: PyTree) -> Bool[Array, ""]:
    """A first step from zero, where no decay of weights has a part in it."""
    zero, d = jax.tree.map(jnp.zeros_like, point), jax.tree.map(jnp.ones_like, point)
    updates, _ = transformation.update(d, transformation.init(zero), zero, jnp.ones(()))
    return jnp.asarray(sum(jnp.sum(u) for u in jax.tree.leaves(updates)) > 0)
