"""Sampled methods on a quadratic in closed form: how fast ‖∇Φ‖² falls with the samples used.

For each horizon K a method runs with the step sizes that its paper gives for it, and the mean of
‖∇Φ(x_k)‖² over k < K, and over seeds, is measured. The slope of its logarithm against that of the
samples used is set beside the published one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from biloop.methods import Method
from biloop.paper.target import Options
from biloop.paper.work import Arrays, Work
from biloop.problem import Problem
from biloop.problems import Quadratic, sampled_quadratic
from biloop.schemes import ma_soba, saba, soba, srba, stocbio
from biloop.theory import SAMPLED_RATES, exponent

KAPPA, SAMPLES, BATCH, NOISE = 4.0, 4096, 16, 1.0
STEP, OUTER = 0.4, 0.2  # of y and v, and of x, times the powers of k
FIRST = 2**8  # the horizon for which steps of K^(−1/2) are just these
LOOP = 40  # N and Q of stocBiO: their bias, 0.9^80, is below all that is measured
HORIZONS = tuple(2**e for e in range(8, 15))
BATCHES = tuple(2**e for e in range(4, 10))  # stocBiO: as many steps as rows in a batch


@dataclass(frozen=True)
class Setting:
    """A run of K steps: the method, the step of x after k steps, and what a step costs in rows."""

    method: Method
    outer: Callable[[Array], Array]
    rows: float


@dataclass(frozen=True, eq=False)
class Found:
    """For each method, the samples used and the mean of ‖∇Φ‖² for each horizon."""

    samples: Mapping[str, np.ndarray]
    means: Mapping[str, np.ndarray]
    start: float
    seeds: tuple[int, ...]

    def slope(self, name: str) -> float:
        """The power of the samples with which the mean falls, over the larger half of horizons."""
        half = len(self.samples[name]) // 2
        return exponent(self.samples[name][half:].tolist(), self.means[name][half:].tolist())

    def published(self, name: str) -> float:
        """The power that the paper promises."""
        return SAMPLED_RATES[name].slope


def _power(step: float, p: float) -> Callable[[Array], Array]:
    """k ↦ step · (k + 1)^p."""
    return lambda k: step * (k + 1.0) ** p


def _soba(K: int, key: Array) -> Setting:
    c = (FIRST / K) ** 0.5
    return Setting(soba(BATCH, STEP * c, STEP * c, key=key), _power(OUTER * c, 0.0), 5 * BATCH)


def _decreasing(K: int, key: Array) -> Setting:
    steps = (STEP, -0.4)
    return Setting(soba(BATCH, steps, steps, key=key), _power(OUTER, -0.6), 5 * BATCH)


def _ma_soba(K: int, key: Array) -> Setting:
    c = (FIRST / K) ** 0.5
    method = ma_soba(BATCH, STEP * c, STEP * c, weight=c, key=key)
    return Setting(method, _power(OUTER * c, 0.0), 5 * BATCH)


def _saba(K: int, key: Array) -> Setting:
    return Setting(saba(BATCH, STEP / 8, STEP / 8, key=key), _power(OUTER / 8, 0.0), 5 * BATCH)


def _srba(K: int, key: Array) -> Setting:
    period = SAMPLES // BATCH
    rows = (10 * BATCH * (period - 1) + 5 * SAMPLES) / period
    method = srba(BATCH, STEP / 8, STEP / 8, period=period, key=key)
    return Setting(method, _power(OUTER / 8, 0.0), rows)


def _stocbio(K: int, key: Array) -> Setting:
    method = stocbio(K, STEP, STEP, N=LOOP, Q=LOOP, key=key)
    return Setting(method, _power(OUTER, 0.0), K * (LOOP + 2 + LOOP + 1))


METHODS: Mapping[str, tuple[Callable[[int, Array], Setting], tuple[int, ...]]] = {
    "SOBA": (_soba, HORIZONS),
    "SOBA, decreasing": (_decreasing, HORIZONS),
    "MA-SOBA": (_ma_soba, HORIZONS),
    "SABA": (_saba, HORIZONS),
    "SRBA": (_srba, HORIZONS),
    "stocBiO": (_stocbio, BATCHES),
}


def run(options: Options, work: Work) -> Found:
    """All methods at all horizons; a quick run has fewer of them."""
    seeds = tuple(range(3 if options.quick else 10)) if options.seeds is None else options.seeds
    instance = sampled_quadratic(KAPPA, samples=SAMPLES, noise=NOISE)
    samples, means = {}, {}
    for name, (make, horizons) in METHODS.items():
        chosen = horizons[:-2] if options.quick else horizons
        settings = {
            "problem": (KAPPA, SAMPLES, NOISE),
            "batch": BATCH,
            "steps": (STEP, OUTER, FIRST, LOOP),
            "horizons": chosen,
            "seeds": seeds,
        }

        def compute(make: Callable = make, chosen: tuple[int, ...] = chosen) -> Arrays:
            return {"means": np.array([mean_norm2(instance, make, K, seeds) for K in chosen])}

        means[name] = work.unit(name, settings, compute)["means"]
        rows = [make(K, jax.random.key(0)).rows for K in chosen]
        samples[name] = np.array([K * each for K, each in zip(chosen, rows, strict=True)])
    start = float(np.sum(instance.hypergradient(np.asarray(instance.x0)) ** 2))
    return Found(samples, means, start, seeds)


def mean_norm2(
    instance: Quadratic, make: Callable[[int, Array], Setting], K: int, seeds: tuple[int, ...]
) -> float:
    """The mean of ‖∇Φ(x_k)‖² over k < K and over the seeds; ∇Φ is affine, and known."""
    zero = instance.hypergradient(np.zeros_like(instance.x0))
    columns = [instance.hypergradient(e) - zero for e in np.eye(len(zero))]
    gradient = jnp.asarray(np.stack(columns, axis=1)), jnp.asarray(zero)
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds))
    run = jax.jit(jax.vmap(partial(_mean, make, K), in_axes=(0, None, None, None, None)))
    return float(jnp.mean(run(keys, instance.problem, gradient, instance.x0, instance.y0)))


def _mean(
    make: Callable[[int, Array], Setting],
    K: int,
    key: Array,
    problem: Problem,
    gradient: tuple[Array, Array],
    x0: Array,
    y0: Array,
) -> Float[Array, ""]:
    setting, (matrix, at_zero) = make(K, key), gradient

    def step(carry: tuple, k: Array) -> tuple[tuple, Array]:
        x, state = carry
        h, state, _ = setting.method(problem, x, state, k)
        norm2 = jnp.sum((matrix @ x + at_zero) ** 2)
        return (x - setting.outer(k.astype(x.dtype)) * h, state), norm2

    start = x0, setting.method.init(problem, x0, y0)
    _, norms2 = lax.scan(step, start, jnp.arange(K, dtype=jnp.int32))
    return jnp.mean(norms2)
