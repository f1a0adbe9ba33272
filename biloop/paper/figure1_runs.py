"""The runs behind Figure 1: tuning, final runs, reference points and times, as units of work."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from biloop.inner import Nesterov
from biloop.loops.results import Status
from biloop.methods import AID
from biloop.outer import GradientStep
from biloop.paper.figure1_data import NOISE, SCALE, Instance, Sizes, given, observe
from biloop.paper.lanes import side_by_side
from biloop.paper.path import watch
from biloop.paper.work import Arrays, Work
from biloop.problem import Problem
from biloop.run.solve import solve
from biloop.run.step import Settings
from biloop.schedules import Constant
from biloop.schemes import n_q_loop
from biloop.sweeps import sweep

LOOPS = ((20, 20), (20, 1), (1, 20), (1, 1))
FIXED_K = 10  # the outer iteration at which schemes are compared
FIXED_COST = 500  # the Gc + MV at which they are compared
# Weights that are not learned, as x_i of the samples with wrong and with right labels: σ(0) = ½,
# and σ(±30) is 0 or 1 to rounding.
_LOGITS = {
    "uniform ½": (0.0, 0.0),
    "uniform 1": (30.0, 30.0),
    "oracle 0, ½": (-30.0, 0.0),
    "oracle 0, 1": (-30.0, 30.0),
}
REFERENCES = tuple(_LOGITS)


@dataclass(frozen=True)
class Budgets:
    """Gc + MV of each run, and what is looked at.

    final and ridge are those of the final runs of the two formulations; tuning and moving those of
    the runs that step sizes are chosen by, the latter where W starts from 0.
    """

    final: int
    ridge: int
    tuning: int
    moving: int
    points: int
    reference: int
    """Steps to a reference point."""


@dataclass(frozen=True)
class Grid:
    """Step sizes to choose from, α = η and β, and whether W starts from 0."""

    inner: tuple[float, ...]
    outer: tuple[float, ...]
    from_zero: bool


class Steps(NamedTuple):
    """α = η and β of a run."""

    inner: float
    outer: float


def cost(N: int, Q: int) -> int:
    """Gc + MV of an outer step."""
    return N + 2 + Q + 1


def method(N: int, Q: int, step: Any) -> AID:
    """Algorithm 1 with η = α; N and Q are arguments of the compiled program."""
    return n_q_loop(
        Constant(jnp.asarray(N)), Constant(jnp.asarray(Q)), inner_step=step, linear_step=step
    )


class Runs:
    """The units of work of Figure 1. An instance is a function of a formulation and a seed."""

    def __init__(
        self,
        work: Work,
        instance: Callable[[str, int], Instance],
        sizes: Sizes,
        budgets: Budgets,
    ) -> None:
        self._work = work
        self._instance = instance
        self._budgets = budgets
        self._settings: dict[str, Any] = {"sizes": asdict(sizes), "noise": NOISE, "scale": SCALE}

    def tune(self, formulation: str, loops: tuple[int, int], grid: Grid, seed: int) -> np.ndarray:
        """f at the end of a run for each α (rows) and β; ∞ for a run that failed."""
        budget = self._budgets.moving if grid.from_zero else self._budgets.tuning

        def compute() -> Arrays:
            at = self._instance(formulation, seed)
            found = sweep(
                at.problem,
                at.x0,
                jnp.zeros_like(at.W0) if grid.from_zero else at.W0,
                method(*loops, 1.0),
                over={
                    ("inner.step_size", "linear.step_size"): [(a, a) for a in grid.inner],
                    "outer": list(grid.outer),
                },
                steps=budget // cost(*loops),
                progress=False,
            )
            if any(run.status is Status.INTERRUPTED for run in found.runs):
                raise KeyboardInterrupt  # or half a sweep would be kept as a whole one
            failed = np.array([run.status.failed for run in found.runs]).reshape(found.shape)
            return {"value": np.where(failed, np.inf, found.last("value"))}

        settings = asdict(grid) | {"loops": loops, "seed": seed, "budget": budget}
        words = "x that moves" if min(grid.outer) > 0.1 else "as printed"
        name = f"{formulation}, tuning {words}, N = {loops[0]}, Q = {loops[1]}"
        value = self._work.unit(name, settings | self._settings, compute)["value"]
        return np.where(np.isfinite(value), value, np.inf)

    def final(
        self,
        formulation: str,
        loops: tuple[int, int],
        seed: int,
        lanes: Sequence[tuple[Steps, bool]],
    ) -> dict[str, np.ndarray]:
        """What `observe` sees along runs with these steps (and whether W starts from 0).

        Arrays of shape (lanes, points), and `k`, the outer iterations of the points.
        """
        at = self.looked_at(formulation, loops)

        def compute() -> Arrays:
            instance = self._instance(formulation, seed)
            starts = jnp.stack([jnp.where(zero, 0, instance.W0) for _, zero in lanes])
            steps = jnp.asarray([step for step, _ in lanes])
            seen = _curves(instance, method(*loops, 1.0), starts, steps, at)
            return {"k": np.array(at), **seen}

        settings = {"loops": loops, "lanes": lanes, "seed": seed, "at": at} | self._settings
        name = f"{formulation}, seed {seed}, N = {loops[0]}, Q = {loops[1]}"
        return self._work.unit(name, settings, compute)

    def looked_at(self, formulation: str, loops: tuple[int, int]) -> tuple[int, ...]:
        """Outer iterations evenly over the budget, and those at which schemes are compared.

        As many for all loops, if there are so many: then one compiled program serves them all.
        """
        budget = self._budgets.final if formulation == "cleaning" else self._budgets.ridge
        steps, points = budget // cost(*loops), self._budgets.points
        fixed = {FIXED_K, FIXED_COST // cost(*loops) - 1}
        evenly = np.linspace(0, steps - 1, points - len(fixed)).round().astype(int).tolist()
        chosen = {*evenly, *fixed}
        rest = (k for k in range(steps) if k not in chosen)
        return tuple(sorted([*chosen, *islice(rest, points - len(chosen))]))

    def references(self, seed: int) -> dict[str, dict[str, float]]:
        """Cleaning with weights that are not learned, trained to the end, by their names."""

        def compute() -> Arrays:
            at = self._instance("cleaning", seed)
            xs = [np.where(at.wrong, *_LOGITS[name]) for name in REFERENCES]
            solver = Nesterov.tuned(*_curvature(at), steps=self._budgets.reference)
            xs = jnp.asarray(np.stack(xs), at.x0.dtype)
            return jax.device_get(_solve_inner(at.problem, solver, xs, at.W0, given(at)))

        settings = {"seed": seed, "steps": self._budgets.reference, "weights": _LOGITS}
        found = self._work.unit(
            f"reference points, seed {seed}", settings | self._settings, compute
        )
        return {
            name: {quantity: float(column[i]) for quantity, column in found.items()}
            for i, name in enumerate(REFERENCES)
        }

    def seconds(self, seed: int) -> dict[tuple[int, int], float]:
        """The time of one outer step of `solve` that runs alone, by N and Q, for data cleaning."""

        def compute() -> Arrays:
            at = self._instance("cleaning", seed)
            found = {}
            for N, Q in LOOPS:
                run = solve(
                    at.problem,
                    at.x0,
                    at.W0,
                    method(N, Q, 0.1),
                    outer=0.1,
                    steps=max(4, 150 // cost(N, Q)),
                    progress=False,
                )
                if run.status is Status.INTERRUPTED:
                    raise KeyboardInterrupt
                # The fastest of some steps: what else the machine does only adds to it.
                found[f"{N},{Q}"] = np.diff(run.trace["seconds"], prepend=0).min()
            return found

        settings = {"seed": seed} | self._settings
        found = self._work.unit("time of a step", settings, compute)
        return {(N, Q): float(found[f"{N},{Q}"]) for N, Q in LOOPS}


def _curves(
    instance: Instance,
    scheme: AID,
    starts: Array,
    steps: Array,
    at: Sequence[int],
) -> Mapping[str, np.ndarray]:
    """Runs side by side that share the data: a matrix product with 30 columns costs little more."""
    inner, outer = steps.T

    def sizes(m: AID) -> tuple[Any, Any]:
        return m.inner.step_size, m.linear.step_size  # pyright: ignore[reportAttributeAccessIssue]

    sized = eqx.tree_at(sizes, scheme, (inner, inner))
    settings = Settings(instance.problem, sized, jax.vmap(GradientStep)(outer))
    same = jax.tree.map(lambda _: False, scheme)
    varies = Settings(False, eqx.tree_at(sizes, same, (True, True)), True)  # pyright: ignore[reportArgumentType]
    x0 = jnp.broadcast_to(instance.x0, (len(starts), *instance.x0.shape))
    engine = side_by_side(settings, varies, x0, starts, at[-1] + 1)
    path = watch(engine, at=at, observe=observe, given=given(instance))
    return {**path.seen, "validation_loss": path.value}


def _curvature(cleaning: Instance) -> tuple[float, float]:
    """L and μ of ∇²_W g for all x and W: ½ λ_max(XᵀX/n) + 2 · penalty, and 2 · penalty."""
    X, penalty = cleaning.train.X, float(cleaning.problem.inner_data[2])
    return 0.5 * float(np.linalg.eigvalsh(X.T @ X / len(X))[-1]) + 2 * penalty, 2 * penalty


@eqx.filter_jit
def _solve_inner(
    problem: Problem, solver: Nesterov, xs: Array, W0: Array, given: tuple[Any, ...]
) -> Mapping[str, Array]:
    """`observe` at (x, W*(x)) for each x, from W = 0, with the norm of the last gradient."""

    def one(x: Array) -> Mapping[str, Array]:
        start = jnp.zeros_like(W0)
        W, _, info = solver(problem, x, start, solver.init(start), 0)
        return {**observe(x, W, *given), "residual": info.residual}

    return jax.vmap(one)(xs)
