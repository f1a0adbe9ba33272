"""What a target of `biloop reproduce` is, and what it gives back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biloop.paper.reports.section import Section
from biloop.paper.work import Work

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEEDS = (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Options:
    """What the user may choose; None is the target's own choice."""

    quick: bool = False
    seeds: tuple[int, ...] | None = None
    data: Path | None = None

    def chosen_seeds(self) -> tuple[int, ...]:
        """The seeds as given; otherwise five, of which a quick run takes the first."""
        if self.seeds is not None:
            return self.seeds
        return SEEDS[:1] if self.quick else SEEDS


@dataclass(frozen=True, eq=False)
class Outcome:
    """A section of the document, its drawings by name, and the numbers as rows of a CSV file."""

    section: Section
    drawings: Mapping[str, "Figure"]
    records: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Target:
    """A table or figure of the paper. Minutes are those of two CPU cores.

    `prepare` refuses what cannot work, before anything is run: data that are not there.
    """

    name: str
    title: str
    minutes: float
    quick_minutes: float
    run: Callable[[Options, Work], Outcome]
    prepare: Callable[[Options], None] = field(default=lambda options: None)
