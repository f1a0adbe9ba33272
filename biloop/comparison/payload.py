"""What a comparison hands to reports and files: plain words, numbers and lists, ready for JSON.

Strings that come from the user (the name of a problem, a description, a command) are as they were
given: whoever shows them escapes them. A number that does not exist (a target that was not reached,
a gradient that was not measured there, a residual of a method without a linear system) is None;
NaN and infinity do not occur.
"""

import math
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypedDict, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop.comparison.candidates import Loops
from biloop.comparison.measuring import Gauge, MeasuredRun
from biloop.comparison.terms import STARTS_RULE, VALUE_RULE, Point, Steps, median
from biloop.methods.reference import is_small
from biloop.problem import Problem
from biloop.vectors import size

if TYPE_CHECKING:
    from biloop.comparison.result import Comparison, Grid, Outcome

_UNITS = ("gradients", "products", "seconds")
_WORDS = ("scheme", "N", "Q", "outer_step", "status")


class ProblemPayload(TypedDict):
    """What was solved."""

    name: str
    dim_x: int
    dim_y: int
    samples: int | None  # the leading axis of the inner data, where they are samples
    description: str


class SeedPayload(TypedDict):
    """One run: entry j of every list belongs to x_k with k = k[j], the x after k outer steps.

    `gradients`, `products` and `seconds` are what it took to get there. A run that is looked at so
    often takes longer than it would, so that `seconds` are those of one alone, by cost. `value` is
    f(x, y^N) of the step that led there, as are the residuals (None at k = 0). `grad_norm2` is
    ‖∇Φ(x_k)‖², measured apart from the run and not part of its cost.
    """

    k: list[int]
    gradients: list[int]
    products: list[int]
    seconds: list[float]
    value: list[float | None]
    grad_norm2: list[float | None]
    inner_residual: list[float | None]
    linear_residual: list[float | None]


class SchemePayload(TypedDict):
    """One method with the loops and the outer step size that were best for it: medians over seeds.

    `status` is "converged" (reached the target), "floored" (stagnates above it), "budget spent"
    (still on its way), "diverged" (failed, or is far off) or "not measured". `N` and `Q` are words
    for loops whose length changes, `Q` is None for ITD, and `outer_step` is a word where it is not
    a number that was tuned. `cause` says why runs failed, where some did. `value` is Φ and
    `grad_norm2` ‖∇Φ‖² at the end, both measured. `*_to_target` is what it took to the x_k from
    which on it is at the target, None if most seeds do not get there. `spread` has the smallest and
    the largest over the seeds of every number that all of them have, by the name of its key.
    """

    name: str
    code: str
    N: int | str
    Q: int | str | None
    outer_step: float | str
    status: str
    cause: str
    steps: float
    gradients: float
    products: float
    seconds: float
    value: float | None
    grad_norm2: float | None
    gradients_to_target: float | None
    products_to_target: float | None
    seconds_to_target: float | None
    spread: dict[str, list[float]]
    seeds: list[SeedPayload]


class GridPayload(TypedDict):
    """Gradients and products to the target for AID with N and Q steps: cost[i][j] is at N[i], Q[j].

    None where the target was not reached. For the loops that stand in the table these are medians
    over the seeds, for the others those of the first.
    """

    N: list[int]
    Q: list[int]
    cost: list[list[float | None]]


class CertificatePayload(TypedDict):
    """A bound of the theory on the mean of ‖∇Φ(x_k)‖² over k < K, and what was measured."""

    scheme: str
    statement: str
    K: list[int]
    bound: list[float]
    measured: list[float]


class ComparisonPayload(TypedDict):
    """The whole comparison. `python` reproduces it in Python, `command` on the command line."""

    title: str
    problem: ProblemPayload
    target: float
    budget: int
    settings: dict[str, str | float]
    versions: dict[str, str]
    command: str
    python: str
    verdict: list[str]
    recommendation: str
    schemes: list[SchemePayload]
    grid: GridPayload | None
    certificates: list[CertificatePayload]


def payload_of(comparison: "Comparison") -> ComparisonPayload:
    """Everything as plain numbers, words and lists."""
    c = comparison
    return ComparisonPayload(
        title=f"Do loops pay on {c.problem['name']}?",
        problem=c.problem,
        target=c.target,
        budget=c.budget,
        settings=c.settings,
        versions=c.versions,
        command=c.command,
        python=c.setup + c.call,
        verdict=c.verdict,
        recommendation=c.recommendation,
        schemes=[_scheme(outcome) for outcome in c.schemes],
        grid=None if c.grid is None else _grid(c.grid),
        certificates=list(c.certificates),
    )


