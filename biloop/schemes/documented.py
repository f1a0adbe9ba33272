"""What the arguments of schemes mean, said once: the same letter is the same thing in all of them.

So a new scheme has a docstring with its parameters and an example when its first line is written.
"""

import inspect
from collections.abc import Callable
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])

_STEP = "number or schedule of k"
_WORDS: dict[str, tuple[str, str]] = {
    "N": ("integer or schedule of k", "Steps of the inner loop."),
    "Q": ("integer or schedule of k", "Steps of the linear loop, or terms of the series after 1."),
    "T": ("int", "Steps of both copies of y."),
    "batch": (
        "int, pair, Sampler or None",
        "Rows of a draw: for both levels, for each, or None for all rows.",
    ),
    "directions": ("int", "Random directions in which x is moved."),
    "inner_step": (_STEP, "α, of the steps of y; (a, p) stands for a·(k + 1)^p."),
    "kappa": ("number, optional", "L/μ, from which lengths follow that are not given: ⌈κ ln κ⌉."),
    "key": ("jax.random.key or integer", "Another key is another run."),
    "kind": ("str", "The `kind` of the problem."),
    "linear_step": (_STEP, "η, of the steps of v."),
    "max_steps": ("int, optional", "The most steps, where N is an array or a schedule."),
    "most": ("int", "The most steps of a loop."),
    "mu": ("number", "A lower bound of the eigenvalues of ∇²_y g."),
    "multiplier": (_STEP, "λ: the larger, the smaller the bias and the larger the noise."),
    "period": ("int", "All rows are seen in every so many steps."),
    "power": ("number", "Of k + 1 in the tolerance."),
    "probability": ("number", "That with which a step sees all rows."),
    "radius": ("number", "How far the points of a difference lie apart."),
    "scale": ("number", "The tolerance in the first step."),
    "share": ("number", "Of the error that a loop starts with, what it may leave."),
    "strength": ("number", "η, how much the gap to the inner minimum has to fall."),
    "terms": ("int", "Of the Neumann series, of which one is drawn."),
    "warm_start_v": ("bool", "Whether v starts where the last loop ended, or at 0."),
    "warm_start_y": ("bool", "Whether y starts where the last loop ended, or at y0."),
    "weight": (_STEP, "Of what is new in an average, at most 1."),
    "y_step": (_STEP, "ξ, of the step of y along f and the gap."),
}


def documented(arguments: str) -> Callable[[Function], Function]:
    """Add the meaning of each parameter, and an example that calls the scheme so."""

    def add(scheme: Function) -> Function:
        names = inspect.signature(scheme).parameters
        written = [f"{name} : {_WORDS[name][0]}\n    {_WORDS[name][1]}" for name in names]
        sections = (
            inspect.getdoc(scheme) or "",
            "Parameters\n----------\n" + "\n".join(written),
            "Examples\n--------\n"
            f">>> method = bl.schemes.{scheme.__name__}({arguments})\n"
            ">>> run = bl.solve(problem, x0, y0, method, outer=0.1, steps=10)\n"
            ">>> run.status.name\n'COMPLETED'\n",
        )
        scheme.__doc__ = "\n\n".join(sections)
        return scheme

    return add
