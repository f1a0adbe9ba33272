"""Comparison: the outcome as a value that prints, answers, and writes itself to files."""

import csv
import json
import math
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from biloop.comparison.certificates import Certified
from biloop.comparison.outcome import Scheme, SeedRun, median
from biloop.comparison.payload import (
    CertificatePayload,
    ComparisonPayload,
    GridPayload,
    ProblemPayload,
    SchemePayload,
    SeedPayload,
)
from biloop.comparison.verdict import recommended, verdict
from biloop.report.comparison_table import comparison_text
from biloop.run.trace import Trace

if TYPE_CHECKING:
    import pandas

_TO_TARGET = ("gradients", "products", "seconds")


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
    schemes: tuple[Scheme, ...]
    grid: Grid | None
    certificates: tuple[Certified, ...]
    settings: dict[str, str | float]
    versions: dict[str, str]
    command: str
    call: str
    setup: str = "import biloop as bl\n"
    interrupted: bool = False

    @cached_property
    def verdict(self) -> list[str]:
        """Sentences that follow from the numbers."""
        note = ["Interrupted: what follows is from a part of the runs."] * self.interrupted
        return note + verdict(self.schemes, self.budget)

    @property
    def recommendation(self) -> str:
        """The method to use, as code."""
        chosen = recommended(self.schemes)
        steps = max(int(run.steps[-1]) for run in chosen.runs)
        return (
            f"{self.setup}method = {chosen.code}\n"
            f"run = bl.solve(problem, x0, y0, method, outer={chosen.outer}, steps={steps})"
        )

    @property
    def traces(self) -> dict[str, list[Trace]]:
        """The trace of every run, by scheme and in the order of the seeds."""
        return {scheme.name: [run.trace for run in scheme.runs] for scheme in self.schemes}

    def __getitem__(self, name: str) -> Scheme:
        """One scheme by its name."""
        by_name = {scheme.name: scheme for scheme in self.schemes}
        if name not in by_name:
            raise KeyError(f"no scheme {name!r}; there are {', '.join(by_name)}")
        return by_name[name]

    def __repr__(self) -> str:
        """The table, the verdict and the line of code."""
        return comparison_text(self.payload())

    def payload(self) -> ComparisonPayload:
        """Everything as plain numbers, words and lists."""
        return ComparisonPayload(
            title=f"Do loops pay on {self.problem['name']}?",
            problem=self.problem,
            target=self.target,
            budget=self.budget,
            settings=self.settings,
            versions=self.versions,
            command=self.command,
            python=self.setup + self.call,
            verdict=self.verdict,
            recommendation=self.recommendation,
            schemes=[_scheme(scheme) for scheme in self.schemes],
            grid=None if self.grid is None else _grid(self.grid),
            certificates=[_certificate(certified) for certified in self.certificates],
        )

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
            {"seed": seed, **_row(scheme, run)}
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
        from biloop.report import comparison_html

        comparison_html.write(Path(path), self.payload())
        return Path(path)


def _row(scheme: Scheme, run: SeedRun) -> dict[str, Any]:
    return {
        "scheme": scheme.name,
        "N": scheme.N,
        "Q": scheme.Q,
        "outer_step": scheme.outer_step,
        "status": run.status,
        "steps": int(run.steps[-1]),
        "gradients": int(run.spent("gradients")[-1]),
        "products": int(run.spent("products")[-1]),
        "seconds": float(run.spent("seconds")[-1]),
        "value": _number(run.value[-1]),
        "grad_norm2": _number(run.end),
        **{f"{unit}_to_target": _number(run.to_target(unit)) for unit in _TO_TARGET},
    }


def _scheme(scheme: Scheme) -> SchemePayload:
    rows = [_row(scheme, run) for run in scheme.runs]

    def middle(key: str) -> float | None:
        return _number(median([math.inf if row[key] is None else row[key] for row in rows]))

    words = ("scheme", "N", "Q", "outer_step", "status")
    columns = {key: [row[key] for row in rows] for key in rows[0] if key not in words}
    spread = {
        key: [min(column), max(column)] for key, column in columns.items() if None not in column
    }
    return SchemePayload(
        name=scheme.name,
        code=scheme.code,
        N=scheme.N,
        Q=scheme.Q,
        outer_step=scheme.outer_step,
        status=scheme.status,
        steps=middle("steps") or 0,
        gradients=middle("gradients") or 0,
        products=middle("products") or 0,
        seconds=middle("seconds") or 0,
        value=middle("value"),
        grad_norm2=middle("grad_norm2"),
        gradients_to_target=middle("gradients_to_target"),
        products_to_target=middle("products_to_target"),
        seconds_to_target=middle("seconds_to_target"),
        spread=spread,
        seeds=[_seed(run) for run in scheme.runs],
    )


def _seed(run: SeedRun) -> SeedPayload:
    """The run at its snapshots; values and residuals are those of the step that led there."""
    columns = ("value", "inner_residual", "linear_residual")
    rows = np.maximum(run.steps - 1, 0)
    seen = {
        name: [
            _number(entry) if step > 0 else None
            for entry, step in zip(run.trace[name][rows], run.steps, strict=True)
        ]
        for name in columns
    }
    return SeedPayload(
        k=[int(k) for k in run.steps],
        gradients=[int(n) for n in run.spent("gradients")],
        products=[int(n) for n in run.spent("products")],
        seconds=[float(t) for t in run.spent("seconds")],
        grad_norm2=[_number(entry) for entry in run.norm2],
        value=seen["value"],
        inner_residual=seen["inner_residual"],
        linear_residual=seen["linear_residual"],
    )


def _grid(grid: Grid) -> GridPayload:
    cost = [[_number(entry) for entry in row] for row in grid.cost]
    return GridPayload(N=list(grid.N), Q=list(grid.Q), cost=cost)


def _certificate(certified: Certified) -> CertificatePayload:
    return CertificatePayload(
        scheme=certified.scheme,
        statement=certified.statement,
        K=[int(k) for k in certified.K],
        bound=[float(b) for b in certified.bound],
        measured=[float(m) for m in certified.measured],
    )


def _number(value: float) -> float | None:
    """JSON has neither NaN nor infinity: there is no such number."""
    return float(value) if math.isfinite(value) else None
