"""AID on a network of 10⁸ parameters: float32, bfloat16, and loops written by hand.

    python benchmarks/size.py [--width 5000] [--samples 8192] [--steps 3] [--out size.json]

Each row is a process of its own, so that the peak of its memory is its own: N = Q = 10 inside of
`solve`, in float32 and with the network computed in bfloat16 (`problems.in_precision`), products
from one linearisation or made anew, and the same loops by hand. On a CPU take `--width 300
--samples 256`.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LAYERS, N, Q = 4, 10, 10
ALPHA, BETA = 0.1, 1.0
ROWS = (
    ("solve", "float32", False),
    ("solve", "bfloat16", False),
    ("solve", "bfloat16", True),
    ("by hand", "float32", False),
    ("by hand", "bfloat16", False),
)


def outputs(x: Any, y: Any, X: Any, labels: Any) -> Any:
    import jax

    for W in y[:-1]:
        X = jax.nn.gelu(X @ W)
    return X @ y[-1]


def losses(z: Any, labels: Any) -> Any:
    import jax
    import jax.numpy as jnp

    return jax.nn.logsumexp(z, axis=1) - jnp.take_along_axis(z, labels[:, None], axis=1)[:, 0]


def weighted(x: Any, z: Any, X: Any, labels: Any) -> Any:
    import jax
    import jax.numpy as jnp

    return jnp.mean(jax.nn.sigmoid(x) * losses(z, labels))


def penalty(x: Any, y: Any) -> Any:
    import jax.numpy as jnp

    return 1e-4 * sum(jnp.sum(W**2) for W in y)


def data(width: int, samples: int) -> tuple[Any, ...]:
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(0), LAYERS + 4)
    sets = [
        (
            jax.random.normal(keys[2 * i], (samples, width)),
            jax.random.randint(keys[2 * i + 1], (samples,), 0, width),
        )
        for i in range(2)
    ]
    y = [jax.random.normal(key, (width, width)) * width**-0.5 for key in keys[4:]]
    return sets[0], sets[1], jnp.zeros(samples), y


def by_solve(dtype: str, recompute: bool, width: int, samples: int, steps: int) -> list[float]:
    """Seconds of each outer step, and f at the end."""
    import jax.numpy as jnp

    import biloop as bl

    train, validation, x, y = data(width, samples)
    problem = bl.Problem(
        bl.Composite(outputs, weighted, penalty),
        bl.Composite(outputs, lambda x, z, X, labels: jnp.mean(losses(z, labels))),
        train,
        validation,
    )
    if dtype == "bfloat16":
        problem = bl.problems.in_precision(problem, jnp.bfloat16)
    del train, validation
    method = bl.AID(
        bl.GradientDescent(ALPHA, N),
        bl.Richardson(ALPHA, Q),
        derivatives=bl.Autodiff(recompute=recompute),
    )
    predicted = bl.Autodiff().predict_bytes(problem, x, y)
    # The first steps of a chunk warm the device up.
    run = bl.solve(problem, x, y, method, outer=BETA, steps=steps, progress=False)
    return [run.seconds / run.steps, run.value, *predicted.values()]


def by_hand(dtype: str, width: int, samples: int, steps: int) -> list[float]:
    """The same loops, as one would write them."""
    from functools import partial

    import jax
    import jax.numpy as jnp

    (X, labels), (V, answers), x, y = data(width, samples)
    if dtype == "bfloat16":
        X, V = X.astype(jnp.bfloat16), V.astype(jnp.bfloat16)

    def network(y: Any, X: Any) -> Any:
        if dtype == "bfloat16":
            y = [W.astype(jnp.bfloat16) for W in y]
        return outputs(None, y, X, None).astype(jnp.float32)

    def g(x: Any, y: Any, X: Any, labels: Any) -> Any:
        return weighted(x, network(y, X), X, labels) + penalty(x, y)

    def f(y: Any, V: Any, answers: Any) -> Any:
        return jnp.mean(losses(network(y, V), answers))

    def moved(a: Any, step: float, b: Any) -> Any:
        return jax.tree.map(lambda a, b: a + step * b, a, b)

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(x: Any, y: Any, v: Any, X: Any, labels: Any, V: Any, answers: Any) -> Any:
        slope = jax.grad(g, argnums=1)
        y = jax.lax.fori_loop(0, N, lambda _, y: moved(y, -ALPHA, slope(x, y, X, labels)), y)
        value, b = jax.value_and_grad(f)(y, V, answers)
        _, transpose = jax.vjp(lambda x, y: slope(x, y, X, labels), x, y)

        def product(_: Any, v: Any) -> Any:
            return moved(v, -ALPHA, moved(transpose(v)[1], -1.0, b))

        v = jax.lax.fori_loop(0, Q, product, v)
        return x + BETA * transpose(v)[0], y, v, value

    v = jax.tree.map(jnp.zeros_like, y)
    x, y, v, value = jax.block_until_ready(step(x, y, v, X, labels, V, answers))
    start = time.perf_counter()
    for _ in range(steps):
        x, y, v, value = step(x, y, v, X, labels, V, answers)
    jax.block_until_ready(x)
    return [(time.perf_counter() - start) / steps, float(value)]


def one(row: str, width: int, samples: int, steps: int) -> dict[str, Any]:
    """A row, measured in this process."""
    import jax

    way, dtype, recompute = ROWS[int(row)]
    if way == "solve":
        seconds, value, *predicted = by_solve(dtype, recompute, width, samples, steps)
    else:
        seconds, value, *predicted = by_hand(dtype, width, samples, steps)
    stats = jax.local_devices()[0].memory_stats() or {}
    return {
        "way": way,
        "dtype": dtype,
        "recompute": recompute,
        "seconds": seconds,
        "value": value,
        "peak": stats.get("peak_bytes_in_use", 0),
        "predicted": predicted,
        "device": str(jax.devices()[0]),
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'':34} {'ms/step':>9} {'peak GB':>8} {'f':>8}"]
    for r in rows:
        name = f"{r['way']}, {r['dtype']}{', recomputed' if r['recompute'] else ''}"
        lines.append(
            f"{name:34} {1e3 * r['seconds']:9.1f} {r['peak'] / 1e9:8.2f} {r['value']:8.4f}"
        )
    found = {(r["way"], r["dtype"], r["recompute"]): r for r in rows}
    ours, full = found["solve", "bfloat16", False], found["solve", "float32", False]
    lines.append(f"bfloat16 is {full['seconds'] / ours['seconds']:.2f} times faster than float32")
    for dtype in ("float32", "bfloat16"):
        ours, hand = found["solve", dtype, False], found["by hand", dtype, False]
        peak = f"{ours['peak'] / hand['peak']:.2f}" if hand["peak"] else "not told here"
        lines.append(
            f"{dtype}: {ours['seconds'] / hand['seconds']:.2f} times the loops by hand in time, "
            f"{peak} in memory"
        )
    kept, again = full["predicted"]
    lines.append(
        f"predicted for products (float32): {kept / 1e9:.2f} GB kept, {again / 1e9:.2f} anew"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=5000)
    parser.add_argument("--samples", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = options.width, options.samples, options.steps
    if options.row is not None:
        print(json.dumps(one(options.row, *sizes)))
        return
    rows = []
    for i in range(len(ROWS)):
        command = [sys.executable, __file__, "--row", str(i)]
        for name, size in zip(("--width", "--samples", "--steps"), sizes, strict=True):
            command += [name, str(size)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"{ROWS[i]} failed: {done.stderr[-2000:]}")
            continue
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    if options.out:
        options.out.write_text(json.dumps(rows))
    if len(rows) == len(ROWS):
        print(table(rows))


if __name__ == "__main__":
    main()
