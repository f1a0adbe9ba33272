"""The loop schemes by name, as methods ready for `solve`, and the one table of them.

Loop sizes are given (N, Q) or follow from the condition number: N = Q = ⌈κ ln κ⌉ (Table 1). Who
lists schemes reads `TABLE`: comparisons, the command line, reports. A new scheme is a function and
a row.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

from biloop.inner import GradientDescent, NewtonCG
from biloop.linear import CG, Richardson
from biloop.methods import AID, ITD, Method
from biloop.oracles import Cost
from biloop.schedules import Adaptive, Power, Schedule

Length = int | Int[Array, ""] | Schedule


def loop_size(kappa: float) -> int:
    """⌈κ ln κ⌉, and at least 1: the Θ(κ ln κ) of Table 1 with constant 1."""
    if not 1 <= kappa < math.inf:
        raise ValueError(f"kappa = L/mu must be at least 1 and finite, got {kappa}.")
    return max(1, math.ceil(kappa * math.log(kappa)))


def _size(name: str, given: Length | None, kappa: float | None) -> Length:
    if given is not None and kappa is None:
        return given
    if given is None and kappa is not None:
        return loop_size(kappa)
    raise ValueError(f"Give either {name} or kappa; got {name}={given}, kappa={kappa}.")


def _aid(N: Length, Q: Length, inner_step: float, linear_step: float, warm_v: bool) -> AID:
    return AID(
        GradientDescent(step_size=inner_step, steps=N),
        Richardson(linear_step, Q),
        warm_start_v=warm_v,
    )


def no_loop(
    inner_step: float,
    linear_step: float,
    *,
    N: Length = 1,
    Q: Length = 1,
    warm_start_v: bool = True,
) -> AID:
    """No-loop AID: N = O(1), Q = O(1)."""
    return _aid(N, Q, inner_step, linear_step, warm_start_v)


def n_loop(
    N: Length | None = None,
    *,
    inner_step: float,
    linear_step: float,
    Q: Length = 1,
    kappa: float | None = None,
    warm_start_v: bool = True,
) -> AID:
    """N-loop AID: N = Θ(κ ln κ), Q = O(1)."""
    return _aid(_size("N", N, kappa), Q, inner_step, linear_step, warm_start_v)


def q_loop(
    Q: Length | None = None,
    *,
    inner_step: float,
    linear_step: float,
    N: Length = 1,
    kappa: float | None = None,
    warm_start_v: bool = True,
) -> AID:
    """Q-loop AID: N = O(1), Q = Θ(κ ln κ). Theorem 2 has `warm_start_v=False`."""
    return _aid(N, _size("Q", Q, kappa), inner_step, linear_step, warm_start_v)


def n_q_loop(
    N: Length | None = None,
    Q: Length | None = None,
    *,
    inner_step: float,
    linear_step: float,
    kappa: float | None = None,
    warm_start_v: bool = True,
) -> AID:
    """N-Q-loop AID: N = Q = Θ(κ ln κ). Theorem 2 has `warm_start_v=False`."""
    N, Q = _size("N", N, kappa), _size("Q", Q, kappa)
    return _aid(N, Q, inner_step, linear_step, warm_start_v)


def itd_no_loop(inner_step: float, *, N: Length = 1, max_steps: int | None = None) -> ITD:
    """No-loop ITD: N = O(1). A length that is an array needs `max_steps`, as ITD does."""
    return ITD(GradientDescent(step_size=inner_step, steps=N), max_steps=max_steps)


def n_n_loop(
    N: Length | None = None,
    *,
    inner_step: float,
    kappa: float | None = None,
    max_steps: int | None = None,
) -> ITD:
    """N-N-loop ITD: N = Θ(κ ln κ). A length that is an array needs `max_steps`, as ITD does."""
    steps = _size("N", N, kappa)
    return ITD(GradientDescent(step_size=inner_step, steps=steps), max_steps=max_steps)


def ba(
    Q: Length | None = None,
    *,
    inner_step: float,
    linear_step: float,
    kappa: float | None = None,
    warm_start_y: bool = True,
) -> AID:
    """BA of Ghadimi and Wang: N_k = ⌈(k + 1)^¼ / 2⌉, Q = Θ(κ ln κ) from v = 0.

    `warm_start_y=False` starts each N-loop at y_0.
    """
    return AID(
        GradientDescent(step_size=inner_step, steps=Power(0.5, 0.25)),
        Richardson(linear_step, _size("Q", Q, kappa)),
        warm_start_y=warm_start_y,
        warm_start_v=False,
    )


def aid_bio(
    N: Length | None = None,
    Q: Length | None = None,
    *,
    inner_step: float,
    kappa: float | None = None,
) -> AID:
    """AID-BiO of Ji et al.: both loops, warm-started, with conjugate gradients as the Q-loop."""
    return AID(
        GradientDescent(step_size=inner_step, steps=_size("N", N, kappa)), CG(_size("Q", Q, kappa))
    )


def itd_bio(N: Length | None = None, *, inner_step: float, kappa: float | None = None) -> ITD:
    """ITD-BiO of Ji et al.: the N-N-loop."""
    return n_n_loop(N, inner_step=inner_step, kappa=kappa)


def hoag(
    inner_step: float | str = "auto", *, scale: float = 0.1, power: float = -2.0, most: int = 1000
) -> AID:
    """HOAG of Pedregosa: both loops run until their residuals are at most scale · (k + 1)^power."""
    tolerance = Power(scale, power)
    inner = GradientDescent(step_size=inner_step, steps=most, tolerance=tolerance)
    return AID(inner, CG(most, tolerance))


def auto(share: float = 0.1, *, most: int = 1000) -> AID:
    """Adaptive AID: no loop size, step size or κ is given; to be used with `outer="auto"`.

    Each loop removes all but a share of the error that the last outer step brought in: the N-loop
    by a step of Newton's method (or a few), the Q-loop and Newton's systems by conjugate gradients.
    """
    loops = Adaptive(share, most)
    return AID(NewtonCG(loops), CG(loops))


class Scheme(NamedTuple):
    """A row of the table: how a scheme is made, which loops it has, and what an outer step costs.

    `arguments` are the lengths and step sizes that its function takes, by name, and `loops` those
    of the lengths that are more than one step, so that they are to be chosen. `N` and `Q` are the
    lengths that nobody chooses: a number, or a word where they change; None: there is no such loop.
    Schemes of one `family` differ in their loops alone. `cost` is that of an outer step with N and
    Q, None where it changes with k. `outer` is the outer step of a scheme that has one of its own.
    """

    name: str
    function: Callable[..., Method]
    citation: str
    family: str
    arguments: tuple[str, ...]
    loops: tuple[str, ...]
    N: int | str = 1
    Q: int | str | None = 1
    cost: Callable[[int, int], Cost] | None = None
    outer: str | None = None
    compared: bool = True

    @property
    def key(self) -> str:
        """Its name on the command line."""
        return self.function.__name__.replace("_", "-")

    def make(self, **numbers: Any) -> Method:
        """The method, from N, Q, inner_step and linear_step; those it has no use for are left."""
        return self.function(**self._used(numbers))

    def code(self, **numbers: Any) -> str:
        """The same as a line of code."""
        written = [f"{name}={value:g}" for name, value in self._used(numbers).items()]
        return f"bl.schemes.{self.function.__name__}({', '.join(written)})"

    def make_shared(self, longest: int, **numbers: Any) -> Method:
        """The same with all lengths as arrays: then a family shares one compiled program."""
        given = numbers | {"max_steps": longest}
        given |= {loop: jnp.asarray(numbers[loop]) for loop in ("N", "Q") if loop in self.arguments}
        return self.function(**{name: given[name] for name in self.arguments})

    def _used(self, numbers: dict[str, Any]) -> dict[str, Any]:
        """The numbers that the function takes, without lengths that are one step by definition."""
        used = [name for name in self.arguments if name in self.loops or name.endswith("_step")]
        return {name: numbers[name] for name in used}


def _aid_cost(N: int, Q: int) -> Cost:
    return Cost(N + 2, Q + 1)


def _itd_cost(N: int, Q: int) -> Cost:
    return Cost(N + 2, 2 * N)


_JI = "Ji, Yang and Liang (2021)"
_STEPS = ("inner_step", "linear_step")
_PAIR = ("N", "Q", *_STEPS)
_UNROLLED = ("N", "inner_step", "max_steps")
# fmt: off
TABLE: tuple[Scheme, ...] = (  # the order of tables
    Scheme("No-loop AID", no_loop, "Corollary 2", "AID", _PAIR, (), cost=_aid_cost),
    Scheme("N-loop AID", n_loop, "Corollary 1", "AID", _PAIR, ("N",), cost=_aid_cost),
    Scheme("Q-loop AID", q_loop, "Corollary 4", "AID", _PAIR, ("Q",), cost=_aid_cost),
    Scheme("N-Q-loop AID", n_q_loop, "Corollary 3", "AID", _PAIR, ("N", "Q"), cost=_aid_cost),
    Scheme("No-loop ITD", itd_no_loop, "Corollary 6", "ITD", _UNROLLED, (), Q=None, cost=_itd_cost),
    Scheme("N-N-loop ITD", n_n_loop, "Corollary 5", "ITD", _UNROLLED, ("N",), Q=None,
           cost=_itd_cost),
    Scheme("BA", ba, "Ghadimi and Wang (2018)", "BA", ("Q", *_STEPS), ("Q",), N="grows"),
    Scheme("AID-BiO", aid_bio, _JI, "BiO", ("N", "Q", "inner_step"), ("N", "Q"), compared=False),
    Scheme("ITD-BiO", itd_bio, _JI, "BiO", ("N", "inner_step"), ("N",), Q=None, cost=_itd_cost,
           compared=False),
    Scheme("HOAG", hoag, "Pedregosa (2016)", "HOAG", ("inner_step",), (), N="tolerance",
           Q="tolerance", compared=False),
    Scheme("Adaptive", auto, "no length and no step size is given", "Adaptive", (), (), N="auto",
           Q="auto", outer="auto"),
)
# fmt: on
BY_NAME: dict[str, Scheme] = {scheme.name: scheme for scheme in TABLE}
