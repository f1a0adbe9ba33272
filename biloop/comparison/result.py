"""Comparison: what came out, as a value that prints, answers, and writes itself to files."""

import csv
import json
import math
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from biloop.comparison.candidates import OUTER, Variant
from biloop.comparison.measuring import (
    CONVERGED,
    CUT,
    DIVERGED,
    FLOORED,
    SPENT,
    UNKNOWN,
    MeasuredRun,
)
from biloop.comparison.payload import (
    CertificatePayload,
    ComparisonPayload,
    ProblemPayload,
    payload_of,
    row_of,
)
from biloop.comparison.terms import Score, Target, median
from biloop.comparison.verdict import recommended, verdict
from biloop.run.trace import Trace

if TYPE_CHECKING:
    import pandas


_HURRIED = (
    "In {:g} s not everything could be tried: step sizes are tuned less closely than otherwise, "
    "and runs that end as “cut short” had less than the budget. More time may change what follows."
)


@dataclass(frozen=True, eq=False)
class Outcome:
    """A scheme, or a method of one's own, with the settings that were best for it.

    `number` is what was tuned, `runs` one from each start, `rate` the seconds per gradient or
    product of such a run alone (NaN until it is timed), and `cause` why runs failed, where some
    did.
    """

    variant: Variant
    number: float | None
    runs: tuple[MeasuredRun, ...]
    target: Target
    rate: float = math.nan
    cause: str = ""

    @property
    def name(self) -> str:
        """The name of the scheme, or the one that was given."""
        return self.variant.scheme

    @property
    def N(self) -> int | str:
        """The length of the N-loop, or a word for it."""
        return self.variant.N

    @property
    def Q(self) -> int | str | None:
        """The length of the Q-loop, or a word for it; None if there is none."""
        return self.variant.Q

    @property
    def code(self) -> str:
        """The method as a line of code."""
        if self.number is None or self.variant.search == OUTER:
            return self.variant.code
        return f"{self.variant.code}  # with {self.variant.search} = {self.number:g}"

    @property
    def outer(self) -> str:
        """The argument `outer` of solve, as code."""
        tuned = self.number is not None and self.variant.search == OUTER
        return f"{self.number:g}" if tuned else self.variant.outer_code

    @property
    def outer_step(self) -> float | str:
        """The outer step size, or a word where it is not a number that was tuned."""
        if self.number is not None and self.variant.search == OUTER:
            return self.number
        return "auto" if self.variant.outer_code == '"auto"' else "own"

    @property
    def loops(self) -> str:
        """The lengths of the loops in words, or what was chosen and tuned instead."""
        if self.number is None or self.variant.search == OUTER:
            return self.variant.loops
        tuned = f"{self.variant.search} = {self.number:g}"
        return ", ".join(filter(None, [self.variant.loops, tuned]))

    @property
    def status(self) -> str:
        """How most of the runs ended; the worse of two that are as frequent."""
        order = [CONVERGED, SPENT, FLOORED, CUT, UNKNOWN, DIVERGED]
        ends = [run.ending(self.target) for run in self.runs]
        return max(order, key=lambda status: (ends.count(status), order.index(status)))

    @property
    def failures(self) -> int:
        """From how many starts it failed."""
        return sum(run.status.failed for run in self.runs)

    @property
    def misses(self) -> int:
        """From how many starts it does not arrive; those where it fails count twice."""
        return self.failures + sum(run.arrival(self.target) is None for run in self.runs)

    @property
    def score(self) -> Score:
        """The median score."""
        scores = [run.score(self.target) for run in self.runs]
        return Score(*(median(column) for column in zip(*scores, strict=True)))

    @property
    def began(self) -> bool:
        """Whether there was time for a step."""
        return any(run.began for run in self.runs)

    @property
    def costs(self) -> np.ndarray:
        """Gradients and products to the target for each start, ∞ where it was not reached."""
        return np.array([run.to_target(self.target) for run in self.runs])

    @property
    def cost(self) -> float:
        """The median of it."""
        return median(self.costs)

    def spent(self, run: MeasuredRun, column: str) -> np.ndarray:
        """What the x of each snapshot of a run took: gradients, products, or seconds if alone."""
        return self.rate * run.cost if column == "seconds" else run.spent(column)

    def run_to_target(self, run: MeasuredRun, column: str) -> float:
        """What the target took in one run; ∞ if it was not reached."""
        arrived = run.arrival(self.target)
        return math.inf if arrived is None else float(self.spent(run, column)[arrived])

    def to_target(self, column: str) -> float:
        """The median over the starts of what the target took."""
        return median([self.run_to_target(run, column) for run in self.runs])

    @property
    def steps_to_target(self) -> float:
        """The median over the starts of the outer steps to the target."""
        arrivals = [(run, run.arrival(self.target)) for run in self.runs]
        return median([math.inf if j is None else int(run.steps[j]) for run, j in arrivals])

    @property
    def is_lucky(self) -> bool:
        """Whether one step is enough, of a size that was tuned for it."""
        return self.number is not None and self.steps_to_target <= 1

    @property
    def ends(self) -> list[float]:
        """‖∇Φ‖² at the end of each run."""
        return [run.end for run in self.runs]


