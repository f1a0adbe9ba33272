"""A statement of the paper and what the numbers say of it: the words that a verdict may have."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal[
    "reproduced",
    "only in part",
    "not reproduced",
    "not contradicted",
    "contradicted",
    "not seen here",
]
MEANINGS: dict[Verdict, str] = {
    "reproduced": "the numbers are those of the paper, or have the order that it says",
    "only in part": "some are; the reason says which",
    "not reproduced": "none are",
    "not contradicted": "of a bound: no run exceeds it; runs can violate a bound, not prove it",
    "contradicted": "of a bound: some run exceeds it",
    "not seen here": "of the worst case, or of what can happen: the examples that were run do not "
    "show it, and examples cannot refute it",
}


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, where it stands, and what the numbers say of it."""

    where: str
    statement: str
    verdict: Verdict
    why: str


def by_parts(held: Sequence[bool], none: Verdict = "not reproduced") -> Verdict:
    """The verdict on a statement of several parts: all of them hold, some, or none."""
    if all(held):
        return "reproduced"
    return "only in part" if any(held) else none


def of_a_bound(excess: float, margin: float) -> Verdict:
    """The verdict on a bound that was exceeded by so much (negative: kept)."""
    return "not contradicted" if excess <= margin else "contradicted"
