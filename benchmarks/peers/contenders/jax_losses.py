"""The losses of the works in JAX, as one writes them: shared by all contenders that use JAX."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.peers.reference import PENALTY, RIDGE
from benchmarks.peers.works import Arrays, Instance


class Losses(NamedTuple):
    """inner(x, y, data), outer(x, y, data) and their data and start, on the device."""

    inner: Callable
    outer: Callable
    inner_data: dict[str, jax.Array]
    outer_data: dict[str, jax.Array]
    x: jax.Array
    y: jax.Array


def losses(instance: Instance) -> Losses:
    """The losses of an instance."""
    inner, outer = _LOSSES[instance.work.problem, instance.work.written]
    x, y = map(jnp.asarray, instance.start)
    return Losses(inner, outer, _on_device(instance.inner), _on_device(instance.outer), x, y)


def _on_device(arrays: Arrays) -> dict[str, jax.Array]:
    return {name: jnp.asarray(a) for name, a in arrays.items()}


def _cross_entropy(W, X, Y):
    scores = X @ W
    return jax.nn.logsumexp(scores, axis=1) - jnp.sum(scores * Y, axis=1)


def _cleaning_inner(x, W, d):
    weighted = jax.nn.sigmoid(x) * _cross_entropy(W, d["X"], d["Y"])
    return jnp.mean(weighted) + PENALTY * jnp.sum(W**2)


def _cleaning_outer(x, W, d):
    return jnp.mean(_cross_entropy(W, d["V"], d["U"]))


def _quadratic_inner(x, y, d):
    return 0.5 * y @ (d["A"] @ y) - y @ (d["B"] @ x + d["c"])


def _quadratic_outer(x, y, d):
    return 0.5 * jnp.sum((y - d["t"]) ** 2) + 0.05 * jnp.sum(x**2)


def _representation(predict):
    def inner(H, w, d):
        residual = predict(d["X"], H, w) - d["t"]
        return 0.5 * jnp.mean(residual**2) + 0.5 * RIDGE * jnp.sum(w**2)

    def outer(H, w, d):
        return 0.5 * jnp.mean((predict(d["V"], H, w) - d["s"]) ** 2)

    return inner, outer


_LOSSES = {
    ("cleaning", "X @ W"): (_cleaning_inner, _cleaning_outer),
    ("quadratic", "X @ W"): (_quadratic_inner, _quadratic_outer),
    ("representation", "X @ (H @ w)"): _representation(lambda X, H, w: X @ (H @ w)),
    ("representation", "(X @ H) @ w"): _representation(lambda X, H, w: (X @ H) @ w),
}