class Grid(NamedTuple):
    """Gradients and products to the target for AID with N and Q steps; ∞: not reached."""

    N: tuple[int, ...]
    Q: tuple[int, ...]
    cost: np.ndarray


@dataclass(frozen=True, eq=False)
class Comparison:
    """What came out: `print(comparison)`, `.verdict`, `.recommendation`, `.report("out.html")`.

    `schemes` have the loops and outer step sizes that were best for each, with a run per seed.
    `setup` is Python that makes problem, x0 and y0, as far as it is known, and `call` repeats the
    comparison after it.
    """

    problem: ProblemPayload
    target: float
    target_value: float
    budget: int
    seeds: tuple[int, ...]
    schemes: tuple[Outcome, ...]
    grid: Grid | None
    certificates: tuple[CertificatePayload, ...]
    settings: dict[str, str | float]
    versions: dict[str, str]
    command: str
    call: str
    setup: str = "import biloop as bl\n"
    interrupted: bool = False
    hurried: float | None = None  # the limit in seconds, where it made anything shorter

    @cached_property
    def verdict(self) -> list[str]:
        """Sentences that follow from the numbers."""
        note = ["Interrupted: what follows is from a part of the runs."] * self.interrupted
        note += [] if self.hurried is None else [_HURRIED.format(self.hurried)]
        return note + verdict(self.schemes, self.budget)

    @property
    def recommendation(self) -> str:
        """The method to use, as code."""
        chosen = recommended(self.schemes)
        steps = max(1, *(int(run.steps[-1]) for run in chosen.runs))
        return (
            f"{self.setup}method = {chosen.code}\n"
            f"run = bl.solve(problem, x0, y0, method, outer={chosen.outer}, steps={steps})"
        )

    @property
    def traces(self) -> dict[str, list[Trace]]:
        """The trace of every run, by scheme and in the order of the seeds.

        Their seconds are those of the run as it was made here, stopped for every snapshot, and
        where several went side by side, a share of what all of them took.
        """
        return {
            scheme.name: [run.record.trace("") for run in scheme.runs] for scheme in self.schemes
        }

    def __getitem__(self, name: str) -> Outcome:
        """One scheme by its name."""
        by_name = {scheme.name: scheme for scheme in self.schemes}
        if name not in by_name:
            raise KeyError(f"no scheme {name!r}; there are {', '.join(by_name)}")
        return by_name[name]

    def __repr__(self) -> str:
        """The table, the verdict and the line of code."""
        from biloop.report.comparison_text import comparison_text

        return comparison_text(self.payload())

    def _repr_html_(self) -> str:
        """What a notebook shows: the text, and the page of the report below it."""
        from biloop.report import comparison_html, notebook

        return notebook.embedded(repr(self), comparison_html.render(self.payload()))

    def payload(self) -> ComparisonPayload:
        """Everything as plain numbers, words and lists."""
        return payload_of(self)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The payload as JSON, written to a file if one is named."""
        text = json.dumps(self.payload(), indent=1, allow_nan=False, ensure_ascii=False)
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    @property
    def table(self) -> dict[str, list[Any]]:
        """One row per scheme and seed, in columns."""
        rows = [
            {"seed": seed, **row_of(scheme, run)}
            for scheme in self.schemes
            for seed, run in zip(self.seeds, scheme.runs, strict=False)  # fewer after Ctrl-C
        ]
        return {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """The table as a file; a number that does not exist is left empty."""
        table = self.table
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(table)
            writer.writerows(zip(*table.values(), strict=True))

    def to_pandas(self) -> "pandas.DataFrame":
        """The table as a data frame."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_pandas needs pandas: pip install pandas.") from None
        return pandas.DataFrame(self.table)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write one HTML file with all curves that opens without a network."""
        # A convenience for users: nothing else here knows how a comparison is presented.
        from biloop.report import comparison_html

        return comparison_html.write(path, self.payload())
