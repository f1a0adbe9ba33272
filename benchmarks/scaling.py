"""What many devices would give: predicted seconds per outer step for 2, 8 and 64 of them.

Softmax regression with a weight per training sample (data cleaning), AID with loops of equal
length. The work on n/p rows is measured on one device; the communication is the model of
docs/scaling.md, one all-reduce of the size of y per gradient or product:

    T(p) = work(n/p) + (N + Q + 1) · r(p, bytes of y) + 3 · r(p, one number)
    r(p, b) = min(2(p − 1)(a + b/(p B)),  ⌈log₂ p⌉(a + b/B))        latency a, bandwidth B

Where the machine has p devices, the same is also measured. A CPU is made to look like two devices:
they share its cores, so that column shows what sharding costs, not what it gains.

    python benchmarks/scaling.py [--samples 20480] [--features 785] [--classes 10] [--loop 10]
"""

import argparse
import math
import os
from typing import NamedTuple

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

import jax
import jax.numpy as jnp
import numpy as np

import biloop as bl

DEVICES = (1, 2, 8, 64)
SECONDS = 1.0  # of measurement, in each of three turns


class Link(NamedTuple):
    """How devices are connected: seconds per message, and bytes per second in one direction."""

    name: str
    latency: float
    bandwidth: float


# Nominal figures of the hardware, not measurements.
LINKS = (
    Link("NVLink", 3e-6, 450e9),
    Link("InfiniBand", 6e-6, 50e9),
    Link("Ethernet", 30e-6, 12.5e9),
)


def all_reduce_seconds(devices: int, size: float, link: Link) -> float:
    """The better of a ring, which sends parts, and of doubling, which sends all but less often."""
    if devices == 1:
        return 0.0
    a, B = link.latency, link.bandwidth
    ring = 2 * (devices - 1) * (a + size / (devices * B))
    doubling = math.ceil(math.log2(devices)) * (a + size / B)
    return min(ring, doubling)


def communication_seconds(devices: int, loop: int, y_bytes: int, link: Link) -> float:
    """Of one outer step of AID with N = Q = loop, if x_i stays where sample i is."""
    vectors = 2 * loop + 1  # N gradients of g, Q products, and the gradient of f
    numbers = 3  # f, ‖h‖ and whether all is finite
    return vectors * all_reduce_seconds(devices, y_bytes, link) + numbers * all_reduce_seconds(
        devices, 4, link
    )


def cross_entropy(W, inputs, labels):
    scores = inputs @ W.T
    return jax.nn.logsumexp(scores, axis=1) - jnp.take_along_axis(scores, labels[:, None], 1)[:, 0]


def inner(x, W, inputs, labels):
    return jnp.mean(jax.nn.sigmoid(x) * cross_entropy(W, inputs, labels)) + 1e-3 * jnp.sum(W**2)


def outer(x, W, inputs, labels):
    return jnp.mean(cross_entropy(W, inputs, labels))


def make_data(samples: int, features: int, classes: int):
    rng = np.random.default_rng(0)
    inputs = rng.random(size=(samples, features), dtype=np.float32)
    return inputs, rng.integers(0, classes, samples, dtype=np.int32)


def seconds_per_step(data, y, loop: int, devices: int = 1) -> float:
    """Measured; validation samples are an eighth of the training samples."""
    inputs, labels = data
    validation = (inputs[: len(inputs) // 8], labels[: len(inputs) // 8])
    x = np.zeros(len(inputs), np.float32)
    if devices > 1:
        mesh = jax.make_mesh((devices,), ("data",), devices=jax.devices()[:devices])
        data, validation, (x,) = (bl.shard(d, mesh) for d in (data, validation, (x,)))
    problem = bl.Problem(inner, outer, data, validation)
    method = bl.schemes.n_q_loop(loop, loop, inner_step=1e-3, linear_step=1e-3)

    def run(steps: int) -> float:
        done = bl.solve(problem, x, y, method, outer=1.0, steps=steps)
        if done.status.failed:
            raise SystemExit(done.message)
        return done.seconds / done.steps

    steps = max(1, math.ceil(SECONDS / run(3)))
    return min(run(steps) for _ in range(3))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=20480)
    parser.add_argument("--features", type=int, default=785)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--loop", type=int, default=10, help="N and Q")
    arguments = parser.parse_args()
    n, loop = arguments.samples, arguments.loop
    if n % (8 * DEVICES[-1]):
        parser.error(f"--samples must be a multiple of {8 * DEVICES[-1]}, got {n}")

    y = np.zeros((arguments.classes, arguments.features), np.float32)
    print(
        f"{n:,} samples × {arguments.features} features × {arguments.classes} classes, float32, "
        f"N = Q = {loop}, on {jax.devices()[0].device_kind}\n"
        f"{2 * loop + 1} all-reduces of {y.nbytes / 1e3:.1f} kB in each outer step\n"
    )
    print(f"{'milliseconds per outer step (speed-up)':>55}")
    names = "".join(f"{link.name:>17}" for link in LINKS)
    print(f"{'devices':>7}{'work':>10}{names}{'measured here':>17}")

    def cell(seconds: float, alone: float) -> str:
        return f"{1e3 * seconds:9.3f} ({alone / seconds:4.1f}×)"

    data, alone = make_data(n, arguments.features, arguments.classes), 0.0
    for p in DEVICES:
        work = seconds_per_step(tuple(a[: n // p] for a in data), y, loop)
        alone = alone or work
        row = f"{p:7}{1e3 * work:10.3f}"
        for link in LINKS:
            row += cell(work + communication_seconds(p, loop, y.nbytes, link), alone)
        if 1 < p <= jax.device_count():
            row += cell(seconds_per_step(data, y, loop, p), alone)
        print(row, flush=True)


if __name__ == "__main__":
    main()
