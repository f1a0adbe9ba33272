"""Data larger than memory: 20 GB of rows in sparse files, and how much of them is resident.

    python benchmarks/stream.py                  # about a minute; nothing is written to the disk

SOBA with batches of 256 rows of two memmaps. The files are holes, so that they take no space;
their pages are read like any others. Beside it the time per step with as many rows in memory.
"""

import argparse
import resource
import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import biloop as bl

FEATURES, BATCH = 1000, 256


def inner(x, y, X, t):
    return 0.5 * jnp.mean((X @ y - t - 1.0) ** 2) + 0.5 * jnp.sum(jnp.exp(x) * y**2)


def outer(x, y, V, u):
    return 0.5 * jnp.mean((V @ y - u) ** 2) + 0.1 * jnp.sum(x**2)


def megabytes() -> float:
    """The most that was resident so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=4000)
    given = parser.parse_args()
    rows = int(given.gigabytes * 1e9 / 4 / (FEATURES + 1))
    few = np.ones((50 * BATCH, FEATURES), np.float32), np.ones(50 * BATCH, np.float32)
    x, y, method = jnp.zeros(FEATURES), jnp.zeros(FEATURES), bl.schemes.soba((BATCH, BATCH))
    with tempfile.TemporaryDirectory() as folder:
        X = np.memmap(Path(folder) / "X", np.float32, "w+", shape=(rows, FEATURES))
        t = np.memmap(Path(folder) / "t", np.float32, "w+", shape=(rows,))
        far = bl.Problem(inner, outer, bl.Stream.rows(X, t), few)
        near = bl.Problem(inner, outer, few, few)
        before = megabytes()
        run = bl.solve(far, x, y, method, outer=0.1, steps=given.steps, progress=False)
        most = megabytes()
        memory = bl.solve(near, x, y, method, outer=0.1, steps=given.steps, progress=False)
    read = given.steps * BATCH * (FEATURES + 1) * 4 / 1e9
    print(
        f"{rows:,} rows, {given.gigabytes:g} GB; {run.steps} steps read {read:.1f} GB: at most "
        f"{most:.0f} MB resident, {before:.0f} MB before"
    )
    each = {name: 1e6 * r.seconds / r.steps for name, r in (("stream", run), ("memory", memory))}
    print(f"{each['stream']:.0f} µs a step, in memory {each['memory']:.0f} µs")


if __name__ == "__main__":
    main()
