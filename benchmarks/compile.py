"""What it costs to trace and compile, beside a hand-written loop of the same algorithm.

Ridge regression of ten weights with one penalty, AID. Each contender gets a fresh process; counted
are the processor seconds of its first run less those of a second one, so all that is compiled on
the way counts. The median of five processes each, which take turns.

    python benchmarks/compile.py

For information, the seconds of all programs by stage: tracing, lowering, XLA; and their number.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import biloop as bl

STEP, OUTER_STEP, N, Q, STEPS = 0.1, 0.1, 10, 10, 100
LIMITS = {"fixed loops": 1.6, "auto": 3.0}
STAGES = {
    "jaxpr_trace_duration": "trace",
    "jaxpr_to_mlir_module_duration": "lower",
    "backend_compile_duration": "XLA",
}


def inner(x, y, X, t):
    """½ mean (Xy − t)² + ½ eˣ ‖y‖²."""
    return jnp.mean((X @ y - t) ** 2) / 2 + jnp.exp(x) * jnp.sum(y**2) / 2


def outer(x, y, V, s):
    """½ mean (Vy − s)²."""
    return jnp.mean((V @ y - s) ** 2) / 2


def by_hand(x, y, v, X, t, V, s):
    """The base loop as one writes it, for a scalar x."""

    def outer_step(carry, _):
        x, y, v = carry
        gradient = jax.grad(inner, 1)
        y = lax.fori_loop(0, N, lambda _, y: y - STEP * gradient(x, y, X, t), y)
        value, (f_x, f_y) = jax.value_and_grad(outer, (0, 1))(x, y, V, s)
        _, products = jax.vjp(lambda x, y: gradient(x, y, X, t), x, y)
        v = lax.fori_loop(0, Q, lambda _, v: v - STEP * (products(v)[1] - f_y), v)
        h = f_x - products(v)[0]
        return (x - OUTER_STEP * h, y, v), (value, jnp.abs(h))

    return lax.scan(outer_step, (x, y, v), length=STEPS)


def contenders() -> dict[str, Callable[[], object]]:
    """What is run, by name."""
    rng = np.random.default_rng(0)
    X, V = jnp.asarray(rng.normal(size=(2, 30, 10)), jnp.float32)
    t, s = jnp.asarray(rng.normal(size=(2, 30)), jnp.float32)
    x, y = jnp.zeros((), jnp.float32), jnp.zeros(10, jnp.float32)
    problem = bl.Problem(inner, outer, (X, t), (V, s))
    scan = jax.jit(by_hand)

    def fixed():
        method = bl.AID(bl.GradientDescent(STEP, N), bl.Richardson(STEP, Q))
        return bl.solve(problem, x, y, method, outer=OUTER_STEP, steps=STEPS).x

    return {
        "lax.scan by hand": lambda: scan(x, y, y, X, t, V, s),
        "fixed loops": fixed,
        "auto": lambda: bl.solve(problem, x, y, bl.schemes.auto(), outer="auto", steps=STEPS).x,
    }


def measure(name: str) -> dict[str, float]:
    """Processor seconds, and seconds by stage, of the first run in this process."""
    run, stages = contenders()[name], Counter()

    def listen(event: str, seconds: float, **_: object) -> None:
        if (stage := STAGES.get(event.rsplit("/", 1)[-1])) is not None:
            stages[stage] += seconds
            stages["programs"] += stage == "XLA"

    def processor_seconds() -> float:
        start = time.process_time()
        jax.block_until_ready(run())
        return time.process_time() - start

    jax.monitoring.register_event_duration_secs_listener(listen)
    first = processor_seconds()
    seen = dict(stages)
    return {"seconds": first - processor_seconds(), **seen}


def main() -> None:
    """Print processor seconds, stages and ratios; exit with 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return

    names = ["lax.scan by hand", *LIMITS]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(arguments.turns):
        for name in names:
            command = [sys.executable, __file__, "--measure", name]
            line = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found[name].append(json.loads(line.splitlines()[-1]))

    columns = ["seconds", "trace", "lower", "XLA", "programs"]
    medians = {
        name: {c: statistics.median(each[c] for each in found[name]) for c in columns}
        for name in names
    }
    floor = medians[names[0]]["seconds"]
    print(f"{'':20}{'processor s':>12}{'ratio':>8}{'limit':>8}   trace  lower    XLA  programs")
    for name, row in medians.items():
        limit = f"{LIMITS[name]:8.1f}" if name in LIMITS else " " * 8
        stages = "".join(f"{row[stage]:7.2f}" for stage in ("trace", "lower", "XLA"))
        ratio = row["seconds"] / floor
        print(f"{name:20}{row['seconds']:12.2f}{ratio:8.2f}{limit} {stages}{row['programs']:10.0f}")
    sys.exit(any(medians[n]["seconds"] > LIMITS[n] * floor for n in LIMITS))


if __name__ == "__main__":
    main()
