"""A single loop on batches whose steps nobody tunes: Φ after so many passes, or how it failed.

MA-SOBA with 1/L for y and v, L the largest curvature of sixteen batches at the start, and for x the
distance over gradients of M. Ivgi, O. Hinder and Y. Carmon (DoG is SGD's best friend, 2023),

    x ← x − r d / (Σ ‖d‖²)^½      r the farthest from x0 so far, at first 1/1000 of x

with the averaged d of MA-SOBA. It was tried as a beginning for `auto(batch=64)`, and is none:
docs/sampled.md.

    BILOOP_DATA=folder python -m benchmarks.untuned cleaning-mnist ijcnn1
    python -m benchmarks.untuned cleaning-digits logistic mixture-fragments
"""

import argparse
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import biloop as bl
from benchmarks.quality.objective import Phi
from biloop.vectors import add_scaled, norm, size, subtract

BATCH, SHARE = 64, 1e-3
PASSES = (1, 3, 10, 30)


class Seen(NamedTuple):
    """Where x began, how far from it x has been, and Σ ‖d‖²."""

    begin: Any
    farthest: jax.Array
    squares: jax.Array


class DistanceOverGradients(bl.OuterStep):
    """x ← x − r d / (Σ ‖d‖²)^½."""

    first: jax.Array = eqx.field(converter=jnp.asarray)

    def init(self, x):
        return Seen(x, self.first, jnp.zeros_like(self.first))

    def step(self, x, h, value, state):
        distance = norm(subtract(x, state.begin)).astype(self.first.dtype)
        farthest = jnp.maximum(state.farthest, distance)
        squares = state.squares + norm(h).astype(self.first.dtype) ** 2
        length = farthest / jnp.sqrt(jnp.where(squares > 0, squares, 1.0))
        return add_scaled(x, -length, h), Seen(state.begin, farthest, squares), jnp.ones((), bool)


def stable_step(problem: bl.Problem, x: Any, y: Any) -> float:
    """1/L, L the largest curvature of sixteen batches."""
    rng = np.random.default_rng(0)
    rows = [rng.choice(problem.inner_samples, BATCH, replace=False) for _ in range(16)]
    return min(float(bl.estimate.step_sizes(problem.batch(r, None), x, y).inner) for r in rows)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("problems", nargs="+")
    parser.add_argument("--most", type=int, default=PASSES[-1], help="the most passes")
    options = parser.parse_args()
    for name in options.problems:
        found = bl.problems.load(name)
        problem, x0, y0 = found.problem, found.x0, found.y0
        phi, step = Phi(problem, y0), stable_step(problem, x0, y0)
        method = bl.schemes.ma_soba(BATCH, step, step)
        first = np.float32(SHARE * max(float(norm(x0)), size(x0) ** 0.5))
        told = [f"0: {phi([(x0, y0)])[0]:.4f}"]
        for passes in [each for each in PASSES if each <= options.most]:
            run = bl.solve(
                problem, x0, y0, method, outer=DistanceOverGradients(first), budget=passes,
                progress=False,
            )  # fmt: skip
            value = run.status.name if run.status.failed else f"{phi([(run.x, run.y)])[0]:.4f}"
            told.append(f"{passes}: {value}")
        print(f"{name}, steps of y and v {step:.3g}; Φ after passes: {', '.join(told)}", flush=True)


if __name__ == "__main__":
    # Data that are float32 stay so; Φ needs more.
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")
    main()
