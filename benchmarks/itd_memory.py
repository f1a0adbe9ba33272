"""What the memory modes of ITD cost: bytes predicted, set aside and touched, and seconds.

Softmax regression with a weight for each sample (data cleaning), in float32; random numbers of the
size of 2 000 images of MNIST by default. Each mode has a process of its own for its memory: the
peak of the resident memory during the second hypergradient, over what was resident before it (the
data among it) when the first had given its memory back; Linux only. Seconds are minima over
alternating turns of all modes in one process, beside a loop that is written by hand and
differentiated by JAX.

The way forward carries a tangent for each entry of x, so it is shown with ten weights that the
samples share.

    python benchmarks/itd_memory.py [--samples 2000] [--steps 20 100 1000] [--turns 3]
"""

import argparse
import ctypes
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import biloop as bl

FEATURES, CLASSES, VALIDATION, FEW = 784, 10, 1000, 10
STEP = 0.1
TRUNCATE = 10
BY_HAND = "by hand"
WIDTHS = {"predicted": 10, "temporaries": 9, "resident": 10}
MODES: dict[str, dict[str, Any]] = {
    "store": {"memory": "store"},
    "recompute": {"memory": "recompute"},
    "sqrt": {"memory": "sqrt"},
    f"last {TRUNCATE} steps": {"truncate": TRUNCATE},
    "forward": {"memory": "forward"},
}


def losses(W: Any, inputs: Any, targets: Any) -> Any:
    scores = inputs @ W
    return jax.nn.logsumexp(scores, axis=1) - jnp.sum(scores * targets, axis=1)


def inner(x: Any, W: Any, inputs: Any, targets: Any) -> Any:
    weights = jax.nn.sigmoid(jnp.resize(x, inputs.shape[0]))  # sample i has weight i mod p
    return jnp.mean(weights * losses(W, inputs, targets)) + 0.001 * jnp.sum(W**2)


def outer(x: Any, W: Any, inputs: Any, targets: Any) -> Any:
    return jnp.mean(losses(W, inputs, targets))


def make_problem(samples: int, mode: str) -> tuple[bl.Problem, Any, Any]:
    """The problem, and where x and y start."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(FEATURES, CLASSES))

    def draw(count: int) -> tuple[Any, Any]:
        inputs = rng.random((count, FEATURES), np.float32) / 4
        return inputs, np.eye(CLASSES, dtype=np.float32)[np.argmax(inputs @ truth, axis=1)]

    problem = bl.Problem(inner, outer, inner_data=draw(samples), outer_data=draw(VALIDATION))
    p = FEW if mode == "forward" else samples
    return problem, jnp.zeros(p, jnp.float32), jnp.zeros((FEATURES, CLASSES), jnp.float32)


def hypergradient(mode: str, steps: int) -> Callable[..., Any]:
    """(problem, x, y) -> h."""
    if mode == BY_HAND:
        return lambda problem, x, y: jax.grad(unrolled)(x, y, problem, steps)
    method = bl.ITD(bl.GradientDescent(STEP, steps), **MODES[mode])
    return lambda problem, x, y: method(problem, x, method.init(problem, x, y), 0)[0]


def unrolled(x: Any, y: Any, problem: bl.Problem, steps: int) -> Any:
    """f(x, y^N(x)) as one writes it; differentiating it stores everything."""
    gradient = jax.grad(inner, 1)

    def step(y: Any, _: None) -> tuple[Any, None]:
        return y - STEP * gradient(x, y, *problem.inner_data), None

    y, _ = lax.scan(step, y, length=steps)
    return outer(x, y, *problem.outer_data)


def memory(samples: int, mode: str, steps: int) -> dict[str, float]:
    """Bytes over the data: predicted, set aside by XLA, and touched by one hypergradient."""
    problem, x, y = make_problem(samples, mode)
    compiled = jax.jit(hypergradient(mode, steps)).lower(problem, x, y).compile()
    method = bl.ITD(bl.GradientDescent(STEP, steps), **MODES[mode])
    predicted = method.predict_bytes(problem, x, y)[method.memory]
    jax.block_until_ready(compiled(problem, x, y))  # threads and libraries are in place after it
    before = resident(reset=True)
    jax.block_until_ready(compiled(problem, x, y))
    return {
        "predicted": predicted,
        "temporaries": compiled.memory_analysis().temp_size_in_bytes,
        "resident": resident() - before,
    }


def resident(*, reset: bool = False) -> float:
    """The peak of the resident bytes since the last reset; NaN where Linux does not tell."""
    status = Path("/proc/self/status")
    if not status.exists():
        return math.nan
    if reset:
        ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back to the system
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return 1024.0 * int(fields["VmHWM"].split()[0])


def seconds(samples: int, steps: int, turns: int) -> dict[str, float]:
    """The fastest turn of each mode, and of the loop by hand; the hypergradients must agree."""
    runs = {}
    for mode in (BY_HAND, *MODES):
        problem, x, y = make_problem(samples, mode)
        compiled = jax.jit(hypergradient(mode, steps))
        runs[mode] = lambda compiled=compiled, a=(problem, x, y): compiled(*a)
    ends = {mode: np.asarray(run()) for mode, run in runs.items()}  # also compiles
    for mode in ("store", "recompute", "sqrt"):
        difference = np.linalg.norm(ends[mode] - ends[BY_HAND]) / np.linalg.norm(ends[BY_HAND])
        assert difference < 1e-4, f"{mode} differs from the loop by hand by {difference:.1e}"

    best = dict.fromkeys(runs, math.inf)
    for _ in range(turns):
        for mode, run in runs.items():
            start = time.perf_counter()
            jax.block_until_ready(run())
            best[mode] = min(best[mode], time.perf_counter() - start)
    return best


def in_own_process(*arguments: object) -> dict[str, float]:
    command = [sys.executable, __file__, "--worker", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print a row for each number of steps and each mode."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--steps", type=int, nargs="+", default=[20, 100, 1000])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        samples, steps, turns, *mode = arguments.worker
        found = (
            memory(int(samples), *mode, int(steps))
            if mode
            else seconds(int(samples), int(steps), int(turns))
        )
        print(json.dumps(found))
        return

    print(f"{arguments.samples} × {FEATURES} × {CLASSES}, float32; MB over the data")
    print(f"{'N':>5} {'mode':15}{'predicted':>10}{'XLA':>9}{'resident':>10}{'s':>9}{'ratio':>7}")
    for steps in arguments.steps:
        best = in_own_process(arguments.samples, steps, arguments.turns)
        print(
            f"{steps:5} {BY_HAND:15}{'':29}{best[BY_HAND]:9.3f}{best[BY_HAND] / best['store']:7.2f}"
        )
        for mode in MODES:
            m = in_own_process(arguments.samples, steps, arguments.turns, mode)
            row = "".join(f"{m[name] / 1e6:{w}.2f}" for name, w in WIDTHS.items())
            print(f"{steps:5} {mode:15}{row}{best[mode]:9.3f}{best[mode] / best['store']:7.2f}")


if __name__ == "__main__":
    main()
