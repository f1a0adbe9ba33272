"""What a reproduction found, as a document: tables, claims with verdicts, figures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["reproduced", "only in part", "not reproduced", "not decided"]


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
class Claim:
    """A statement of the paper, where it stands, and what the numbers say of it."""

    where: str
    statement: str
    verdict: Verdict
    why: str


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
    """Where the numbers of a section come from."""

    command: str
    versions: Mapping[str, str]
    machine: str
    seeds: tuple[int, ...]
    quick: bool
    minutes: float
    date: str


def document(parts: Sequence[tuple[Section, Provenance]]) -> str:
    """The whole as Markdown: an overview of the claims, then a section for each target."""
    lines = [
        "# Reproduction of the paper's tables and figures",
        "",
        '"Will Bilevel Optimizers Benefit from Loops" (Ji, Liu, Liang and Ying, '
        "https://arxiv.org/abs/2205.14224), its tables and its figure run again with this library. "
        "`biloop reproduce` lists the targets and `biloop reproduce all` writes this document, "
        "with the numbers behind it as CSV and JSON.",
        "",
        "Each number stands beside the printed one, and each claim has a verdict that follows from "
        "the numbers by a rule in the program: **reproduced**, **only in part** (the reason says "
        "under which conditions), **not reproduced**. A claim that is not reproduced here can be "
        "true elsewhere: what was run is said in each section.",
    ]
    if any(provenance.quick for _, provenance in parts):
        lines += ["", "**Some sections are from quick runs: rehearsals of the path, no evidence.**"]
    lines += ["", "## The claims", ""]
    lines += markdown(
        Table(
            "",
            ("in the paper", "claim", "verdict", "why"),
            tuple(
                (claim.where, claim.statement, f"**{claim.verdict}**", claim.why)
                for section, _ in parts
                for claim in section.claims
            ),
        )
    )
    for section, provenance in parts:
        lines += ["", f"## {section.title}", ""]
        lines += [line for paragraph in section.method for line in (paragraph, "")]
        for table in section.tables:
            lines += [*markdown(table), ""]
        for picture in section.pictures:
            lines += [f"![{section.title}](figures/{picture.name}.png)", ""]
            lines += [f"*{picture.caption}*", ""]
        lines += [_source(provenance)]
    return "\n".join(lines) + "\n"


def markdown(table: Table) -> list[str]:
    """A table in Markdown, its caption above it."""
    caption = [f"**{table.caption}**", ""] if table.caption else []
    rows = [table.head, ("---",) * len(table.head), *table.rows]
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return caption + ["| " + " | ".join(row) + " |" for row in cells]


def _source(p: Provenance) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in p.versions.items())
    seeds = ", ".join(map(str, p.seeds))
    kind = "quick run" if p.quick else "full run"
    return (
        f"<sub>`{p.command}` · {kind} · seeds {seeds} · {p.minutes:.1f} minutes · {p.date} · "
        f"{p.machine} · {versions}</sub>"
    )
