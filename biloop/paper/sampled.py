"""Sampled methods on a quadratic in closed form: how fast ‖∇Φ‖² falls with the samples used.

For each horizon K a method runs with the step sizes that its paper gives for it, and the mean of
‖∇Φ(x_k)‖² over k < K, and over seeds, is measured. The slope of its logarithm against that of the
samples used is set beside the published one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from biloop.loops.results import FIRST_FAILURE
from biloop.methods import Method
from biloop.outer import OuterStep, as_outer_step
from biloop.paper.lanes import side_by_side, stack
from biloop.paper.target import Options
from biloop.paper.work import Arrays, Work
from biloop.problems import Quadratic, sampled_quadratic
from biloop.run.engine import drive, endless
from biloop.run.step import Settings
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
    """A run of K steps: the method, the outer step as for `solve`, and what one costs in rows."""

    method: Method
    outer: float | tuple[float, float]
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


def _soba(K: int, key: Array) -> Setting:
    c = (FIRST / K) ** 0.5
    return Setting(soba(BATCH, STEP * c, STEP * c, key=key), OUTER * c, 5 * BATCH)


def _decreasing(K: int, key: Array) -> Setting:
    steps = (STEP, -0.4)
    return Setting(soba(BATCH, steps, steps, key=key), (OUTER, -0.6), 5 * BATCH)


def _ma_soba(K: int, key: Array) -> Setting:
    c = (FIRST / K) ** 0.5
    method = ma_soba(BATCH, STEP * c, STEP * c, weight=c, key=key)
    return Setting(method, OUTER * c, 5 * BATCH)


def _saba(K: int, key: Array) -> Setting:
    return Setting(saba(BATCH, STEP / 8, STEP / 8, key=key), OUTER / 8, 5 * BATCH)


def _srba(K: int, key: Array) -> Setting:
    period = SAMPLES // BATCH
    rows = (10 * BATCH * (period - 1) + 5 * SAMPLES) / period
    method = srba(BATCH, STEP / 8, STEP / 8, period=period, key=key)
    return Setting(method, OUTER / 8, rows)


def _stocbio(K: int, key: Array) -> Setting:
    method = stocbio(K, STEP, STEP, N=LOOP, Q=LOOP, key=key)
    return Setting(method, OUTER, K * (LOOP + 2 + LOOP + 1))


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
    settings = [make(K, jax.random.key(seed)) for seed in seeds]
    outer = _Summed(as_outer_step(settings[0].outer), jnp.asarray(np.stack(columns, 1)), zero)
    methods = stack([setting.method for setting in settings])
    x0, y0 = (jnp.tile(start, (len(seeds), 1)) for start in (instance.x0, instance.y0))
    varies = Settings(False, True, False)  # pyright: ignore[reportArgumentType]
    engine = side_by_side(Settings(instance.problem, methods, outer), varies, x0, y0, K)
    drive(engine, due=endless, after_chunk=lambda _: False)
    sums = np.where(engine.stop >= FIRST_FAILURE, np.nan, engine.state.outer[1])
    return float(np.mean(sums)) / K


class _Summed(OuterStep):
    """The step that is given, and the sum of ‖∇Φ(x_k)‖² with ∇Φ(x) = G x + c."""

    given: OuterStep
    G: Float[Array, "p p"]
    c: Float[Array, " p"] = eqx.field(converter=jnp.asarray)

    def init(self, x):
        return self.given.init(x), jnp.zeros((), x.dtype)

    def step(self, x, h, value, state):
        after, own, accepted = self.given.step(x, h, value, state[0])
        return after, (own, state[1] + jnp.sum((self.G @ x + self.c) ** 2)), accepted
