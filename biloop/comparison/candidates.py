"""What is compared: the paper's schemes with loops from a grid, BA, and adaptive loops."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from biloop.estimate import StepSizes
from biloop.inner.descents import GradientDescent
from biloop.linear import LinearSolver, Richardson
from biloop.methods import AID, ITD, Hypergradient
from biloop.schedules import Power
from biloop.schemes import auto

ADAPTIVE = "Adaptive"
# Every scheme with whether it has loops; the order of tables.
AID_SCHEMES = {  # (N > 1, Q > 1)
    (False, False): "No-loop AID",
    (True, False): "N-loop AID",
    (False, True): "Q-loop AID",
    (True, True): "N-Q-loop AID",
}
SCHEMES = (*AID_SCHEMES.values(), "No-loop ITD", "N-N-loop ITD", "BA", ADAPTIVE)


class Candidate(NamedTuple):
    """A scheme with loops of certain lengths, as a method and as a line of code.

    The lengths are arrays, so that all candidates of a kind share one compiled program. `outer` is
    None where the outer step size is to be found.
    """

    scheme: str
    N: int | str
    Q: int | str | None
    method: Hypergradient
    code: str
    outer: Any = None

    @property
    def title(self) -> str:
        """The scheme and the lengths of its loops."""
        return f"{self.scheme}, N = {self.N}" + ("" if self.Q is None else f", Q = {self.Q}")


class _Kept(LinearSolver):
    """A linear solver that starts at `keep` times the last v: 1 is a warm start, 0 is none.

    AID and BA differ in that alone and in the schedule of N, so that one program serves both.
    """

    solver: LinearSolver
    keep: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def __call__(self, matvec, b, v0, k):
        start = jax.tree.map(lambda v: self.keep.astype(v.dtype) * v, v0)
        return self.solver(matvec, b, start, k)


def candidates(N: Sequence[int], Q: Sequence[int], sizes: StepSizes) -> list[Candidate]:
    """All of them, longest loops first, after the one that needs no tuning: it shows the way."""
    ascending = [
        *_aid(N, Q, sizes),
        *_itd(N, sizes),
        *_ba(Q, sizes),
    ]
    return [_adaptive(), *reversed(ascending)]


def _aid(N: Sequence[int], Q: Sequence[int], sizes: StepSizes) -> Iterator[Candidate]:
    a, b = sizes.inner, sizes.linear
    steps = f"inner_step={a:g}, linear_step={b:g}"
    code: dict[str, Callable[[int, int], str]] = {
        "No-loop AID": lambda n, q: f"bl.schemes.no_loop({steps})",
        "N-loop AID": lambda n, q: f"bl.schemes.n_loop({n}, {steps})",
        "Q-loop AID": lambda n, q: f"bl.schemes.q_loop({q}, {steps})",
        "N-Q-loop AID": lambda n, q: f"bl.schemes.n_q_loop({n}, {q}, {steps})",
    }
    for q in Q:
        for n in N:
            scheme = AID_SCHEMES[n > 1, q > 1]
            method = AID(
                GradientDescent(step_size=a, steps=Power(n, 0)),
                _Kept(Richardson(b, jnp.asarray(q)), 1.0),
            )
            yield Candidate(scheme, n, q, method, code[scheme](n, q))


def _itd(N: Sequence[int], sizes: StepSizes) -> Iterator[Candidate]:
    for n in N:
        method = ITD(GradientDescent(step_size=sizes.inner, steps=jnp.asarray(n)), max_steps=max(N))
        if n == 1:
            code = f"bl.schemes.itd_no_loop(inner_step={sizes.inner:g})"
            yield Candidate("No-loop ITD", n, None, method, code)
        else:
            code = f"bl.schemes.n_n_loop({n}, inner_step={sizes.inner:g})"
            yield Candidate("N-N-loop ITD", n, None, method, code)


def _ba(Q: Sequence[int], sizes: StepSizes) -> Iterator[Candidate]:
    a, b = sizes.inner, sizes.linear
    for q in Q:
        if q > 1:
            inner = GradientDescent(step_size=a, steps=Power(0.5, 0.25))
            method = AID(inner, _Kept(Richardson(b, jnp.asarray(q)), 0.0))
            code = f"bl.schemes.ba({q}, inner_step={a:g}, linear_step={b:g})"
            yield Candidate("BA", "grows", q, method, code)


def _adaptive() -> Candidate:
    return Candidate(ADAPTIVE, "auto", "auto", auto(), "bl.schemes.auto()", outer="auto")
