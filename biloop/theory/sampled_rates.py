"""Published rates of methods that draw samples, and how their exponents follow from their steps.

Rates are for the mean over k < K of E‖∇Φ(x_k)‖², or for its least value, with constants and
logarithms set to one: samples until ε = (n + m)^a / ε^b. They hold for strongly convex g, Lipschitz
derivatives and bounded variance; what else a paper assumes stands in `docs/sampled.md`.

`rate` of a method is r in ‖∇Φ‖² ~ K^(−r). Steps of y and v go like k^(−p), those of x like k^(−s).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from biloop.theory.checks import positive


@dataclass(frozen=True)
class SampledRate:
    """What a paper promises of a method: samples = (n + m)^in_samples / ε^in_eps.

    `inner` and `outer` are the powers of k (or of K, for all k alike) of the steps, 0 where they
    are constant.
    """

    method: str
    citation: str
    in_eps: float
    in_samples: float = 0.0
    inner: float = 0.0
    outer: float = 0.0

    def samples(self, eps: float, total: float = 1.0) -> float:
        """Samples until ε, of n + m = `total` that there are."""
        return positive("total", total) ** self.in_samples / positive("eps", eps) ** self.in_eps

    @property
    def slope(self) -> float:
        """The power of the number of samples with which ‖∇Φ‖² falls: −1/in_eps."""
        return -1.0 / self.in_eps


def single_loop(inner: float, outer: float, *, smooth: bool = True) -> float:
    """The exponent of ε of plain directions, all moving in each step.

    With steps α ~ k^(−p) of y and v and β ~ k^(−s) of x, E‖∇Φ‖² is of the order of

        1/(Kβ)       what the descent of Φ leaves
        α            the variance of y and v at their steps
        β            that of h (smaller than α or equal)
        (β/α)²       how far noise in x moves y*(x) and v*(x) within their memory 1/α,
        β²/α         or only that, where y* and v* are smooth

    so that r = min(1 − s, p, s, 2(s − p) or 2s − p) and b = 1/r: 5/2 for (2/5, 3/5) without
    smoothness (TTSA, SOBA), 2 for (1/2, 1/2) with it (ALSET, SOBA, MA-SOBA, FSLA).
    """
    drift = 2 * outer - inner if smooth else 2 * (outer - inner)
    return _inverse(min(1 - outer, inner, outer, drift))


def growing_loop(outer: float, loop: float) -> float:
    """The exponent of ε where N_k ~ k^loop steps of y precede each of x (BSA).

    r = min(1 − s, s) in outer steps, and Σ N_k ~ K^(1 + loop) samples: b = (1 + loop)/r.
    """
    return (1 + loop) * _inverse(min(1 - outer, outer))


def momentum(step: float) -> float:
    """The exponent of ε of STORM with steps k^(−s) and weights k^(−2s) (SUSTAIN, MRBO, RSVRB).

    What is left: 1/(Kβ) of the descent and η of the variance, r = min(1 − s, 2s); best at s = 1/3.
    """
    return _inverse(min(1 - step, 2 * step))


def growing_batch() -> float:
    """The exponent of ε where K ~ 1/ε steps of constant size see batches of 1/ε (stocBiO, AmIGO).

    A batch leaves a variance of 1/B = ε, and K B = 1/ε².
    """
    return 1.0 + 1.0


def spider() -> float:
    """The exponent of ε of SPIDER (VRBO): K ~ 1/ε steps.

    1/ε samples every ε^(−1/2) steps, ε^(−1/2) in the others: K · ε^(−1/2).
    """
    return 1.0 + 0.5


def penalty(bias: int, outer: float | None = None) -> float:
    """The exponent of ε of methods with gradients alone and a penalty λ.

    The squared bias is λ^(−2·bias). With steps k^(−s) of x and λ ~ k^l, both that and 1/(Kβ) fall:
    b = 1/(1 − s) at 2·bias·l = 1 − s (F2SA: s = 5/7, F3SA: s = 3/5). Without `outer`, with tuned
    constants: the variance of h is λ² = ε^(−1/bias), and samples are λ²/ε² (F2SA-2: bias 2).
    """
    if outer is not None:
        return _inverse(1 - outer)
    return 2.0 + 1.0 / bias


def tables(steps: float) -> float:
    """The exponent of n + m where the steps are (n + m)^(−steps) and K ~ (n + m)^steps / ε.

    SAGA's table is n + m steps old: 2/3 (SABA). SARAH's error grows from one refresh to the next,
    n + m steps later, like β²(n + m): 1/2 (SRBA, and SPABA on average).
    """
    return steps


def _inverse(rate: float) -> float:
    if rate <= 0:
        raise ValueError(f"these steps do not bring ‖∇Φ‖² to zero: the exponent is {rate:g}")
    return 1 / rate


_DAGREOU = "Dagréou, Ablin, Vaiter and Moreau (2022)"
_KWON = "Kwon, Kwon, Wright and Nowak (2023)"
_YANG = "Yang, Ji and Liang (2021)"
_ALL = (
    SampledRate("BSA", "Ghadimi and Wang (2018)", 3.0, inner=-0.5, outer=-0.5),
    SampledRate("TTSA", "Hong, Wai, Wang and Yang (2020)", 2.5, inner=-0.4, outer=-0.6),
    SampledRate("ALSET", "Chen, Sun and Yin (2021)", 2.0, inner=-0.5, outer=-0.5),
    SampledRate("stocBiO", "Ji, Yang and Liang (2021)", 2.0),
    SampledRate("AmIGO", "Arbel and Mairal (2022)", 2.0),
    SampledRate("SUSTAIN", "Khanduri et al. (2021)", 1.5, inner=-1 / 3, outer=-1 / 3),
    SampledRate("MRBO", _YANG, 1.5, inner=-1 / 3, outer=-1 / 3),
    SampledRate("VRBO", _YANG, 1.5),
    SampledRate("FSLA", "Li, Gu and Huang (2022)", 2.0, inner=-0.5, outer=-0.5),
    SampledRate("SOBA", _DAGREOU, 2.0, inner=-0.5, outer=-0.5),
    SampledRate("SOBA, decreasing", _DAGREOU, 2.5, inner=-0.4, outer=-0.6),
    SampledRate("MA-SOBA", "Chen, Xiao and Balasubramanian (2023)", 2.0, inner=-0.5, outer=-0.5),
    SampledRate("SABA", _DAGREOU, 1.0, in_samples=2 / 3),
    SampledRate("SRBA", "Dagréou, Moreau, Vaiter and Ablin (2023)", 1.0, in_samples=0.5),
    SampledRate("SPABA", "Chu, Xu, Yao and Zhang (2024)", 1.0, in_samples=0.5),
    SampledRate("F2SA", _KWON, 3.5, inner=-4 / 7, outer=-5 / 7),
    SampledRate("F3SA", _KWON, 2.5, inner=-0.4, outer=-0.6),
    SampledRate("F2SA-2", "Chen, Li, Chayti and Zhang (2025)", 2.5),
    SampledRate("STABLE", "Chen, Sun, Xiao and Yin (2022)", 2.0),
    SampledRate("RSVRB", "Guo, Hu, Zhang and Yang (2021)", 1.5, inner=-1 / 3, outer=-1 / 3),
)
SAMPLED_RATES: Mapping[str, SampledRate] = MappingProxyType({each.method: each for each in _ALL})
