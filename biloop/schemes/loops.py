"""The paper's loop schemes, and adaptive ones: all samples in every step.

Loop sizes are given (N, Q) or follow from the condition number: N = Q = ⌈κ ln κ⌉ (Table 1).
"""

import math
from typing import Any, get_args

from jaxtyping import Array, Int

from biloop.inner import FISTA, Anderson, NewtonCG
from biloop.linear import CG, GMRES
from biloop.methods import AID, ITD, Growing
from biloop.problem import Kind
from biloop.samples import as_key
from biloop.schedules import Adaptive, Power, Schedule
from biloop.schedules.arguments import number, one_of, shown
from biloop.schemes.documented import documented
from biloop.schemes.pieces import conjugate_gradients, descent, richardson

Length = int | Int[Array, ""] | Schedule


def loop_size(kappa: float) -> int:
    """⌈κ ln κ⌉, and at least 1: the Θ(κ ln κ) of Table 1 with constant 1.

    Parameters
    ----------
    kappa : number
        The condition number L/μ, at least 1.

    Examples
    --------
    >>> bl.schemes.loop_size(10.0)
    24
    """
    if not 1 <= (kappa := float(number(kappa, "kappa"))) < math.inf:
        raise ValueError(f"kappa = L/mu must be at least 1 and finite, got {kappa}.")
    return max(1, math.ceil(kappa * math.log(kappa)))


def _size(name: str, given: Length | None, kappa: float | None) -> Length:
    if given is not None and kappa is None:
        return given
    if given is None and kappa is not None:
        return loop_size(kappa)
    raise ValueError(
        f"Give either {name} or kappa; got {name}={shown(given)}, kappa={shown(kappa)}."
    )


def _aid(N: Length, Q: Length, inner_step: float, linear_step: float, warm_v: bool) -> AID:
    return AID(descent(inner_step, N), richardson(linear_step, Q), warm_start_v=warm_v)


@documented("inner_step=0.1, linear_step=0.1")
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


@documented("N=10, inner_step=0.1, linear_step=0.1")
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


@documented("Q=10, inner_step=0.1, linear_step=0.1")
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


@documented("N=10, Q=10, inner_step=0.1, linear_step=0.1")
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


@documented("inner_step=0.1")
def itd_no_loop(inner_step: float, *, N: Length = 1, max_steps: int | None = None) -> ITD:
    """No-loop ITD: N = O(1). A length that is an array needs `max_steps`, as ITD does."""
    return ITD(descent(inner_step, N), max_steps=max_steps)


@documented("N=10, inner_step=0.1")
def n_n_loop(
    N: Length | None = None,
    *,
    inner_step: float,
    kappa: float | None = None,
    max_steps: int | None = None,
) -> ITD:
    """N-N-loop ITD: N = Θ(κ ln κ). A length that is an array needs `max_steps`, as ITD does."""
    return ITD(descent(inner_step, _size("N", N, kappa)), max_steps=max_steps)


@documented("Q=10, inner_step=0.1, linear_step=0.1")
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
        descent(inner_step, Power(0.5, 0.25)),
        richardson(linear_step, _size("Q", Q, kappa)),
        warm_start_y=warm_start_y,
        warm_start_v=False,
    )


@documented("N=10, Q=3, inner_step=0.1")
def aid_bio(
    N: Length | None = None,
    Q: Length | None = None,
    *,
    inner_step: float,
    kappa: float | None = None,
) -> AID:
    """AID-BiO of Ji et al.: both loops, warm-started, with conjugate gradients as the Q-loop."""
    N, Q = _size("N", N, kappa), _size("Q", Q, kappa)
    return AID(descent(inner_step, N), conjugate_gradients(Q))


@documented("N=10, inner_step=0.1")
def itd_bio(
    N: Length | None = None,
    *,
    inner_step: float,
    kappa: float | None = None,
    max_steps: int | None = None,
) -> ITD:
    """ITD-BiO of Ji et al.: the N-N-loop."""
    return n_n_loop(N, inner_step=inner_step, kappa=kappa, max_steps=max_steps)


@documented("inner_step=0.1")
def hoag(
    inner_step: float | str = "auto", *, scale: float = 0.1, power: float = -2.0, most: int = 1000
) -> AID:
    """HOAG of Pedregosa: both loops run until their residuals are at most scale · (k + 1)^power."""
    tolerance = Power(scale, power)
    inner = descent(inner_step, most, tolerance, name="most")
    return AID(inner, conjugate_gradients(most, tolerance, name="most"))


def auto(
    share: float = 0.1,
    *,
    most: int = 1000,
    kind: Kind = "minimum",
    batch: int | None = None,
    key: Any = 0,
) -> AID | Growing:
    """Adaptive AID: no loop size, step size or κ is given; to be used with `outer="auto"`.

    Each loop removes all but a share of the error that the last outer step brought in: the N-loop
    by a step of Newton's method (or a few), the Q-loop and Newton's systems by conjugate gradients.

    `kind` is the `kind` of the problem. With a proximal map the N-loop is `FISTA`, and conjugate
    gradients run on the support; for an equilibrium the loops are `Anderson` and `GMRES`. They
    leave the square of the share: where the support is not found yet, h says little.

    With a `batch` it begins on batches, with step sizes that are found, and ends on all rows:
    `Growing`.

    Parameters
    ----------
    share : number
        Of the error that a loop starts with, what it may leave.
    most : int
        The most steps of a loop.
    kind : "minimum", "proximal" or "equilibrium"
        The `kind` of the problem.
    batch : int, optional
        The rows of a batch to begin with; all rows by default.
    key : jax.random.key or integer
        Says which rows are in a batch.

    Examples
    --------
    >>> bl.solve(problem, x0, y0, bl.schemes.auto(), outer="auto").status.name
    'CONVERGED'
    """
    method = _adaptive(share, most, one_of("kind", get_args(Kind))(kind))
    key = key if type(key) is int else as_key(key)  # which an integer is made only where it counts
    return method if batch is None else Growing(method, batch, key)


def _adaptive(share: float, most: int, kind: Kind) -> AID:
    loops = Adaptive(share, most)
    match kind:
        case "proximal":
            return AID(FISTA(step_size="auto", steps=Adaptive(share**2, 20 * most)), CG(loops))
        case "equilibrium":
            closer = Adaptive(share**2, most)
            return AID(Anderson(steps=closer), GMRES(closer))
        case _:
            return AID(NewtonCG(loops), CG(loops, indefinite="damp"))