def row_of(outcome: "Outcome", run: MeasuredRun) -> dict[str, Any]:
    """One run of a scheme, as a row of the table for files."""
    return {
        "scheme": outcome.name,
        "N": outcome.N,
        "Q": outcome.Q,
        "outer_step": outcome.outer_step,
        "status": run.ending(outcome.target),
        "steps": int(run.steps[-1]),
        "gradients": int(run.spent("gradients")[-1]),
        "products": int(run.spent("products")[-1]),
        "seconds": float(outcome.spent(run, "seconds")[-1]),
        "value": _number(run.value[-1]),
        "grad_norm2": _number(run.end),
        **{f"{unit}_to_target": _number(outcome.run_to_target(run, unit)) for unit in _UNITS},
    }


def _scheme(outcome: "Outcome") -> SchemePayload:
    rows = [row_of(outcome, run) for run in outcome.runs]

    columns = {key: [row[key] for row in rows] for key in rows[0] if key not in _WORDS}
    middle = {
        key: _number(median([math.inf if number is None else number for number in column]))
        for key, column in columns.items()
    }
    spread = {
        key: [min(column), max(column)] for key, column in columns.items() if None not in column
    }
    seeds = [_seed(outcome, run) for run in outcome.runs]
    words = {key: getattr(outcome, key) for key in ("name", "code", *_WORDS[1:], "cause")}
    return cast(SchemePayload, {**words, **middle, "spread": spread, "seeds": seeds})


def _seed(outcome: "Outcome", run: MeasuredRun) -> SeedPayload:
    """The run at its snapshots; values and residuals are those of the step that led there."""
    rows, trace = np.maximum(run.steps - 1, 0), run.trace

    def column(name: str) -> list[float | None]:
        entries = trace[name][rows] if len(trace) else np.zeros(len(rows))
        return [
            _number(entry) if step > 0 else None
            for entry, step in zip(entries, run.steps, strict=True)
        ]

    return SeedPayload(
        k=[int(k) for k in run.steps],
        gradients=[int(n) for n in run.spent("gradients")],
        products=[int(n) for n in run.spent("products")],
        seconds=[float(t) for t in outcome.spent(run, "seconds")],
        grad_norm2=[_number(entry) for entry in run.norm2],
        value=column("value"),
        inner_residual=column("inner_residual"),
        linear_residual=column("linear_residual"),
    )


def _grid(grid: "Grid") -> GridPayload:
    cost = [[_number(entry) for entry in row] for row in grid.cost]
    return GridPayload(N=list(grid.N), Q=list(grid.Q), cost=cost)


def _number(value: float) -> float | None:
    """JSON has neither NaN nor infinity: there is no such number."""
    return float(value) if math.isfinite(value) else None


def describe(problem: Problem, start: Point, name: str, description: str) -> ProblemPayload:
    """The problem and its size; samples are the leading axis of arrays in the inner data."""
    shapes = [jnp.shape(entry) for entry in problem.inner_data if isinstance(entry, jax.Array)]
    return ProblemPayload(
        name=name,
        dim_x=size(start.x),
        dim_y=size(start.y),
        samples=next((shape[0] for shape in shapes if shape), None),
        description=description,
    )


def settings(
    steps: Steps, gauge: Gauge, loops: Loops, seeds: Sequence[int], start: Point, target_rule: str
) -> dict[str, str | float]:
    """The numbers and rules behind the runs."""
    return {
        "N": ", ".join(map(str, loops.N)),
        "Q": ", ".join(map(str, loops.Q)),
        "inner step size": steps.inner,
        "linear step size": steps.linear,
        "the inner step size is": steps.inner_from,
        "the linear step size is": steps.linear_from,
        "outer step size": (
            "best of nine, three per decade, of more beyond a good end, and of those beside it"
        ),
        "seeds": ", ".join(map(str, seeds)),
        "starts": STARTS_RULE,
        "‖∇Φ‖² at the start": gauge.start,
        "target": f"{target_rule}, {VALUE_RULE}",
        "x and y": str(jax.tree.leaves(start.x)[0].dtype),
        "device": f"{jax.default_backend()}, {platform.machine()}",
        "‖∇Φ‖ is measured": accuracy(gauge, start.y),
    }


def accuracy(gauge: Gauge, y: PyTree) -> str:
    """How well ‖∇Φ‖ was measured, in words."""
    if is_small(y):
        return f"exactly, to rounding, about {100 * gauge.error:.2g} %"
    return f"until it changes by less than 10 %; the largest change was {100 * gauge.error:.2g} %"


def versions() -> dict[str, str]:
    """Of what decides the numbers."""
    names = ("biloop", "jax", "jaxlib", "equinox", "optax", "numpy")
    return {"python": platform.python_version()} | {name: _version(name) for name in names}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # a checkout that is not installed
        return "not installed"


def call(given: Mapping[str, Any]) -> str:
    """The call in Python, where problem, x0 and y0 are there, and methods if there were any."""
    known = {name: value for name, value in given.items() if value is not None}
    plain = int | str | list | tuple
    written = {n: a if isinstance(a, plain) else f"{float(a):g}" for n, a in known.items()}
    arguments = ", ".join(f"{name}={value}" for name, value in written.items())
    return f"comparison = bl.compare(\n    problem, x0, y0, {arguments}\n)"
