"""How many outer steps a scheme needs on quadratics, with its step sizes tuned.

All step sizes of a grid run side by side, for several random problems at once. They share the cost
of an outer step, so the smallest K is the smallest cost, and a race ends as soon as no step size
that is still running can win.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from biloop.methods import Method
from biloop.outer import GradientStep
from biloop.paper.lanes import row, side_by_side, stack
from biloop.paper.reporting import Reporting
from biloop.problem import Problem
from biloop.problems import Quadratic, quadratic
from biloop.run.engine import drive, endless
from biloop.run.record import Records
from biloop.run.step import Row, Settings

# A run whose ‖∇Φ‖² has been below this part of ε for so many steps adds nothing to the mean any
# more: its sum is known, and K = sum/ε need not be walked.
SETTLED, CALM = 1e-3, 100


class Field(NamedTuple):
    """Random problems of one κ, with ∇Φ(x) = Hx − b and the ε of each; a leading axis for them."""

    problem: Problem
    x0: Float[Array, "problems p"]
    y0: Float[Array, "problems q"]
    H: Float[Array, "problems p p"]
    b: Float[Array, "problems p"]
    epsilon: Float[Array, " problems"]


class Finish(NamedTuple):
    """The smallest K for each problem, ∞ where none was found, and the step sizes that had it."""

    first: np.ndarray
    """until ‖∇Φ(x_K)‖² ≤ ε"""
    mean: np.ndarray
    """until (1/K) Σ_{k<K} ‖∇Φ(x_k)‖² ≤ ε, the criterion of the theorems"""
    left: np.ndarray
    """the smallest ‖∇Φ‖²/ε where the race on this problem ended"""
    first_steps: np.ndarray
    """(η, β) of `first`"""


def field(kappa: float, seeds: Sequence[int], accuracy: float) -> Field:
    """Quadratics with L = 1, and ε = accuracy · L (Φ(x_0) − min Φ) for each."""
    found = [quadratic(kappa, seed=seed) for seed in seeds]
    gaps = [each.value(np.asarray(each.x0)) - each.value(each.solution()) for each in found]
    affine = [_affine(each) for each in found]
    return Field(
        stack([each.problem for each in found]),
        stack([each.x0 for each in found]),
        stack([each.y0 for each in found]),
        jnp.asarray([H for H, _ in affine]),
        jnp.asarray([b for _, b in affine]),
        accuracy * jnp.asarray(gaps),
    )


def _affine(problem: Quadratic) -> tuple[np.ndarray, np.ndarray]:
    """H and b of ∇Φ(x) = Hx − b, from the closed form at 0 and at the unit vectors."""
    p = problem.x0.size
    at_zero = problem.hypergradient(np.zeros(p))
    columns = [problem.hypergradient(unit) - at_zero for unit in np.eye(p)]
    return np.stack(columns, axis=1), -at_zero


def race(
    field: Field,
    method: Callable[[Array], Method],
    eta: Sequence[float],
    beta: Sequence[float],
    most: int,
) -> Finish:
    """Run `method(η)` with every pair of η and β for at most so many outer steps.

    Problem by problem: its data are shared by all runs, and its race ends when it is decided.
    """
    pairs = np.stack([each.ravel() for each in np.meshgrid(eta, beta, indexing="ij")], axis=1)
    scores = [_score(row(field, i), method, pairs, most) for i in range(len(field.x0))]
    first, mean = (np.stack([getattr(score, n) for score in scores]) for n in ("first", "mean"))
    left = [np.where(np.isfinite(each.left), each.left, np.inf).min() for each in scores]
    return Finish(
        first=first.min(axis=1),
        mean=mean.min(axis=1),
        left=np.array(left),
        first_steps=pairs[first.argmin(axis=1)],
    )


def _score(
    field: Field, method: Callable[[Array], Method], pairs: np.ndarray, most: int
) -> "Score":
    """The race on one problem; the loops of the method are shared, too."""
    eta, beta = jnp.asarray(pairs.T)
    reporting = Reporting(Tuned(method, eta), field.H, field.b)
    settings = Settings(field.problem, reporting, jax.vmap(GradientStep)(beta))
    varies = Settings(False, Reporting(Tuned(False, True), False, False), True)  # pyright: ignore[reportArgumentType]
    x0, y0 = (jnp.broadcast_to(a, (len(pairs), *a.shape)) for a in (field.x0, field.y0))
    engine = side_by_side(settings, varies, x0, y0, most)
    score = engine.records = Score(float(field.epsilon), len(pairs))
    drive(engine, due=endless, after_chunk=lambda _: score.decided)
    return score


class Tuned(Method):
    """`make(η)`, with η as a number that can differ between runs."""

    make: Callable[[Array], Method]
    eta: Float[Array, ""]

    def init(self, problem, x, y):
        return self.make(self.eta).init(problem, x, y)

    def __call__(self, problem, x, state, k):
        return self.make(self.eta)(problem, x, state, k)


class Score(Records):
    """K of both criteria for each pair of step sizes, from rows of ‖∇Φ(x_k)‖².

    It stands in the place of the records: so many runs make more rows than can be kept.
    """

    def __init__(self, epsilon: float, pairs: int) -> None:
        super().__init__(pairs)
        self._epsilon = epsilon
        self._total, self._loud = np.zeros(pairs), np.zeros(pairs)
        self.left, self.first, self.mean = (np.full(pairs, np.inf) for _ in range(3))
        self.decided = False

    @np.errstate(over="ignore")  # what diverges has an infinite sum
    def add(self, k: int, rows: Row, made: np.ndarray, elapsed: float) -> None:
        """Score the rows of a chunk, up to the one that decides the race."""
        K = k + 1 + np.arange(made.max())[:, None]
        # A run that failed is not there any more.
        squares = np.where(K - k <= made, rows.value[: len(K)], np.inf) / self._epsilon

        total = _from(np.add, self._total, squares)
        loud = _from(np.maximum, self._loud, np.where(squares <= SETTLED, 0, K))
        first = _from(np.minimum, self.first, np.where(squares <= 1, K, np.inf))
        # The sum only grows: what is found later is never less.
        known = np.where(K - loud >= CALM, np.ceil(total), np.inf)
        mean = _from(np.minimum, self.mean, np.where(total <= K, K, known))

        # K of the mean is at least k, and at least total/ε.
        can_win = np.maximum(total, K) < mean.min(axis=1, keepdims=True)
        no_mean = (np.isinf(mean) & can_win).any(axis=1)
        # All runs are at the same k: the first one that hits has won.
        no_first = np.isinf(first.min(axis=1)) & np.isfinite(total).any(axis=1)
        decided = ~(no_mean | no_first)
        self.decided = bool(decided.any())
        last = int(decided.argmax()) if self.decided else -1
        self.left, self.first, self.mean = squares[last], first[last], mean[last]
        self._total, self._loud = total[last], loud[last]


def _from(combine: np.ufunc, before: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """What is combined of all rows up to each, and of what was before them."""
    return combine.accumulate(np.concatenate([before[None], rows]), axis=0)[1:]
