"""Methods without second derivatives of g (penalties, a barrier, chance), or with one product.

`batch`, `key` and step sizes as for the sampled methods.
"""

from typing import Any

from biloop.methods import Barrier, Differences, Evolution, OneStep, Penalty
from biloop.samples import as_samples
from biloop.samples.estimators import Storm
from biloop.schedules import Schedule, as_steps
from biloop.schedules.arguments import positive
from biloop.schemes.documented import documented
from biloop.schemes.pieces import descent

Step = float | tuple[float, float] | Schedule


@documented("inner_step=0.1, linear_step=0.1, N=10")
def t1_t2(inner_step: float = 0.1, linear_step: float = 0.1, *, N: int = 1) -> OneStep:
    """T1–T2 of Luketina, Berglund, Greff and Raiko (2016): η∇_y f in the place of the adjoint."""
    return OneStep(descent(inner_step, N), positive("linear_step")(linear_step))


@documented("inner_step=0.1")
def darts(inner_step: float = 0.1, *, radius: float = 0.01) -> OneStep:
    """DARTS of Liu, Simonyan and Yang (2019): one step of y, by a difference of gradients."""
    loop = descent(inner_step, 1)
    return OneStep(loop, inner_step, at="before", derivatives=Differences(radius))


@documented("batch=8, inner_step=0.1")
def f2sa(
    batch: Any = 64, inner_step: Step = (0.1, -4 / 7), *,
    multiplier: Step = (10.0, 1 / 7), T: int = 1, key: Any = 0,
) -> Penalty:  # fmt: skip
    """F2SA of Kwon, Kwon, Wright and Nowak (2023)."""
    return Penalty(as_samples(batch, key), inner_step, multiplier, as_steps(1, "T")(T))


@documented("batch=8, inner_step=0.1")
def f3sa(
    batch: Any = 64, inner_step: Step = (0.1, -0.4), *,
    multiplier: Step = (10.0, 0.2), T: int = 1, weight: Step = (1.0, -0.8), key: Any = 0,
) -> Penalty:  # fmt: skip
    """F3SA of Kwon et al. (2023): F2SA with STORM for all directions."""
    return Penalty(
        as_samples(batch, key), inner_step, multiplier, as_steps(1, "T")(T), Storm(weight)
    )


@documented("batch=8, inner_step=0.1")
def f2sa_2(
    batch: Any = 64, inner_step: Step = (0.1, -4 / 7), *,
    multiplier: Step = (10.0, 1 / 7), T: int = 1, key: Any = 0,
) -> Penalty:  # fmt: skip
    """F2SA-2 of Chen, Li, Chayti and Zhang (2025), F2SA with central differences.

    Its constants are for an accuracy that is given; the default is the schedule of F2SA.
    """
    return Penalty(
        as_samples(batch, key), inner_step, multiplier, as_steps(1, "T")(T), central=True
    )


@documented("inner_step=0.1, y_step=0.1, N=10")
def bome(
    inner_step: float = 0.1, *, y_step: Step = 0.1, N: int = 10, strength: float = 0.5
) -> Barrier:
    """BOME of Ye, Liu, Wright, Stone and Liu (2022): y is a variable of its own; full batches."""
    return Barrier(descent(inner_step, N), y_step, strength)


@documented("batch=8, inner_step=0.1, N=10, directions=2")
def pzobo(
    batch: Any = 64, inner_step: Step = 0.1, *, N: int = 10, directions: int = 1,
    radius: float = 1e-3, key: Any = 0,
) -> Evolution:  # fmt: skip
    """PZOBO of Sow, Ji and Liang (2022): the derivative of y^N(x) along random directions."""
    return Evolution(descent(inner_step, N), as_samples(batch, key), directions, radius)


@documented("batch=8, inner_step=0.1, N=10, directions=2")
def hozog(
    batch: Any = 64, inner_step: Step = 0.1, *, N: int = 10, directions: int = 1,
    radius: float = 1e-3, key: Any = 0,
) -> Evolution:  # fmt: skip
    """HOZOG of Gu et al. (2021): the derivative of f(x, y^N(x)) along random directions."""
    loop, samples = descent(inner_step, N), as_samples(batch, key)
    return Evolution(loop, samples, directions, radius, jacobian=False)
