"""What a comparison hands to reports and files: plain words, numbers and lists, ready for JSON.

Strings that come from the user (the name of a problem, a description, a command) are as they were
given: whoever shows them escapes them. A number that does not exist (a target that was not reached,
a gradient that was not measured there, a residual of a method without a linear system) is None;
NaN and infinity do not occur.
"""

from typing import TypedDict


class ProblemPayload(TypedDict):
    """What was solved."""

    name: str
    dim_x: int
    dim_y: int
    samples: int | None  # the leading axis of the inner data, where they are samples
    description: str


class SeedPayload(TypedDict):
    """One run: entry j of every list belongs to x_k with k = k[j], the x after k outer steps.

    `gradients`, `products` and `seconds` are what it took to get there. The runs over seeds are
    computed side by side, so that `seconds` are those of one run alone, by cost. `value` is
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
    (still on its way) or "diverged". `N` and `Q` are words for loops whose length changes, `Q` is
    None for ITD, and `outer_step` is None where the method finds its own. `value` is Φ and
    `grad_norm2` ‖∇Φ‖² at the end, both measured. `*_to_target` is what it took to the x_k from
    which on it is at the target, None if most seeds do not get there. `spread` has the smallest and
    the largest over the seeds of every number that all of them have, by the name of its key.
    """

    name: str
    code: str
    N: int | str
    Q: int | str | None
    outer_step: float | None
    status: str
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

    None where the target was not reached.
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
