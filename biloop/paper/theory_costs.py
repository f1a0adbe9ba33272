"""What the theorems promise for given constants: a row for each scheme, and what follows in words.

Data alone; `theory_table` prints it.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from biloop.schedules.arguments import short
from biloop.theory import (
    SCHEMES,
    Certificate,
    Complexity,
    Condition,
    Constants,
    Start,
    aid_complexity,
    corollary1,
    corollary2,
    corollary3,
    corollary4,
    corollary5,
    corollary6,
    itd_complexity,
)

QUOTED = ("BA", "AID-BiO", "ITD-BiO")
LARGEST_KAPPA = 1e12  # beyond it the lengths of the loops come near 2^53
HARDLY = 1e3  # x hardly moves when β is this many times below 1/L_Φ


@dataclass(frozen=True)
class TheoryCosts:
    """The schemes under the same constants: six that the paper proves, three that it quotes."""

    constants: Constants
    start: Start
    eps: float
    proved: tuple[Complexity, ...]
    quoted: tuple[Complexity, ...]

    @property
    def certificates(self) -> tuple[tuple[str, Certificate], ...]:
        """The certificate of each scheme that has one, with the scheme's name."""
        return tuple((row.scheme, row.certificate) for row in self.proved if row.certificate)

    @property
    def broken(self) -> tuple[tuple[str, Condition], ...]:
        """Each condition that does not hold, with the scheme whose it is."""
        return tuple((s, condition) for s, c in self.certificates for condition in c.broken)

    @property
    def floored(self) -> tuple[tuple[str, Certificate], ...]:
        """The schemes whose bound stays at ε or above, however many outer steps they take."""
        return tuple((s, c) for s, c in self.certificates if c.holds and c.floor >= self.eps)


def theory_costs(
    constants: Constants, start: Start, eps: float, N: int | None = None, Q: int | None = None
) -> TheoryCosts:
    """Each scheme's certificate and cost to reach ε.

    N and Q replace the scheme's own choice where it has that loop: N of the N-loop, the N-Q-loop
    and the N-N-loop, Q of the Q-loop and the N-Q-loop.
    """
    c = constants
    if c.kappa > LARGEST_KAPPA:
        raise ValueError(f"L/mu must be at most {short(LARGEST_KAPPA)}, got {short(c.kappa)}")
    try:
        proved = (
            aid_complexity("No-loop AID", corollary2(c, start), eps),
            aid_complexity("N-loop AID", corollary1(c, start, N=N), eps),
            aid_complexity("Q-loop AID", corollary4(c, start, eps, Q=Q), eps),
            aid_complexity("N-Q-loop AID", corollary3(c, start, eps, N=N, Q=Q), eps),
            itd_complexity("No-loop ITD", corollary6(c, start), eps),
            itd_complexity("N-N-loop ITD", corollary5(c, start, eps, N=N), eps),
        )
        quoted = tuple(SCHEMES[name](c, start, eps) for name in QUOTED)
    except ArithmeticError as error:
        numbers = ", ".join(f"{n} = {short(v)}" for n, v in (asdict(c) | {"eps": eps}).items())
        raise ValueError(f"the bounds for {numbers} leave the range of floats") from error
    return TheoryCosts(c, start, eps, proved, quoted)


def remarks(costs: TheoryCosts) -> tuple[str, ...]:
    """What the numbers say: which proved scheme is cheapest, and how small β is."""
    reached = [row for row in costs.proved if math.isfinite(row.K)]
    if not reached:
        return (f"No scheme is certified to reach ε = {short(costs.eps)}.",)
    gradients = _cheapest("gradients", reached, lambda row: row.gradients)
    products = _cheapest("products", reached, lambda row: row.products)
    return (f"{gradients} {products}", _step_remark(costs.constants, reached))


def _cheapest(what: str, rows: list[Complexity], cost: Callable[[Complexity], float]) -> str:
    best, *others = sorted(rows, key=cost)
    sentence = f"Fewest {what}: {best.scheme}, {short(cost(best))}"
    if others:
        ratio = cost(others[0]) / cost(best)
        times = f"{short(ratio, 2)} times fewer than" if ratio >= 1.05 else "about as many as"
        sentence += f", {times} {others[0].scheme}"
    return sentence + "."


def _step_remark(constants: Constants, rows: list[Complexity]) -> str:
    """β beside 1/L_Φ, the step that gradient descent on Φ itself may take."""
    betas = sorted((row.certificate.beta, row.scheme) for row in rows if row.certificate)
    (smallest, slow), (largest, fast) = betas[0], betas[-1]
    allowed = 1.0 / constants.L_Phi
    sentence = (
        f"Gradient descent on Φ itself may step by 1/L_Φ = {short(allowed)}; the largest β here "
        f"({fast}) is {short(allowed / largest, 2)} times smaller, the smallest ({slow}) "
        f"{short(allowed / smallest, 2)} times"
    )
    if allowed / smallest >= HARDLY:
        sentence += ", with which x hardly moves"
    return sentence + "."


def as_dict(costs: TheoryCosts) -> dict[str, Any]:
    """The same for machines, in full precision. What is infinite or does not exist is null."""
    c = costs.constants
    return _finite(
        {
            "constants": {**asdict(c), "kappa": c.kappa, "L_Phi": c.L_Phi},
            "start": asdict(costs.start),
            "eps": costs.eps,
            "schemes": [_row(row) for row in (*costs.proved, *costs.quoted)],
            "remarks": list(remarks(costs)),
        }
    )


def _row(row: Complexity) -> dict[str, Any]:
    c = row.certificate
    cost = {"K": row.K, "gradients": row.gradients, "products": row.products}
    head = {"scheme": row.scheme, "quoted": c is None, "N": row.N, "Q": row.Q}
    if c is None:
        return head | cost
    parameters = {name: getattr(c, name) for name in ("alpha", "eta", "lam", "beta")}
    bound = {name: getattr(c, name) for name in ("gap_term", "start_term", "floor", "holds")}
    conditions = [asdict(each) | {"holds": each.holds} for each in c.conditions]
    return (
        head
        | {"statement": c.statement}
        | parameters
        | cost
        | bound
        | {"reaches_eps": math.isfinite(row.K), "conditions": conditions}
    )


def _finite(value: Any) -> Any:
    """JSON has no ∞ and no NaN."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
