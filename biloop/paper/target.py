"""What a target of `biloop reproduce` is: numbers first, then what a reader gets of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from biloop.paper.claims import Claim
from biloop.paper.section import Picture, Table
from biloop.paper.work import Work

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEEDS = (0, 1, 2, 3, 4)
Found = TypeVar("Found")


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
    """What a target has to show: words, drawings, and numbers for JSON and as rows of a CSV file.

    `seeds` are those that were used; none where nothing is random.
    """

    method: tuple[str, ...]
    claims: tuple[Claim, ...]
    tables: tuple[Table, ...]
    drawings: Sequence[tuple[Picture, "Figure"]]
    results: Mapping[str, Any]
    records: Sequence[Mapping[str, Any]]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Target(Generic[Found]):
    """A table or figure of the paper. Minutes are those of two CPU cores.

    `run` computes and `report` presents what it found. `prepare` refuses what cannot work, before
    anything is run: data that are not there.
    """

    name: str
    title: str
    minutes: float
    quick_minutes: float
    run: Callable[[Options, Work], Found]
    report: Callable[[Found], Outcome]
    prepare: Callable[[Options], None] = field(default=lambda options: None)
