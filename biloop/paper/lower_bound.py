"""Theorem 4 on its own instance: ITD stops at a floor, AID does so only if v starts from zero."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from biloop.inner import GradientDescent
from biloop.methods import ITD, Method
from biloop.outer import GradientStep
from biloop.paper.path import values
from biloop.paper.reporting import Reporting
from biloop.paper.target import Options
from biloop.paper.work import Arrays, Work
from biloop.problems import WorstCase, worst_case
from biloop.schedules import Constant
from biloop.schemes import n_q_loop
from biloop.theory import exponent, lower_bound

KAPPA = 10.0
STEP = 0.5  # α = η = β, in units of 1/L
LOOPS = (1, 5, 20, 50)
WARM = ((1, 1), (1, 20), (20, 1), (20, 20))
OUTER_STEPS = 600
KAPPAS = (4.0, 8.0, 16.0, 32.0, 64.0)


@dataclass(frozen=True, eq=False)
class Found:
    """‖∇Φ(x_k)‖² along each run, the floor by the formula, and the limit for N = 1 at each κ."""

    itd: Mapping[int, np.ndarray]
    """By N."""
    zero: Mapping[int, np.ndarray]
    """AID with v from zero in every outer step, by Q."""
    warm: Mapping[tuple[int, int], np.ndarray]
    """AID with v from the last step, by N and Q."""
    floor: Mapping[int, float]
    """By the length of the loop, N or Q."""
    limits: np.ndarray

    @property
    def slope(self) -> float:
        """The power of κ with which the limit for N = 1 grows."""
        return exponent(KAPPAS, self.limits.tolist())


def run(options: Options, work: Work) -> Found:
    """Runs for several N and Q at one κ, and the floor of N = 1 for several κ."""
    instance = worst_case(1.0, 1.0 / KAPPA, 1.0)
    settings = {"kappa": KAPPA, "step": STEP, "steps": OUTER_STEPS}
    itd = work.unit(
        "ITD", settings | {"N": LOOPS}, lambda: {str(N): _itd(instance, N) for N in LOOPS}
    )

    def aid(warm: bool, pairs: Sequence[tuple[int, int]]) -> Arrays:
        name = f"AID, v from {'the last step' if warm else 'zero'}"
        return work.unit(name, settings | {"loops": pairs}, lambda: _aid(instance, pairs, warm))

    zero, warm = aid(False, tuple((1, Q) for Q in LOOPS)), aid(True, WARM)
    limits = work.unit("floor against κ", {"kappas": KAPPAS, "step": STEP}, _limits)
    return Found(
        itd={N: itd[str(N)] for N in LOOPS},
        zero={Q: zero[f"1,{Q}"] for Q in LOOPS},
        warm={(N, Q): warm[f"{N},{Q}"] for N, Q in WARM},
        floor={n: instance.floor(n, STEP) for n in LOOPS},
        limits=limits["limit"],
    )


def _itd(instance: WorstCase, N: int, last: int = OUTER_STEPS - 1) -> np.ndarray:
    """N is an argument of the compiled program, whose memory is that of the longest loop."""
    inner = GradientDescent(step_size=STEP, steps=Constant(N))
    return _gradients(instance, ITD(inner, max_steps=max(LOOPS)), last)


def _aid(
    instance: WorstCase, pairs: Sequence[tuple[int, int]], warm: bool
) -> dict[str, np.ndarray]:
    """A column for each (N, Q), which are arguments of one compiled program."""
    steps = {"inner_step": STEP, "linear_step": STEP, "warm_start_v": warm}
    methods = {f"{N},{Q}": n_q_loop(Constant(N), Constant(Q), **steps) for N, Q in pairs}
    return {name: _gradients(instance, each, OUTER_STEPS - 1) for name, each in methods.items()}


def _gradients(instance: WorstCase, method: Method, last: int) -> np.ndarray:
    """‖∇Φ(x_k)‖² at as many k as there are outer steps in a run, evenly up to the last."""
    at = np.linspace(0, last, OUTER_STEPS).round().astype(int)
    # ∇Φ(x) = Zx + LM Z⁻¹1 is affine, with a diagonal matrix.
    at_zero = lower_bound.outer_gradient(instance.letters, np.zeros(2))
    slope = lower_bound.outer_gradient(instance.letters, np.ones(2)) - at_zero
    reporting = Reporting(method, jnp.asarray(np.diag(slope)), jnp.asarray(-at_zero))
    start = (instance.x0, instance.y0)
    return values(instance.problem, reporting, GradientStep(STEP), *start, at=at)


def _limits() -> dict[str, np.ndarray]:
    """Where ‖∇Φ‖² ends with N = 1 for each κ, once (1 − βμ)^K is gone."""
    last = int(80 * KAPPAS[-1])
    limits = [_itd(worst_case(1.0, 1.0 / kappa, 1.0), 1, last)[-1] for kappa in KAPPAS]
    return {"limit": np.array(limits)}
