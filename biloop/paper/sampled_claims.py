"""Rates of sampled methods in words: a published rate is a bound, which a run can exceed."""

from biloop.paper.claims import Claim, by_parts, of_a_bound
from biloop.paper.sampled import Found
from biloop.theory import SAMPLED_RATES

CLOSE = 0.15  # of a slope: logarithms, and horizons that end


def claims(found: Found) -> tuple[Claim, ...]:
    """The bound of each method, and what variance reduction changes."""
    return (*(_bound(found, name) for name in found.means), _reduction(found))


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


def _reduction(found: Found) -> Claim:
    fast = [found.slope(name) <= -1 + CLOSE for name in ("SABA", "SRBA")]
    slow = found.slope("SOBA") > -1 + CLOSE
    return Claim(
        "Dagréou et al. (2022, 2023)",
        "With a constant step SABA and SRBA have the rate of full gradients, SOBA has not.",
        by_parts([*fast, slow]),
        f"The slopes are {found.slope('SABA'):.2f} and {found.slope('SRBA'):.2f}, and "
        f"{found.slope('SOBA'):.2f} for SOBA with its steps of K^(−1/2).",
    )
