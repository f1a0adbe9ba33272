"""The sampled methods of the field: each a choice of samples, estimators, loops and derivatives.

Every function takes `batch`, the rows of a draw (a number for both levels, a pair, samplers, or
None for all rows), and a `key`. Step sizes are numbers or schedules of k, of which (a, p) stands
for a·(k + 1)^p: the defaults are the published powers, with an a that fits curvatures of about 1.
Where a paper has a constant that knows more than a default can (the number K of steps, or n + m of
samples), it is a constant here, and the scheme says what it depends on. The step of x is the outer
one; its published power stands in the table.
"""

from typing import Any

from biloop.methods import Matrices, SampledAID, SingleLoop
from biloop.samples import as_samples
from biloop.samples.estimators import MovingAverage, Plain, Recursive, Saga, Storm
from biloop.schedules import Power, Schedule
from biloop.schedules.arguments import as_length
from biloop.schemes.documented import documented
from biloop.schemes.pieces import descent, neumann, random_neumann, richardson

Step = float | tuple[float, float] | Schedule


@documented("batch=8")
def soba(
    batch: Any = 64, inner_step: Step = (0.1, -0.4), linear_step: Step = (0.1, -0.4),
    *, key: Any = 0,
) -> SingleLoop:  # fmt: skip
    """SOBA of Dagréou, Ablin, Vaiter and Moreau (2022): plain directions, all at one point."""
    return SingleLoop(as_samples(batch, key), inner_step, linear_step)


@documented("batch=8, weight=0.2")
def ma_soba(
    batch: Any = 64, inner_step: Step = 0.1, linear_step: Step = 0.1, *, weight: Step = 0.1,
    key: Any = 0,
) -> SingleLoop:  # fmt: skip
    """MA-SOBA of Chen, Xiao and Balasubramanian (2023): SOBA with a moving average of h.

    Published for K steps: all step sizes and the weight ∝ K^(−½), alike for all k. The defaults
    know no K: lower them, with that of x, for a longer run.
    """
    estimators = {"vy": Plain(), "x": MovingAverage(weight)}
    return SingleLoop(as_samples(batch, key), inner_step, linear_step, estimators)


@documented("batch=8")
def saba(
    batch: Any = 64, inner_step: Step = 0.1, linear_step: Step = 0.1, *, key: Any = 0
) -> SingleLoop:
    """SABA of Dagréou et al. (2022): SAGA for each direction.

    Published with constants ∝ (n + m)^(−⅔), which the defaults do not know.
    """
    return SingleLoop(as_samples(batch, key), inner_step, linear_step, Saga())


@documented("batch=8, period=10")
def srba(
    batch: Any = 64, inner_step: Step = 0.1, linear_step: Step = 0.1, *, period: int = 100,
    key: Any = 0,
) -> SingleLoop:  # fmt: skip
    """SRBA of Dagréou, Moreau, Vaiter and Ablin (2023): SARAH for each direction.

    Published with constants ∝ (n + m)^(−½), which the defaults do not know.
    """
    return SingleLoop(as_samples(batch, key), inner_step, linear_step, Recursive(period))


@documented("batch=8, probability=0.1")
def spaba(
    batch: Any = 64, inner_step: Step = 0.1, linear_step: Step = 0.1, *,
    probability: float = 0.01, key: Any = 0,
) -> SingleLoop:  # fmt: skip
    """SPABA of Chu, Xu, Yao and Zhang (2024): PAGE for each direction.

    Published with constants; with a `probability` of B / (n + m) or so, all rows cost as much as
    the batches do.
    """
    page = Recursive(probability=probability)
    return SingleLoop(as_samples(batch, key), inner_step, linear_step, page)


@documented("batch=8")
def fsla(
    batch: Any = 64, inner_step: Step = (0.1, -0.5), linear_step: Step = (0.1, -0.5),
    *, weight: Step = (1.0, -0.5), key: Any = 0,
) -> SampledAID:  # fmt: skip
    """FSLA of Li, Gu and Huang (2022): y, v and x one after the other, STORM for h."""
    loops = descent(inner_step, 1), richardson(linear_step, 1)
    return SampledAID(*loops, as_samples(batch, key), Storm(weight))


@documented("batch=8, inner_step=0.1, linear_step=0.1, N=10, Q=10")
def amigo(
    batch: Any = 64, inner_step: Step = 0.1, linear_step: Step = 0.1, *, N: int = 10, Q: int = 10,
    key: Any = 0,
) -> SampledAID:  # fmt: skip
    """AmIGO of Arbel and Mairal (2022): both loops, warm-started."""
    loops = descent(inner_step, N), richardson(linear_step, Q)
    return SampledAID(*loops, as_samples(batch, key))


@documented("batch=8")
def batch_no_loop(
    batch: Any = 64, inner_step: Step = 0.1, linear_step: Step = 0.1, *, key: Any = 0
) -> SampledAID:
    """No-loop AID on batches: AmIGO with N = Q = 1."""
    return amigo(batch, inner_step, linear_step, N=1, Q=1, key=key)


@documented("batch=8, inner_step=0.1, linear_step=0.1, N=10")
def batch_n_loop(
    batch: Any = 64, inner_step: Step = 0.1, linear_step: Step = 0.1, *, N: int = 10, key: Any = 0
) -> SampledAID:
    """N-loop AID on batches: AmIGO with Q = 1."""
    return amigo(batch, inner_step, linear_step, N=N, Q=1, key=key)


