"""Small networks for 8 by 8 images, written out: MLPs, convolutional networks, transformers."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

ACTIVATIONS = {"gelu": jax.nn.gelu, "relu": jax.nn.relu, "tanh": jnp.tanh}


def dense(key: Any, a: int, b: int) -> dict[str, Any]:
    return {"W": jax.random.normal(key, (a, b)) * (2 / a) ** 0.5, "b": jnp.zeros(b)}


def apply(layer: Any, z: Any) -> Any:
    return z @ layer["W"] + layer["b"]


def mlp(key: Any, depth: int, width: int = 32) -> Any:
    sizes = [64, *[width] * (depth - 1), 10]
    keys = jax.random.split(key, depth)
    return [dense(k, a, b) for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)]


def mlp_outputs(act: Callable[..., Any], y: Any, X: Any) -> Any:
    for layer in y[:-1]:
        X = act(apply(layer, X))
    return apply(y[-1], X)


def cnn(key: Any, depth: int, channels: int = 8) -> Any:
    keys = jax.random.split(key, depth)
    ins = [1, *[channels] * (depth - 2)]
    filters = [dense(k, 9 * i, channels) for k, i in zip(keys[:-1], ins, strict=True)]
    return [*filters, dense(keys[-1], 16 * channels, 10)]


def patches(z: Any, stride: int) -> Any:
    """The 3 by 3 neighbourhoods: convolutions as products, which many lanes share on a CPU."""
    size = z.shape[1]
    padded = jnp.pad(z, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifts = [padded[:, i : i + size, j : j + size] for i in range(3) for j in range(3)]
    return jnp.concatenate(shifts, axis=-1)[:, ::stride, ::stride]


def cnn_outputs(act: Callable[..., Any], y: Any, X: Any) -> Any:
    z = X.reshape(-1, 8, 8, 1)
    for i, layer in enumerate(y[:-1]):
        z = act(apply(layer, patches(z, 2 if i == 0 else 1)))
    return apply(y[-1], z.reshape(len(z), -1))


def transformer(key: Any, depth: int, width: int = 16) -> Any:
    keys = iter(jax.random.split(key, 2 + 4 * depth))
    blocks = [
        {"qkv": dense(next(keys), width, 3 * width), "out": dense(next(keys), width, width),
         "up": dense(next(keys), width, 2 * width), "down": dense(next(keys), 2 * width, width)}
        for _ in range(depth)
    ]  # fmt: skip
    return {
        "in": dense(next(keys), 8, width),
        "blocks": jax.tree.map(lambda *leaves: jnp.stack(leaves), *blocks),
        "out": dense(next(keys), width, 10),
    }


def normalised(z: Any) -> Any:
    centred = z - jnp.mean(z, axis=-1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def transformer_outputs(act: Callable[..., Any], y: Any, X: Any) -> Any:
    """The rows of an image are its eight words; one head."""
    z = apply(y["in"], X.reshape(-1, 8, 8))
    places = jnp.arange(8.0)[:, None] / 2 ** jnp.arange(0, z.shape[-1] // 2)
    z = z + jnp.concatenate([jnp.sin(places), jnp.cos(places)], axis=1)
    depth = len(y["blocks"]["up"]["b"])

    def block_of(z: Any, block: Any) -> tuple[Any, None]:
        q, k, v = jnp.split(apply(block["qkv"], normalised(z)), 3, axis=-1)
        attention = jax.nn.softmax(q @ jnp.swapaxes(k, 1, 2) / q.shape[-1] ** 0.5)
        z = z + apply(block["out"], attention @ v) / depth**0.5
        z = z + apply(block["down"], act(apply(block["up"], normalised(z)))) / depth**0.5
        return z, None

    z, _ = jax.lax.scan(block_of, z, y["blocks"])
    return apply(y["out"], normalised(jnp.mean(z, axis=1)))


KINDS = {
    "mlp": (mlp, mlp_outputs),
    "cnn": (cnn, cnn_outputs),
    "transformer": (transformer, transformer_outputs),
}
