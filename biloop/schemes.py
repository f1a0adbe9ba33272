"""The paper's loop schemes by name, as methods ready for `solve`.

Loop sizes are given (N, Q) or follow from the condition number: N = Q = ⌈κ ln κ⌉ (Table 1).

| scheme    | N          | Q          |                                                |
|-----------|------------|------------|------------------------------------------------|
| no_loop   | 1          | 1          | AID, Corollary 2                               |
| n_loop    | ⌈κ ln κ⌉   | 1          | AID, Corollary 1                               |
| q_loop    | 1          | ⌈κ ln κ⌉   | AID, Corollary 4                               |
| n_q_loop  | ⌈κ ln κ⌉   | ⌈κ ln κ⌉   | AID, Corollary 3                               |
| itd_no_loop | 1        |            | ITD, Corollary 6                               |
| n_n_loop  | ⌈κ ln κ⌉   |            | ITD, Corollary 5                               |
| ba        | ⌈(k+1)^¼/2⌉ | ⌈κ ln κ⌉  | Ghadimi and Wang (2018)                        |
| aid_bio   | ⌈κ ln κ⌉   | ⌈κ ln κ⌉   | Ji, Yang and Liang (2021), conjugate gradients |
| itd_bio   | ⌈κ ln κ⌉   |            | Ji, Yang and Liang (2021)                      |
| hoag      | ‖∇_y g‖ ≤ ε_k | ‖Hv − b‖ ≤ ε_k | Pedregosa (2016), decreasing tolerances |
| auto      | as it pays | as it pays | loops that size themselves, no step size given |
"""

import math

from biloop.inner.descents import GradientDescent
from biloop.inner.newton_cg import NewtonCG
from biloop.linear import CG, Richardson
from biloop.methods import AID, ITD
from biloop.schedules import Adaptive, Power, Schedule


def loop_size(kappa: float) -> int:
    """⌈κ ln κ⌉, and at least 1: the Θ(κ ln κ) of Table 1 with constant 1."""
    if not 1 <= kappa < math.inf:
        raise ValueError(f"kappa = L/mu must be at least 1 and finite, got {kappa}.")
    return max(1, math.ceil(kappa * math.log(kappa)))


def _size(name: str, given: int | Schedule | None, kappa: float | None) -> int | Schedule:
    if given is not None and kappa is None:
        return given
    if given is None and kappa is not None:
        return loop_size(kappa)
    raise ValueError(f"Give either {name} or kappa; got {name}={given}, kappa={kappa}.")


def _aid(
    N: int | Schedule, Q: int | Schedule, inner_step: float, linear_step: float, warm_v: bool
) -> AID:
    return AID(
        GradientDescent(step_size=inner_step, steps=N),
        Richardson(linear_step, Q),
        warm_start_v=warm_v,
    )


def no_loop(inner_step: float, linear_step: float, *, Q: int = 1, warm_start_v: bool = True) -> AID:
    """No-loop AID: N = 1, Q = O(1)."""
    return _aid(1, Q, inner_step, linear_step, warm_start_v)


def n_loop(
    N: int | Schedule | None = None,
    *,
    inner_step: float,
    linear_step: float,
    Q: int = 1,
    kappa: float | None = None,
    warm_start_v: bool = True,
) -> AID:
    """N-loop AID: N = Θ(κ ln κ), Q = O(1)."""
    return _aid(_size("N", N, kappa), Q, inner_step, linear_step, warm_start_v)


def q_loop(
    Q: int | Schedule | None = None,
    *,
    inner_step: float,
    linear_step: float,
    kappa: float | None = None,
    warm_start_v: bool = True,
) -> AID:
    """Q-loop AID: N = 1, Q = Θ(κ ln κ). Theorem 2 has `warm_start_v=False`."""
    return _aid(1, _size("Q", Q, kappa), inner_step, linear_step, warm_start_v)


def n_q_loop(
    N: int | Schedule | None = None,
    Q: int | Schedule | None = None,
    *,
    inner_step: float,
    linear_step: float,
    kappa: float | None = None,
    warm_start_v: bool = True,
) -> AID:
    """N-Q-loop AID: N = Q = Θ(κ ln κ). Theorem 2 has `warm_start_v=False`."""
    N, Q = _size("N", N, kappa), _size("Q", Q, kappa)
    return _aid(N, Q, inner_step, linear_step, warm_start_v)


def itd_no_loop(inner_step: float, *, N: int = 1) -> ITD:
    """No-loop ITD: N = O(1)."""
    return ITD(GradientDescent(step_size=inner_step, steps=N))


def n_n_loop(N: int | None = None, *, inner_step: float, kappa: float | None = None) -> ITD:
    """N-N-loop ITD: N = Θ(κ ln κ)."""
    return ITD(GradientDescent(step_size=inner_step, steps=_size("N", N, kappa)))


def ba(
    Q: int | None = None,
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
    N: int | None = None,
    Q: int | None = None,
    *,
    inner_step: float,
    kappa: float | None = None,
) -> AID:
    """AID-BiO of Ji et al.: both loops, warm-started, with conjugate gradients as the Q-loop."""
    return AID(
        GradientDescent(step_size=inner_step, steps=_size("N", N, kappa)), CG(_size("Q", Q, kappa))
    )


def itd_bio(N: int | None = None, *, inner_step: float, kappa: float | None = None) -> ITD:
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
