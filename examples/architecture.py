"""A cell that chooses its operations, as in DARTS, on digits.

Each edge of a small cell mixes four operations (none, skip, a 3 × 3 convolution, a dilated one)
with softmax weights; x are their logits, y all filters and the classifier. y is trained on one half
of the data and x judged on the other. (H. Liu et al., DARTS: Differentiable architecture search,
2019, https://arxiv.org/abs/1806.09055.) Three ways to the gradient of x, at about the same cost:

    DARTS            one gradient step of y, differentiated by a difference of gradients
    one step, Adam   ten steps of y, and 0.1 ∇_y f in the place of the adjoint
    AID              ten steps of y, and five of conjugate gradients for the adjoint

    python examples/architecture.py [--steps 40] [--figure out/architecture.png]
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

import biloop as bl

OPERATIONS = ("none", "skip", "conv 3×3", "dilated 3×3")
EDGES = ("input → a", "input → b", "a → b")
CHANNELS, PENALTY = 6, 1e-3
KINDS = ("plain", "dilated")
COLORS = {"DARTS": "#0072b2", "AID": "#d55e00", "one step, Adam": "#009e73"}  # color-blind safe


def filters(key: Any, inputs: int, outputs: int) -> Any:
    return jax.random.normal(key, (9 * inputs, outputs)) * (2 / (9 * inputs)) ** 0.5


def convolved(z: Any, W: Any, dilation: int) -> Any:
    """A 3 × 3 convolution of images (n, height, width, channels), as a product."""
    size, d = z.shape[1], dilation
    padded = jnp.pad(z, ((0, 0), (d, d), (d, d), (0, 0)))
    shifts = [padded[:, i : i + size, j : j + size] for i in (0, d, 2 * d) for j in (0, d, 2 * d)]
    return jnp.concatenate(shifts, axis=-1) @ W


def mixed(logits: Any, W: Any, z: Any) -> Any:
    """Σ softmax(logits)_o · operation_o(z)."""
    share = jax.nn.softmax(logits)
    plain, dilated = (convolved(z, W[name], d) for name, d in (("plain", 1), ("dilated", 2)))
    return share[1] * z + share[2] * jnp.tanh(plain) + share[3] * jnp.tanh(dilated)


def scores(x: Any, y: Any, X: Any) -> Any:
    z = jnp.tanh(convolved(X.reshape(-1, 8, 8, 1), y["stem"], 1))
    z = z[:, ::2, ::2]
    a = mixed(x[0], y["edges"][0], z)
    b = mixed(x[1], y["edges"][1], z) + mixed(x[2], y["edges"][2], a)
    flat = jnp.concatenate([a, b], axis=-1).reshape(len(X), -1)
    return flat @ y["W"] + y["b"][None]


def outer(x: Any, y: Any, X: Any, labels: Any) -> Any:
    z = scores(x, y, X)
    right = jnp.mean((jnp.argmax(z, axis=1).astype(labels.dtype) == labels).astype(z.dtype))
    losses = optax.softmax_cross_entropy_with_integer_labels(z, labels)
    return jnp.mean(losses), {"accuracy": right}


def inner(x: Any, y: Any, X: Any, labels: Any) -> Any:
    squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
    return outer(x, y, X, labels)[0] + PENALTY * squares


def start(key: Any) -> tuple[Any, Any]:
    """Logits that prefer nothing, and random filters."""
    keys = jax.random.split(key, 8)
    edges = [
        {name: filters(keys[2 * i + j], CHANNELS, CHANNELS) for j, name in enumerate(KINDS)}
        for i in range(len(EDGES))
    ]
    head = 16 * 2 * CHANNELS
    y = {
        "stem": filters(keys[6], 1, CHANNELS),
        "edges": edges,
        "W": jax.random.normal(keys[7], (head, 10)) * head**-0.5,
        "b": jnp.zeros(10),
    }
    return jnp.zeros((len(EDGES), len(OPERATIONS))), y


def methods(steps: int) -> dict[str, tuple[bl.Method, int]]:
    """Each with the number of outer steps that cost about the same."""
    adam = bl.Optax(optax.adam(1e-2), 10, carry_state=True)
    return {
        "DARTS": (bl.schemes.darts(0.1), 3 * steps),
        "one step, Adam": (bl.OneStep(adam, 0.1), steps),
        "AID": (bl.AID(adam, bl.CG(5, indefinite="truncate")), steps),
    }


class Found(NamedTuple):
    """A run, and the share of the test images that are right."""

    run: bl.Run
    accuracy: float


def main(steps: int = 40, samples: int = 300, seed: int = 0) -> dict[str, Found]:
    digits = bl.data.digits()
    parts = [slice(0, samples), slice(samples, 2 * samples), slice(2 * samples, None)]
    pixels = jnp.asarray(digits.X, float)
    training, validation, test = ((pixels[part], digits.labels[part]) for part in parts)
    problem = bl.Problem(inner, outer, training, validation, has_aux=True)
    x0, y0 = start(jax.random.key(seed))
    found = {}
    for name, (method, count) in methods(steps).items():
        run = bl.solve(problem, x0, y0, method, outer=optax.adam(0.1), steps=count, label=name)
        accuracy = float(outer(run.x, run.y, *test)[1]["accuracy"])
        found[name] = Found(run, accuracy)
        chosen = [OPERATIONS[i] for i in np.argmax(run.x, axis=1)]
        edges = ", ".join(f"{edge}: {each}" for edge, each in zip(EDGES, chosen, strict=True))
        print(
            f"{name:14} {run.status.name}: f {run.trace['value'][0]:.2f} → {run.value:.3f} for "
            f"{run.cost.total:.0f}, right on test images {accuracy:.1%}; {edges}"
        )
    return found


def draw(found: dict[str, Found], file: Path) -> Path:
    """The losses by cost, and the shares of the operations that each way has found."""
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    curve, *bars = figure.subplots(1, 1 + len(found), width_ratios=(2, *[1.3] * len(found)))
    for place, (name, each) in zip(bars, found.items(), strict=True):
        trace = each.run.trace
        curve.plot(
            trace["gradients"] + trace["products"], trace["value"], label=name, color=COLORS[name]
        )
        shares, left = np.asarray(jax.nn.softmax(each.run.x, axis=1)), np.zeros(len(EDGES))
        for i, operation in enumerate(OPERATIONS):
            place.barh(EDGES, shares[:, i], left=left, label=operation, color=f"C{i}")
            left = left + shares[:, i]
        place.set(title=f"{name}, {each.accuracy:.0%} right", xlim=(0, 1), xlabel="share")
        place.title.set_fontsize(9)
        if place is not bars[0]:
            place.set_yticks(())
    curve.set(xlabel="gradients and products", ylabel="validation loss", yscale="log")
    curve.legend(frameon=False)
    handles, labels = bars[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower right", ncols=4, frameon=False, fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    return file


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    found = main(options.steps)
    if options.figure:
        draw(found, options.figure)
