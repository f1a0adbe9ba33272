"""Data cleaning on all devices there are, of one process or of many; x is split like the samples.

Each process makes only its own rows. Nothing is gathered: what is printed are means, taken where
the samples are.

    python examples/sharded.py                  # the devices of this machine
    XLA_FLAGS=--xla_force_host_platform_device_count=8 python examples/sharded.py
    srun python examples/sharded.py --join      # many processes under SLURM: see docs/scaling.md
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import biloop as bl

FEATURES, CLASSES = 20, 4
BLOCK = 64  # rows are made in blocks, the same however many processes there are
NOISE = 0.3


def blocks(total: int) -> np.ndarray:
    """The blocks of rows that belong to this process."""
    return np.array_split(np.arange(total), jax.process_count())[jax.process_index()]


def make_block(seed: int, noise: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, one-hot labels, and which of the labels are wrong."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(BLOCK, FEATURES))
    labels = np.argmax(inputs[:, :CLASSES] + inputs[:, CLASSES : 2 * CLASSES], axis=1)
    wrong = rng.random(BLOCK) < noise
    labels = (labels + wrong * rng.integers(1, CLASSES, BLOCK)) % CLASSES
    return inputs, np.eye(CLASSES)[labels], wrong


def make_rows(total: int, first_seed: int, noise: float = 0.0) -> list[np.ndarray]:
    made = [make_block(first_seed + block, noise) for block in blocks(total)]
    return [np.concatenate(arrays) for arrays in zip(*made, strict=True)]


def cross_entropy(W: Any, inputs: Any, labels: Any) -> Any:
    scores = inputs @ W.T
    return jax.nn.logsumexp(scores, axis=1) - jnp.sum(scores * labels, axis=1)


def inner(x: Any, W: Any, inputs: Any, labels: Any) -> Any:
    return jnp.mean(jax.nn.sigmoid(x) * cross_entropy(W, inputs, labels)) + 0.001 * jnp.sum(W**2)


def outer(x: Any, W: Any, inputs: Any, labels: Any) -> Any:
    return jnp.mean(cross_entropy(W, inputs, labels))


@jax.jit
def mean_weights(x: Any, wrong: Any) -> Any:
    """Of the samples with wrong labels, and of the others."""
    weight = jax.nn.sigmoid(x)
    return jnp.mean(weight, where=wrong), jnp.mean(weight, where=~wrong)


def main(steps: int = 200, total: int = 64) -> tuple[bl.Run, float, float]:
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    inputs, labels, wrong = make_rows(total, first_seed=0, noise=NOISE)
    validation = make_rows(total // 4, first_seed=total)[:2]

    # local=True: what is given are the rows of this process, not all rows.
    x0 = np.zeros(len(wrong))
    inputs, labels, wrong, x0 = bl.shard((inputs, labels, wrong, x0), mesh, local=True)
    validation = bl.shard(tuple(validation), mesh, local=True)
    problem = bl.Problem(inner, outer, inner_data=(inputs, labels), outer_data=validation)

    method = bl.schemes.n_q_loop(5, 5, inner_step=1.0, linear_step=1.0)
    outer_step = 0.2 * total * BLOCK  # ∂f/∂x_i is of the order of 1/n
    run = bl.solve(
        problem, x0, np.zeros((CLASSES, FEATURES)), method, outer=outer_step, steps=steps
    )

    noisy, clean = map(float, mean_weights(run.x, wrong))
    if jax.process_index() == 0:
        print(f"{jax.process_count()} processes, {jax.device_count()} devices: {run.message}")
        print(f"{total * BLOCK} samples, {len(inputs.addressable_shards[0].data)} on each device")
        print(f"validation loss {run.trace['value'][0]:.4f} → {run.trace['value'][-1]:.4f}")
        print(f"mean weight of samples with wrong labels {noisy:.3f}, of the others {clean:.3f}")
    return run, noisy, clean


if __name__ == "__main__":
    if "--join" in sys.argv:
        jax.distributed.initialize()  # finds the others under SLURM, Open MPI and on TPU pods
    main()
