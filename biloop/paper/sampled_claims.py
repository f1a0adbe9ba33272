"""Rates of sampled methods in words: a published rate is a bound, which a run can exceed."""

from biloop.paper.claims import Claim, of_a_bound
from biloop.paper.sampled import Found
from biloop.theory import SAMPLED_RATES

CLOSE = 0.15  # of a slope: logarithms, and horizons that end


def claims(found: Found) -> tuple[Claim, ...]:
    """The bound of each method."""
    return tuple(_bound(found, name) for name in found.means)


def judged(found: Found, name: str) -> str:
    """How a measured slope stands to the published one."""
    apart = found.slope(name) - found.published(name)
    if apart > CLOSE:
        return "slower: contradicted"
    return "as published" if apart >= -CLOSE else "faster"


def _bound(found: Found, name: str) -> Claim:
    rate, slope = SAMPLED_RATES[name], found.slope(name)
    used = found.samples[name]
    return Claim(
        rate.citation,
        f"{name}: ‖∇Φ‖² ≤ ε takes ε^(−{rate.in_eps:g}) samples, the mean falls like their number "
        f"to the power {rate.slope:.2f}.",
        of_a_bound(slope - rate.slope, CLOSE),
        f"Measured {slope:.2f} up to {used[-1]:.1e} samples ({judged(found, name)}). A difference "
        f"of {CLOSE:g} is left to logarithms and to horizons that end.",
    )
