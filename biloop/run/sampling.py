"""What is different about a run whose method draws rows: h and f are known on batches only."""

import numpy as np
from jaxtyping import Array, Float, PyTree

from biloop.compilation import compiled
from biloop.methods import Method
from biloop.oracles import outer_value
from biloop.outer import OuterStep
from biloop.problem import Problem
from biloop.samples import Samples


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


@compiled
def resting(method: Method, problem: Problem, x: PyTree, state: PyTree) -> PyTree:
    """The y that belongs to x."""
    return method.solution(problem, x, state)


def exact_value(problem: Problem, x: PyTree, y: PyTree) -> float:
    """f(x, y) on all samples."""
    return float(np.asarray(_value(problem, x, y)))


@compiled
def _value(problem: Problem, x: PyTree, y: PyTree) -> Float[Array, ""]:
    return outer_value(problem, x, y)
