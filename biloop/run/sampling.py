"""What is different about a run whose method draws rows: h and f are known on batches only."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from biloop import vectors
from biloop.compilation import compiled
from biloop.linear.lanczos import extremes
from biloop.loops.results import Status
from biloop.methods import Method
from biloop.oracles import gradient_and_products, linearise, outer_value
from biloop.outer import OuterStep
from biloop.problem import Problem
from biloop.run.diagnosis import excessive_steps
from biloop.run.record import Record
from biloop.samples import Samples
from biloop.vectors import norm

_EXPLODED = 1e3  # times the first ‖h‖
_FAR = 0.5  # of what ‖∇_y g‖ would be for an error as large as y
_DRAWS = 16  # batches that are looked at
_PRODUCTS = 20  # with the inner Hessian on each


def check_sampled(
    method: Method,
    outer: OuterStep,
    epsilon: float | None,
    measure: int | None,
    problem: Problem,
) -> None:
    """Refuse what reads more into a batch than it says."""
    if method.sampled is None:
        return
    if problem.has_aux:
        raise TypeError(
            f"has_aux=True would evaluate f on all samples in each step, and "
            f"{type(method).__name__} draws rows. Measure with watch=…, every so many steps."
        )
    if outer.finds_its_size:
        raise TypeError(
            f"{outer!r} compares values and hypergradients of one step with those of the next, "
            f"which are on other rows here. Give a step size, a schedule of k or an optax "
            f"transformation as outer."
        )
    if epsilon is not None and measure is None:
        raise ValueError(
            f"epsilon = {epsilon} cannot be compared with h on a batch. Give measure=… to solve as "
            f"well: ‖∇Φ‖² is then measured on all samples after every so many outer steps."
        )


def sampled_remarks(method: Method, problem: Problem) -> str:
    """What a run on batches has to say of itself: the rows that no block has."""
    samples = method.sampled
    if samples is None:
        return ""
    return " ".join(_left_out(samples, problem))


def _left_out(samples: Samples, problem: Problem) -> list[str]:
    drawn = samples.all_sizes(problem)
    counts = (
        ("inner", problem.inner_samples, drawn.inner, samples.inner),
        ("outer", problem.outer_samples, drawn.outer, samples.outer),
    )
    return [
        f"The last {there - drawn} of the {there} {name} samples were never drawn: {sampler} does "
        f"not divide them."
        for name, there, drawn, sampler in counts
        if drawn < there
    ]


def doubtful(
    status: Status, problem: Problem, method: Method, x: PyTree, y: PyTree, record: Record
) -> tuple[Status, str]:
    """The status of a run on batches that ended well, and what is wrong with it if something is.

    DIVERGED if ‖h‖ has exploded on the way because a step size is too large for what batches show
    of the curvature; else a word where y is as far from y*(x), over a pass, as it is long.
    """
    samples = method.sampled
    here = problem.kind == "minimum" and problem.windows == (None, None)
    if samples is None or not (here and method.shares_y):
        return status, ""
    first, most = record.first("hypergradient_norm"), record.most("hypergradient_norm")
    exploded = most > _EXPLODED * first > 0
    size, natural = jax.device_get(_distance(problem, samples, x, y))
    if not (exploded or size > _FAR * natural):
        return status, ""
    L = float(np.max(_steepest(problem, samples, x, y)))
    excess = excessive_steps(method, L) if np.isfinite(L) else []
    seen = f"‖h‖ was {first:.3g} at first and up to {most:.3g} on the way." if exploded else (
        f"On all samples ‖∇_y g‖ is {size:.3g} at the end, as where y = 0: y is not near y*(x)."
    )  # fmt: skip
    why = [
        f"The {e.loop} step size {e.step_size:.4g} is above the largest stable one on some of the "
        f"batches, {e.largest:.4g}, where the largest eigenvalue of the inner Hessian is about "
        f"{e.L:.4g}; try {e.largest / 2:.4g}, or larger batches."
        for e in excess
    ]
    return (Status.DIVERGED if exploded and why else status), " ".join([seen, *why])


@compiled(often="once")
def _distance(
    problem: Problem, samples: Samples, x: PyTree, y: PyTree
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """‖∇_y g‖ over a pass, and what it would be for an error as large as y.

    Batch by batch: for all samples at once a network may have no room.
    """
    size, blocks = samples.sizes(problem).inner, samples.blocks(problem).inner
    draws = blocks or max(1, problem.inner_samples // max(1, size))

    def add(sums: PyTree, t: Array) -> tuple[PyTree, None]:
        gradient, hessian, _ = gradient_and_products(problem.batch(*samples.rows(problem, t)), x, y)
        return vectors.add_scaled(sums, 1.0, (gradient, hessian(y))), None

    nothing = vectors.zeros_like((y, y))
    sums, _ = lax.scan(add, nothing, jnp.arange(draws, dtype=jnp.int32))
    gradient, curved = (norm(total) / draws for total in sums)
    return gradient, curved


@compiled(often="once")
def _steepest(problem: Problem, samples: Samples, x: PyTree, y: PyTree) -> Float[Array, " draws"]:
    """The largest eigenvalue of ∇²_y g(x, y) on each of a few batches."""

    def on(t: Array) -> Float[Array, ""]:
        hessian, _ = linearise(problem.batch(*samples.rows(problem, t)), x, y)
        return extremes(hessian, y, products=_PRODUCTS).largest.ritz

    return lax.map(on, jnp.arange(_DRAWS, dtype=jnp.int32))


@compiled(often="once")
def resting(method: Method, problem: Problem, x: PyTree, state: PyTree) -> PyTree:
    """The y that belongs to x."""
    return method.solution(problem, x, state)


def exact_value(problem: Problem, x: PyTree, y: PyTree) -> float:
    """f(x, y) on all samples."""
    return float(np.asarray(_value(problem, x, y)))


@compiled(often="once")
def _value(problem: Problem, x: PyTree, y: PyTree) -> Float[Array, ""]:
    return outer_value(problem, x, y)
