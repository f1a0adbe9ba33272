"""Memory, compilation and speed on an accelerator, beside loops written by hand.

    python benchmarks/device_memory.py                  # on a GPU: about four minutes
    python benchmarks/device_memory.py --small          # on any machine: seconds

1. memory: AID, N = Q = 10, on a network of 2.9·10⁸ parameters and 4096 samples. The peak of the
   allocator, of a process each, over a whole `solve` with its last look; of the compiled program as
   XLA has it; and seconds per outer step. By hand is a loop whose state is donated, with no look at
   anything. The start is given as NumPy arrays; also on the device, where it is one more y.
   ITD with stored iterates for information.
2. compile: the first run less the second, in seconds of wall clock, for a three-layer network.
3. cleaning: softmax regression on 20000 × 784 numbers with a weight for each sample, N = Q = 20,
   in full precision, with `X @ W` as one writes it: milliseconds per outer step, and how many times
   two passes over X at the bandwidth of a copy a gradient or product takes.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import biloop as bl
from biloop.outer import as_outer_step
from biloop.run.engine import Engine, Goal
from biloop.run.step import Settings, first_state

N = Q = 10
STEP, OUTER_STEP = 1e-2, 1e-2
LIMITS = {"memory": 1.2, "compile": 1.6}


def network(y: Any, X: jax.Array) -> jax.Array:
    """Layers of tanh, the last one linear."""
    for A, b in y[:-1]:
        X = jnp.tanh(X @ A + b)
    return X @ y[-1][0] + y[-1][1]


def weighted(x: Any, y: Any, X: jax.Array, t: jax.Array) -> jax.Array:
    """Squares with a weight for each sample, and a small penalty."""
    each = jax.nn.sigmoid(x) * jnp.sum((network(y, X) - t) ** 2, axis=-1)
    return jnp.mean(each) + 1e-2 * sum(jnp.sum(A**2) for A, _ in y)


def plain(x: Any, y: Any, V: jax.Array, s: jax.Array) -> jax.Array:
    """The same without weights."""
    return jnp.mean(jnp.sum((network(y, V) - s) ** 2, axis=-1))


def start(sizes: list[int], samples: int) -> tuple[Any, Any, tuple]:
    """x, y as NumPy arrays, and data on the device."""
    rng = np.random.default_rng(0)
    pairs = list(itertools.pairwise(sizes))
    y = [
        ((rng.standard_normal((a, b), np.float32) / a**0.5), np.zeros(b, np.float32))
        for a, b in pairs
    ]
    data = tuple(
        jnp.asarray(rng.standard_normal((samples, k), np.float32)) for k in (sizes[0], sizes[-1])
    )
    return np.zeros(samples, np.float32), y, data


def by_hand(inner: Callable, outer: Callable, n: int, q: int) -> Callable:
    """AID as one writes it, for pytrees; the state is donated."""

    def run(carry: Any, inner_data: Any, outer_data: Any, a: Any, c: Any, steps: Any) -> Any:
        gradient = jax.grad(inner, 1)

        def move(y: Any, s: Any, d: Any) -> Any:
            return jax.tree.map(lambda y, d: y - s * d, y, d)

        def outer_step(_: Any, carry: Any) -> Any:
            x, y, v = carry
            y = lax.fori_loop(0, n, lambda _, y: move(y, a, gradient(x, y, *inner_data)), y)
            f_x, f_y = jax.grad(outer, (0, 1))(x, y, *outer_data)
            _, products = jax.vjp(lambda x, y: gradient(x, y, *inner_data), x, y)
            less = lambda a, b: jax.tree.map(jnp.subtract, a, b)  # noqa: E731
            v = lax.fori_loop(0, q, lambda _, v: move(v, a, less(products(v)[1], f_y)), v)
            return move(x, c, less(f_x, products(v)[0])), y, v

        return lax.fori_loop(0, steps, outer_step, carry)

    return jax.jit(run, donate_argnums=0)


def timed(run: Callable[[], Any]) -> float:
    """Seconds, waiting for the device."""
    begin = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - begin


def peak() -> float:
    """GiB that the allocator has had in use at most; NaN on a CPU."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats.get("peak_bytes_in_use", float("nan")) / 2**30


def planned(compiled: Any) -> float:
    """GiB of arguments, results and temporaries of a program."""
    m = compiled.memory_analysis()
    total = m.argument_size_in_bytes + m.output_size_in_bytes - m.alias_size_in_bytes
    return (total + m.temp_size_in_bytes) / 2**30


def memory(contender: str, small: bool) -> dict[str, float]:
    """The peak, what XLA plans, and seconds per outer step."""
    width, samples, steps = (256, 64, 5) if small else (12_000, 4096, 10)
    x, y, data = start([256, width, width, width, 10], samples)
    parameters = sum(a.size for a in jax.tree.leaves(y))
    zero = lambda: jax.device_put((x, y, jax.tree.map(np.zeros_like, y)))  # noqa: E731
    if contender == "by hand":
        run = by_hand(weighted, plain, N, Q)
        numbers = (jnp.float32(STEP), jnp.float32(OUTER_STEP))
        bytes_ = planned(run.lower(zero(), data, data, *numbers, 1).compile())
        jax.block_until_ready(run(zero(), data, data, *numbers, 1))
        carry = jax.block_until_ready(zero())
        begin = time.perf_counter()
        jax.block_until_ready(run(carry, data, data, *numbers, steps))
        each = (time.perf_counter() - begin) / steps
        return {"peak": peak(), "planned": bytes_, "seconds": each, "parameters": parameters}

    problem = bl.Problem(weighted, plain, data, data)
    method: Any = bl.AID(bl.GradientDescent(STEP, N), bl.Richardson(STEP, Q))
    if contender == "ITD, stored":
        method = bl.ITD(bl.GradientDescent(STEP, N), memory="store")
    if contender == "biloop, y0 on the device":
        y = jax.device_put(y)
    run = bl.solve(problem, x, y, method, outer=OUTER_STEP, steps=steps, progress=False)
    highest = peak()
    settings = Settings(problem, method, as_outer_step(OUTER_STEP))
    engine = Engine(settings, first_state(settings, x, y), Goal(steps))
    bytes_ = planned(engine.lowered().compile())
    each = statistics.median(np.diff(run.trace["seconds"]))
    return {"peak": highest, "planned": bytes_, "seconds": float(each), "parameters": parameters}


