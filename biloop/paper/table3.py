"""Table 3: ITD on the hyper-representation problem of Sow et al., as printed and as Algorithm 2."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import optax

from biloop.data import sow
from biloop.inner import GradientDescent
from biloop.methods import ITD
from biloop.outer import GradientStep, OptaxStep, OuterStep
from biloop.paper.lanes import side_by_side, stack
from biloop.paper.path import outer_variable, watch
from biloop.paper.target import Options
from biloop.paper.work import Arrays, Work
from biloop.problems import HyperRepresentation, hyper_representation
from biloop.run.step import Settings

INNER_STEP = 1e-3
COLUMNS = (10, 50, 100, 500, 1000)
PRINTED = {
    20: ("9.32", "0.11", "0.01", "0.004", "0.004"),
    1: ("435", "6.9", "0.04", "0.04", "0.04"),
}
NAMES = {20: "N-N-loop ITD (N = 20)", 1: "No-loop ITD (N = 1)"}
# Where Φ and its gradient are computed: evenly in the logarithm, and at the columns of the table.
SOLVED = tuple(sorted({*COLUMNS, *(round(10 ** (i / 6)) for i in range(19))}))
# f is looked at more often, where it is not smooth.
LOOKED_AT = tuple(
    sorted({*SOLVED, *(round(10 ** (i / 12)) for i in range(37)), *range(200, 1001, 5)})
)


class Setting(NamedTuple):
    """How the inner loop starts, and the outer step."""

    words: str
    warm_start: bool
    outer: OuterStep


SETTINGS = {
    "restart": Setting("w restarted at w_0, Adam 0.05", False, OptaxStep(optax.adam(0.05))),
    "warm": Setting("w warm-started, Adam 0.05", True, OptaxStep(optax.adam(0.05))),
    "warm, GD": Setting("w warm-started, gradient descent 0.01", True, GradientStep(0.01)),
}


class Curves(NamedTuple):
    """f(H_k, w_k^N) at `LOOKED_AT`, Φ(H_k) and ‖∇Φ(H_k)‖² at `SOLVED`; one row for each seed."""

    value: np.ndarray
    phi: np.ndarray
    gradient: np.ndarray

    def at(self, name: str, k: int) -> np.ndarray:
        """A quantity at k, for each seed."""
        return getattr(self, name)[:, (LOOKED_AT if name == "value" else SOLVED).index(k)]


@dataclass(frozen=True, eq=False)
class Found:
    """Curves by setting and N, and inf Φ for each seed."""

    curves: Mapping[tuple[str, int], Curves]
    infimum: np.ndarray
    seeds: tuple[int, ...]

    def mean(self, setting: str, N: int, name: str, k: int) -> float:
        """A quantity at k, the mean over the seeds."""
        return float(self.curves[setting, N].at(name, k).mean())


def run(options: Options, work: Work) -> Found:
    """Both loops in three settings, for all seeds at once."""
    seeds = options.chosen_seeds()
    problems = [load(seed) for seed in seeds]
    infimum = np.array([problem.infimum() for problem in problems])
    settings = {"seeds": seeds, "inner_step": INNER_STEP, "at": LOOKED_AT, "solved": SOLVED}

    def measured(setting: Setting, N: int) -> Curves:
        def compute() -> Arrays:
            return curves_of(problems, setting, N, LOOKED_AT, SOLVED)._asdict()

        return Curves(**work.unit(f"{setting.words}, N = {N}", settings | {"N": N}, compute))

    curves = {(name, N): measured(each, N) for name, each in SETTINGS.items() for N in NAMES}
    return Found(curves, infimum, seeds)


def load(seed: int) -> HyperRepresentation:
    """The data and the start of Sow et al. for a seed of torch's generator, in float64."""
    d = sow(seed)
    return hyper_representation(
        (d.X_T, d.Y_T), (d.X_V, d.Y_V), H0=d.H_0, w0=d.w_0, gamma=0.1, dtype="float64"
    )


def curves_of(
    problems: Sequence[HyperRepresentation],
    setting: Setting,
    N: int,
    at: Sequence[int],
    solved: Sequence[int],
) -> Curves:
    """ITD on all problems side by side: f in the iterations `at`, Φ in those of them `solved`."""
    method = ITD(GradientDescent(step_size=INNER_STEP, steps=N), warm_start_y=setting.warm_start)

    settings = Settings(stack([p.problem for p in problems]), method, setting.outer)
    varies = Settings(True, False, False)  # pyright: ignore[reportArgumentType]
    starts = (stack([getattr(each, name) for each in problems]) for name in ("x0", "y0"))
    engine = side_by_side(settings, varies, *starts, steps=at[-1] + 1)
    path = watch(engine, at=at, observe=outer_variable)
    seen = np.asarray(path.seen)
    wanted = seen[:, [at.index(k) for k in solved]]
    pairs = [(p, H) for p, Hs in zip(problems, wanted, strict=True) for H in Hs]
    phi = np.array([p.value(H) for p, H in pairs])
    gradient = np.array([np.sum(p.hypergradient(H) ** 2) for p, H in pairs])
    shape = wanted.shape[:2]
    return Curves(path.value, phi.reshape(shape), gradient.reshape(shape))
