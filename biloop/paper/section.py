"""What a target found, for readers and for machines: tables of words, claims, figures, numbers."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from biloop.paper.claims import Claim


@dataclass(frozen=True)
class Table:
    """A table of words; cells of numbers are set by whoever makes it."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        """Refuse rows that do not fit the head."""
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"a row of {len(row)} cells under a head of {len(self.head)}")


@dataclass(frozen=True)
class Picture:
    """A figure by its name in the folder of figures, without the ending."""

    name: str
    caption: str


@dataclass(frozen=True)
class Section:
    """One target: how it was run, what came out, and what follows.

    `results` are the numbers behind the tables, for machines.
    """

    target: str
    title: str
    method: tuple[str, ...]
    claims: tuple[Claim, ...]
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...]
    results: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The section for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> "Section":
        """The section that `as_dict` gave."""
        return cls(
            target=found["target"],
            title=found["title"],
            method=tuple(found["method"]),
            claims=tuple(Claim(**claim) for claim in found["claims"]),
            tables=tuple(
                Table(t["caption"], tuple(t["head"]), tuple(map(tuple, t["rows"])))
                for t in found["tables"]
            ),
            pictures=tuple(Picture(**picture) for picture in found["pictures"]),
            results=found["results"],
        )


@dataclass(frozen=True)
class Provenance:
    """Where the numbers of a section come from. No seeds: nothing in it is random."""

    command: str
    versions: Mapping[str, str]
    machine: str
    seeds: tuple[int, ...]
    quick: bool
    minutes: float
    date: str
