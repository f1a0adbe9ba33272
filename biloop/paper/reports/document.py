"""What a reproduction found, as a document: an overview of the claims, then the sections."""

from collections.abc import Sequence

from biloop.paper.claims import MEANINGS
from biloop.paper.section import Provenance, Section, Table

INTRODUCTION = (
    '"Will Bilevel Optimizers Benefit from Loops" (Ji, Liu, Liang and Ying, '
    "https://arxiv.org/abs/2205.14224), its tables and its figure run again with this library. "
    "`biloop reproduce` lists the targets and `biloop reproduce all` writes this document, "
    "with the numbers behind it as CSV and JSON.",
    "Each number stands beside the printed one, and each claim has a verdict that follows from "
    "the numbers by a rule in the program. A claim that is not reproduced here can be true "
    "elsewhere: what was run is said in each section.",
)
QUICK = "**Some sections are from quick runs: rehearsals of the path, no evidence.**"


def document(parts: Sequence[tuple[Section, Provenance]]) -> str:
    """The whole as Markdown."""
    lines = ["# Reproduction of the paper's tables and figures", ""]
    lines += [line for paragraph in INTRODUCTION for line in (paragraph, "")]
    lines += [f"- **{verdict}**: {meaning}." for verdict, meaning in MEANINGS.items()]
    if any(provenance.quick for _, provenance in parts):
        lines += ["", QUICK]
    lines += ["", "## The claims", "", *markdown(_overview(parts))]
    for section, provenance in parts:
        lines += _part(section, provenance)
    return "\n".join(lines) + "\n"


def _overview(parts: Sequence[tuple[Section, Provenance]]) -> Table:
    rows = [
        (claim.where, claim.statement, f"**{claim.verdict}**", claim.why)
        for section, _ in parts
        for claim in section.claims
    ]
    return Table("", ("in the paper", "claim", "verdict", "why"), tuple(rows))


def _part(section: Section, provenance: Provenance) -> list[str]:
    lines = ["", f"## {section.title}", ""]
    lines += [line for paragraph in section.method for line in (paragraph, "")]
    for table in section.tables:
        lines += [*markdown(table), ""]
    for picture in section.pictures:
        lines += [f"![{section.title}](figures/{picture.name}.png)", ""]
        lines += [f"*{picture.caption}*", ""]
    return [*lines, _source(provenance)]


def markdown(table: Table) -> list[str]:
    """A table in Markdown, its caption above it."""
    caption = [f"**{table.caption}**", ""] if table.caption else []
    rows = [table.head, ("---",) * len(table.head), *table.rows]
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return caption + ["| " + " | ".join(row) + " |" for row in cells]


def _source(p: Provenance) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in p.versions.items())
    seeds = f"seeds {', '.join(map(str, p.seeds))}" if p.seeds else "nothing random"
    kind = "quick run" if p.quick else "full run"
    return (
        f"<sub>`{p.command}` · {kind} · {seeds} · {p.minutes:.1f} minutes · {p.date} · "
        f"{p.machine} · {versions}</sub>"
    )