def compilation(contender: str, small: bool) -> dict[str, float]:
    """Seconds of wall clock of the first run less those of the second."""
    x, y, data = start([64, 128, 128, 10], 512)
    if contender == "by hand":
        hand = by_hand(weighted, plain, N, Q)
        zero = lambda: jax.device_put((x, y, jax.tree.map(np.zeros_like, y)))  # noqa: E731
        numbers = (jnp.float32(STEP), jnp.float32(OUTER_STEP), 10)
        run = lambda: hand(zero(), data, data, *numbers)  # noqa: E731
    else:
        problem = bl.Problem(weighted, plain, data, data)
        method = bl.AID(bl.GradientDescent(STEP, N), bl.Richardson(STEP, Q))
        run = lambda: bl.solve(problem, x, y, method, outer=OUTER_STEP, steps=10).x  # noqa: E731
    jax.block_until_ready(jnp.ones(3) @ jnp.ones(3))  # the device is awake
    first = timed(run)
    return {"seconds": first - timed(run)}


def cleaning(contender: str, small: bool) -> dict[str, float]:
    """Milliseconds per outer step, and times two passes over X for each gradient or product."""
    jax.config.update("jax_default_matmul_precision", "highest")
    samples, columns, n, steps = (500, 20, 20, 5) if small else (20_000, 784, 20, 200)
    rng = np.random.default_rng(0)
    X, V = (jnp.asarray(rng.standard_normal((m, columns), np.float32)) for m in (samples, 5000))
    t, s = (jnp.asarray(rng.integers(0, 10, len(A))) for A in (X, V))

    def loss(W: jax.Array, A: jax.Array, labels: jax.Array) -> jax.Array:
        return -jnp.take_along_axis(jax.nn.log_softmax(A @ W), labels[:, None], axis=1)[:, 0]

    def inner(x: jax.Array, W: jax.Array, A: jax.Array, labels: jax.Array) -> jax.Array:
        return jnp.mean(jax.nn.sigmoid(x) * loss(W, A, labels)) + 1e-3 * jnp.sum(W**2)

    def outer(x: jax.Array, W: jax.Array, A: jax.Array, labels: jax.Array) -> jax.Array:
        return jnp.mean(loss(W, A, labels))

    x, W = jnp.zeros(samples), jnp.zeros((columns, 10))
    if contender == "by hand":
        hand = by_hand(inner, outer, n, n)
        numbers = (jnp.float32(0.1), jnp.float32(0.1), steps)
        run = lambda: hand((x + 0, W + 0, W + 0), (X, t), (V, s), *numbers)  # noqa: E731
        run()
        each = min(timed(run) for _ in range(3)) / steps
    else:
        problem = bl.Problem(inner, outer, (X, t), (V, s))
        method = bl.AID(bl.GradientDescent(0.1, n), bl.Richardson(0.1, n))
        run = lambda: bl.solve(problem, x, W, method, outer=0.1, steps=steps).seconds  # noqa: E731
        run()
        each = min(run() for _ in range(3)) / steps
    # Many passes in one program: a launch takes as long as a pass.
    copies = jax.jit(lambda A: lax.fori_loop(0, 200, lambda i, A: -A, A))
    copies(X)
    a_copy = min(timed(lambda: copies(X)) for _ in range(5)) / 200  # reads X and writes it
    passes = (2 * n + 1) * a_copy  # two passes for each, and a copy is two
    return {"milliseconds": 1e3 * each, "passes": each / passes}


PARTS: dict[str, tuple[Callable, list[str]]] = {
    "memory": (memory, ["by hand", "biloop", "biloop, y0 on the device", "ITD, stored"]),
    "compile": (compilation, ["by hand", "biloop"]),
    "cleaning": (cleaning, ["by hand", "biloop"]),
}


def main() -> None:
    """Print a table for each part, with ratios; JSON to --out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--part", choices=PARTS, nargs="*", default=list(PARTS))
    parser.add_argument("--out", help="a file for the numbers as JSON")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        part, contender = arguments.measure
        print(json.dumps(PARTS[part][0](contender, arguments.small)))
        return
    found: dict[str, Any] = {}
    for part in arguments.part:
        print(part, flush=True)
        for contender in PARTS[part][1]:
            command = [sys.executable, __file__, "--measure", part, contender]
            command += ["--small"] * arguments.small
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"  {contender:26} failed: {done.stderr.strip()[-400:]}", flush=True)
                continue
            numbers = json.loads(done.stdout.splitlines()[-1])
            hand = found.setdefault(part, {}).setdefault("by hand", numbers)
            found[part][contender] = numbers
            text = "  ".join(f"{k} {v:.4g} ({v / hand[k]:.2f})" for k, v in numbers.items())
            print(f"  {contender:26}{text}", flush=True)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
