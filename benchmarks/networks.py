"""`auto` on twelve networks beside the best of a tuned grid of the usual approximations.

    python benchmarks/networks.py [--part 0/4] [--budget 1000] [--data digits.npz] [--out part.json]
    python benchmarks/networks.py --table part0.json part1.json …

Three in ten of 300 training labels of scikit-learn's digits are wrong; x are the weights of the
training samples, y is the network, f the loss on 300 clean validation samples. MLPs, convolutional
networks and transformers of depth 2 to 6, with gelu, relu and tanh, weight decay 0 to 1e-2. The
score of a method is the smallest validation loss on its way. The grid (for each network anew, 39
runs of the same budget of gradients and products): ITD through the last 5 of 20 steps, AID with 10
products and H + δI, one-step v = ηb; Adam below (its state carried on, through which ITD cannot go
far) or gradient descent; outer Adam. `auto` has nothing to set and makes 30 outer steps; what
counts is what it has found for no more than the best of the grid has spent.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import biloop as bl

TRAINING, VALIDATION, NOISE = 300, 300, 0.3
ACTIVATIONS = {"gelu": jax.nn.gelu, "relu": jax.nn.relu, "tanh": jnp.tanh}
NETWORKS = (  # kind, depth, activation, weight decay
    ("mlp", 2, "gelu", 0.0),
    ("mlp", 3, "relu", 1e-3),
    ("mlp", 4, "tanh", 1e-2),
    ("mlp", 6, "gelu", 1e-4),
    ("cnn", 2, "relu", 0.0),
    ("cnn", 3, "tanh", 1e-4),
    ("cnn", 4, "gelu", 1e-2),
    ("cnn", 6, "relu", 1e-3),
    ("transformer", 2, "gelu", 1e-3),
    ("transformer", 3, "relu", 1e-2),
    ("transformer", 4, "tanh", 0.0),
    ("transformer", 6, "gelu", 1e-4),
)
OUTER_STEPS = (0.03, 0.3)
N, Q, AUTO_STEPS = 20, 10, 30


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


def digits(path: Path | None) -> tuple[np.ndarray, np.ndarray]:
    if path is not None:
        found = np.load(path)
        return found["pixels"], found["labels"]
    loaded = bl.data.digits()
    return np.array(loaded.X), np.array(loaded.labels)


def load(number: int, path: Path | None) -> tuple[bl.Problem, Any, Any]:
    """The problem of a network, with data and start of its own."""
    kind, depth, activation, decay = NETWORKS[number]
    pixels, labels = digits(path)
    rng = np.random.default_rng(number)
    order = rng.permutation(len(labels))[: TRAINING + VALIDATION]
    pixels, labels = pixels[order].astype(np.float32), labels[order].astype(np.int32)
    wrong = rng.random(TRAINING) < NOISE
    labels[:TRAINING] = np.where(wrong, rng.integers(0, 10, TRAINING), labels[:TRAINING])
    make, predict = KINDS[kind]
    act = ACTIVATIONS[activation]

    def losses(y: Any, X: Any, labels: Any) -> Any:
        z = predict(act, y, X)
        return jax.nn.logsumexp(z, axis=1) - jnp.take_along_axis(z, labels[:, None], axis=1)[:, 0]

    def inner(x: Any, y: Any, X: Any, labels: Any) -> Any:
        squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
        return jnp.mean(jax.nn.sigmoid(x) * losses(y, X, labels)) + 0.5 * decay * squares

    problem = bl.Problem(
        inner,
        lambda x, y, X, labels: jnp.mean(losses(y, X, labels)),
        (pixels[:TRAINING], labels[:TRAINING]),
        (pixels[TRAINING:], labels[TRAINING:]),
    )
    return problem, jnp.zeros(TRAINING), make(jax.random.key(number), depth)


DESCENT = "inner.step_size", (0.03, 0.1, 0.3)
ADAM = "inner.transformation.options['learning_rate']", (0.003, 0.01, 0.03)
Over = dict[str, tuple[float, ...]]


def grid() -> dict[str, tuple[bl.Method, int, Over]]:
    """The methods with what an outer step of each costs, and what is tuned."""
    descent = bl.GradientDescent(0.1, N)
    adam = bl.Optax(bl.Built(optax.adam, {"learning_rate": 0.01}), N, carry_state=True)
    loops, damped = bl.CG(Q, indefinite="truncate"), bl.Damped(0.1)
    delta, eta = {"derivatives.damping": (0.01, 0.1, 1.0)}, {"step_size": (0.1, 1.0)}
    return {
        "ITD, last 5 of 20": (bl.ITD(descent, truncate=5), N + 2 + 10, dict([DESCENT])),
        "one-step": (bl.OneStep(descent, 0.1), N + 3, dict([DESCENT]) | eta),
        "one-step, Adam": (bl.OneStep(adam, 0.1), N + 3, dict([ADAM])),
        "AID, damped": (
            bl.AID(descent, loops, derivatives=damped),
            N + Q + 4,
            dict([DESCENT]) | delta,
        ),
        "AID, damped, Adam": (bl.AID(adam, loops, derivatives=damped), N + Q + 4, dict([ADAM])),
    }


def smallest(trace: bl.Trace, budget: float) -> tuple[float, int]:
    """The smallest loss for at most the budget, and what had been spent by then."""
    spent = trace["gradients"] + trace["products"]
    counts = (trace["result"] != bl.Status.UNDONE) & np.isfinite(trace["value"])
    values = np.where(counts & (spent <= budget), trace["value"], np.inf)
    return float(np.min(values)), int(spent[np.argmin(values)])


def measure(number: int, budget: int, path: Path | None) -> dict[str, Any]:
    """A network: `auto`, and all of the grid."""
    problem, x, y = load(number, path)
    began, rows = time.perf_counter(), []
    for name, (method, price, over) in grid().items():
        outers = {"outer": [optax.adam(rate) for rate in OUTER_STEPS]}
        swept = bl.sweep(
            problem, x, y, method, over={k: list(v) for k, v in over.items()} | outers,
            steps=max(1, budget // price), progress=False,
        )  # fmt: skip
        for run in swept.runs:
            value, cost = smallest(run.trace, budget)
            rows.append({"name": name, "value": value, "cost": cost, "label": run.trace.label})
        print(f"  {name}: {min(r['value'] for r in rows if r['name'] == name):.4f}", flush=True)
    best = min(rows, key=lambda row: row["value"])
    run = bl.solve(problem, x, y, steps=AUTO_STEPS, progress=False)
    value, cost = smallest(run.trace, best["cost"])
    auto = {"value": value, "status": run.status.name, "cost": cost, "steps": run.steps}
    auto |= {"whole": run.cost.total, "end": smallest(run.trace, np.inf)[0]}
    took = time.perf_counter() - began
    return {"number": number, "auto": auto, "best": best, "grid": rows, "seconds": took}


def line(found: dict[str, Any]) -> str:
    kind, depth, activation, decay = NETWORKS[found["number"]]
    auto, best = found["auto"], found["best"]
    return (
        f"{kind:11} {depth} {activation:4} {decay:6.0e}  {auto['status']:10} {auto['value']:7.4f} "
        f"{auto['cost']:6} {best['value']:7.4f} {best['cost']:6} "
        f"{auto['value'] / best['value']:6.2f}  {best['name']}"
    )


def table(found: list[dict[str, Any]]) -> str:
    head = (
        f"{'network':31} {'status':10} {'auto':>7} {'cost':>6} {'grid':>7} {'cost':>6} {'ratio':>6}"
    )
    ratios = [each["auto"]["value"] / each["best"]["value"] for each in found]
    ends = Counter(each["auto"]["status"] for each in found)
    rows = [line(each) for each in sorted(found, key=lambda each: each["number"])]
    foot = (
        f"{sum(r <= 1.05 for r in ratios)} of {len(ratios)} within 1.05 of the best of the grid, "
        f"median {np.median(ratios):.2f}; ends: {dict(ends)}"
    )
    return "\n".join([head, *rows, foot])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="0/1", help="i/n: networks i, i + n, …")
    parser.add_argument("--budget", type=int, default=1000)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    options = parser.parse_args()
    if options.table:
        print(table([each for path in options.table for each in json.loads(path.read_text())]))
        return
    part, parts = map(int, options.part.split("/"))
    found = []
    for number in range(part, len(NETWORKS), parts):
        found.append(measure(number, options.budget, options.data))
        print(line(found[-1]), f"({found[-1]['seconds']:.0f} s)", flush=True)
        if options.out:
            options.out.write_text(json.dumps(found))
    print(table(found))


if __name__ == "__main__":
    main()
