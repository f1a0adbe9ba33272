"""The arguments that solve and sweep share, refused with the value and what is expected."""

import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from biloop import schemes
from biloop.methods import Method, Tasks
from biloop.methods.each_task import has_tasks
from biloop.oracles import Cost
from biloop.problem import Kind, Problem, refuse_other
from biloop.schedules import is_concrete
from biloop.schedules.arguments import shown

_TOO_MANY = 2**63  # for what counts them


def check_order(problem: Any, x0: Any, y0: Any, method: Any) -> None:
    """Refuse a call in another order than (problem, x0, y0, method)."""
    if isinstance(x0, Method):
        raise TypeError(
            f"The order is (problem, x0, y0, method): x0 comes second, but "
            f"{type(x0).__name__} was given there."
        )


def default_method(problem: Any) -> Method:
    """The method of a run that was given none: the one that has nothing to set, for its kind."""
    if not isinstance(problem, Problem):
        return schemes.auto()
    if problem.start is not None:
        raise TypeError(
            "What becomes of the start y⁰(x) of this problem is for the method to say: "
            "ITD(GradientDescent(0.01, steps=5)) differentiates it (MAML), AID(…) takes y*(x), "
            "wherever it was looked for (iMAML)."
        )
    method = _auto(problem.kind, jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]
    return Tasks(method) if has_tasks(problem) else method


@functools.cache
def _auto(kind: Kind, _wide: bool) -> Method:
    """The same for all runs on a kind of problem: to make its numbers takes longer than some."""
    return schemes.auto(kind=kind)


def check_arguments(
    problem: Any, method: Any, steps: Any, epsilon: Any, budget: Any, seconds: Any, every: Any
) -> None:
    """Refuse what is no problem, no method or no limit."""
    refuse_other(problem)
    if not isinstance(method, Method):
        raise TypeError(
            f"method must be AID, ITD or another Method, e.g. bl.schemes.auto(); got {method!r}."
        )
    counts = [("steps", steps), ("every", every)]
    if isinstance(budget, Cost):
        counts += [(f"budget.{name}", value) for name, value in budget._asdict().items()]
    elif budget is not None:
        counts.append(("budget", budget))
    if method.counts_rows:  # whose cost is in passes, of which there are fractions
        for name, value in counts[2:]:
            if not 0 < number(value, name) < np.inf:
                raise ValueError(f"{name} must be a finite number greater than 0, got {value!r}.")
        counts = counts[:2]
    for name, value in counts:
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {shown(value)}.")
        if value >= _TOO_MANY:
            raise ValueError(f"{name} must be below 2⁶³, got {shown(value)}.")
    if epsilon is not None and not 0 <= number(epsilon, "epsilon") < np.inf:
        raise ValueError(f"epsilon must be finite and at least 0, got {epsilon}.")
    if seconds is not None and not number(seconds, "seconds") > 0:
        raise ValueError(f"seconds must be greater than 0, got {seconds}.")


def check_concrete(*given: Any) -> None:
    """Refuse to run inside a transformation of JAX."""
    if not all(map(is_concrete, jax.tree.leaves(given))):
        raise TypeError(
            "solve is a loop in Python around compiled programs and cannot run inside jit, vmap or "
            "grad. For many runs at once use sweep; inside jit call the method itself, which "
            "returns a hypergradient."
        )


def number(value: Any, name: str) -> float:
    """A real number, or a TypeError that names it."""
    if isinstance(value, str | bytes | bool | np.bool_ | complex):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name} must be a number, got {shown(value)}.") from None


def as_plain(value: Any) -> float | None:
    """A limit that was checked as a float, whatever kind of number it is; None for none."""
    return None if value is None else float(value)


def refuse_several(what: str, tree: PyTree, instead: str) -> None:
    """Refuse arrays of several processes, of which each would choose its own batches and chunks."""
    for leaf in {id(leaf): leaf for leaf in jax.tree.leaves(tree)}.values():
        there = isinstance(leaf, jax.Array) and is_concrete(leaf)
        if there and not leaf.is_fully_addressable:
            raise ValueError(
                f"{what} runs in one process, but an array of shape {leaf.shape} lies on devices "
                f"of several. {instead}"
            )