@documented("batch=8, inner_step=0.1, linear_step=0.1, Q=10")
def batch_q_loop(
    batch: Any = 64, inner_step: Step = 0.1, linear_step: Step = 0.1, *, Q: int = 10, key: Any = 0
) -> SampledAID:
    """Q-loop AID on batches: AmIGO with N = 1."""
    return amigo(batch, inner_step, linear_step, N=1, Q=Q, key=key)


@documented("batch=8, inner_step=0.1, linear_step=0.1, N=10, Q=10")
def stocbio(
    batch: Any = 64, inner_step: Step = 0.1, linear_step: float = 0.1, *, N: int = 10, Q: int = 10,
    key: Any = 0,
) -> SampledAID:  # fmt: skip
    """stocBiO of Ji, Yang and Liang (2021): both loops, v from 0 by Q + 1 terms of the series."""
    loops = descent(inner_step, N), neumann(linear_step, Q)
    return SampledAID(*loops, as_samples(batch, key))


@documented("batch=8, terms=10")
def bsa(
    batch: Any = 64, inner_step: Step = (0.1, -0.5), linear_step: float = 0.1, *,
    terms: int = 10, key: Any = 0,
) -> SampledAID:  # fmt: skip
    """BSA of Ghadimi and Wang (2018): N_k = ⌈√(k + 1)⌉, v by one term of the series at random."""
    loops = (
        descent(inner_step, Power(1.0, 0.5)),
        random_neumann(linear_step, terms),
    )
    return SampledAID(*loops, as_samples(batch, key))


@documented("batch=8, terms=10")
def ttsa(
    batch: Any = 64, inner_step: Step = (0.1, -0.4), linear_step: float = 0.1, *,
    terms: int = 10, key: Any = 0,
) -> SampledAID:  # fmt: skip
    """TTSA of Hong, Wai, Wang and Yang (2020): BSA with N = 1 and two time scales."""
    loops = descent(inner_step, 1), random_neumann(linear_step, terms)
    return SampledAID(*loops, as_samples(batch, key))


@documented("batch=8, terms=10")
def alset(
    batch: Any = 64, inner_step: Step = 0.1, linear_step: float = 0.1, *, N: int = 1,
    terms: int = 10, key: Any = 0,
) -> SampledAID:  # fmt: skip
    """ALSET of Chen, Sun and Yin (2021): BSA with N = O(1) and one time scale.

    Published for K steps: those of y and x ∝ K^(−½), alike for all k. The default knows no K: lower
    it, with that of x, for a longer run.
    """
    loops = descent(inner_step, N), random_neumann(linear_step, terms)
    return SampledAID(*loops, as_samples(batch, key))


@documented("batch=8, terms=10")
def sustain(
    batch: Any = 64, inner_step: Step = (0.1, -1 / 3), linear_step: float = 0.1, *,
    terms: int = 10, weight: Step = (1.0, -2 / 3), key: Any = 0,
) -> SingleLoop:  # fmt: skip
    """SUSTAIN of Khanduri et al. (2021): STORM for y and for h, a random term of the series."""
    series, estimators = random_neumann(linear_step, terms), {"xy": Storm(weight)}
    return SingleLoop(as_samples(batch, key), inner_step, None, estimators, linear=series)


@documented("batch=8, Q=10")
def mrbo(
    batch: Any = 64, inner_step: Step = (0.1, -1 / 3), linear_step: float = 0.1, *,
    Q: int = 10, weight: Step = (1.0, -2 / 3), key: Any = 0,
) -> SingleLoop:  # fmt: skip
    """MRBO of Yang, Ji and Liang (2021): STORM for y and for h, Q + 1 terms of the series."""
    series, estimators = neumann(linear_step, Q), {"xy": Storm(weight)}
    return SingleLoop(as_samples(batch, key), inner_step, None, estimators, linear=series)


@documented("batch=8, N=3, Q=10")
def vrbo(
    batch: Any = 64, inner_step: Step = 0.1, linear_step: float = 0.1, *, N: int = 3, Q: int = 10,
    period: int = 10, key: Any = 0,
) -> SingleLoop:  # fmt: skip
    """VRBO of Yang, Ji and Liang (2021): SPIDER for y and h along N steps of y after each of x."""
    series, estimators = neumann(linear_step, Q), {"xy": Recursive(period)}
    samples = as_samples(batch, key)
    return SingleLoop(
        samples, inner_step, None, estimators, linear=series, moves=as_length("N", 0)(N)
    )


@documented("batch=8, inner_step=0.1, mu=1.0")
def stable(
    batch: Any = 64, inner_step: Step = 0.1, *, mu: float, weight: Step = 0.1, key: Any = 0
) -> Matrices:
    """STABLE of Chen, Sun, Xiao and Yin (2022): the second derivatives as matrices, by STORM.

    For its ε⁻² step sizes and weight are ∝ K^(−½), the same in K steps. The defaults know no K.
    """
    return Matrices(as_samples(batch, key), inner_step, mu, Storm(weight))


@documented("batch=8, inner_step=0.1, mu=1.0")
def rsvrb(
    batch: Any = 64, inner_step: Step = (0.1, -1 / 3), *, mu: float,
    weight: Step = (1.0, -2 / 3), key: Any = 0,
) -> Matrices:  # fmt: skip
    """RSVRB of Guo, Hu, Zhang and Yang (2021): STABLE with STORM for all gradients as well."""
    return Matrices(as_samples(batch, key), inner_step, mu, Storm(weight), Storm(weight))
