"""x and y as pytrees: an equinox model as the outer variable, Adam, and a run that is resumed.

A hyper-representation: features come from a small network (x), a linear head on top of them (y) is
fitted to training samples, and the network is judged by the head on validation samples. x also
holds the logarithm of the head's penalty.

    python examples/pytrees.py
"""

import tempfile
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import biloop as bl

FEATURES = 16


def samples(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    inputs = rng.uniform(-2, 2, size=(n, 2))
    targets = np.sin(2 * inputs[:, 0]) * inputs[:, 1] + 0.1 * rng.normal(size=n)
    return inputs, targets


def make(seed: int = 0) -> tuple[bl.Problem, Any, Any]:
    """The problem, x0 and y0."""
    model = eqx.nn.MLP(2, FEATURES, 32, 1, activation=jnp.tanh, key=jax.random.key(seed))
    # Arrays are optimised; the rest of the model (its activation functions) is put back in.
    network, static = eqx.partition(model, eqx.is_inexact_array)
    x0 = {"network": network, "log_penalty": jnp.asarray(-4.0)}
    y0 = {"head": {"weight": jnp.zeros(FEATURES), "bias": jnp.zeros(())}}

    def predict(x: Any, y: Any, inputs: Any) -> Any:
        features = jax.vmap(eqx.combine(x["network"], static))(inputs)
        return jnp.tanh(features) @ y["head"]["weight"] + y["head"]["bias"]

    def inner(x: Any, y: Any, inputs: Any, targets: Any) -> Any:
        penalty = jnp.exp(x["log_penalty"]) * sum(jnp.sum(a**2) for a in jax.tree.leaves(y))
        return 0.5 * jnp.mean((predict(x, y, inputs) - targets) ** 2) + 0.5 * penalty

    def outer(x: Any, y: Any, inputs: Any, targets: Any) -> Any:
        return 0.5 * jnp.mean((predict(x, y, inputs) - targets) ** 2)

    rng = np.random.default_rng(seed)
    problem = bl.Problem(inner, outer, inner_data=samples(rng, 200), outer_data=samples(rng, 200))
    return problem, x0, y0


def main(steps: int = 400) -> tuple[bl.Run, bl.Run]:
    problem, x0, y0 = make()
    # The features are at most 1 in size, so the inner Hessian is at most 17 and 2/L at least 0.11.
    method = bl.AID(bl.GradientDescent(step_size=0.1, steps=10), bl.CG(steps=5))
    adam = optax.adam(1e-2)

    with tempfile.TemporaryDirectory() as folder:

        def solve(**options: Any) -> bl.Run:
            return bl.solve(problem, x0, y0, method, outer=adam, steps=steps, **options)

        saved = {"checkpoint": Path(folder, "run"), "every": max(1, steps // 4)}
        half = solve(**saved, callback=lambda progress: progress.k >= steps // 2)
        print(f"first call:  {half.steps} steps. {half.message}")
        # The same call again goes on where the first one stopped, even in another process.
        resumed = solve(**saved)
        print(f"second call: {resumed.steps} steps. {resumed.message}")
    at_once = solve()

    same = [
        bool(jnp.array_equal(a, b))
        for a, b in zip(*map(jax.tree.leaves, (resumed.x, at_once.x)), strict=True)
    ]
    value = at_once.trace["value"]
    print(f"resumed and uninterrupted run agree bit by bit: {all(same)}")
    print(f"validation loss {value[0]:.4f} → {value[-1]:.4f}")
    print(f"penalty {np.exp(x0['log_penalty']):.4f} → {np.exp(at_once.x['log_penalty']):.4f}")
    print(f"the structure of x is kept: {type(at_once.x['network']).__name__} in a dictionary")
    return resumed, at_once


if __name__ == "__main__":
    main()
