"""What a sweep found: its runs with their labels, as arrays over the axes and as a table."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from biloop.run.outcome import Run
from biloop.sweeps.axes import Axis, label_cells, shape

if TYPE_CHECKING:
    import pandas


def _last(run: Run, column: str) -> float:
    return float(run.trace[column][-1]) if len(run.trace) else float("nan")


# What the table says of each cell beside its labels.
RESULTS: dict[str, Callable[[Run], Any]] = {
    "status": lambda run: run.status.name,
    "steps": lambda run: run.steps,
    "gradients": lambda run: run.cost.gradients,
    "products": lambda run: run.cost.products,
    "value": lambda run: _last(run, "value"),
    "hypergradient_norm": lambda run: _last(run, "hypergradient_norm"),
    "seconds": lambda run: run.seconds,
    "message": lambda run: run.message,
}


@dataclass(frozen=True, eq=False)
class Sweep:
    """The runs of a grid: `sweep["value"]`, `sweep.table`, `sweep.sel({"seed": 0})`.

    `runs` are in the order of `labels`, the last axis fastest. `fixed` holds the labels of axes
    that a selection has removed.
    """

    grid: tuple[Axis, ...]
    runs: tuple[Run, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def axes(self) -> dict[str, list[Any]]:
        """The labels along each axis; tuples where several paths vary together."""
        return {
            axis.name: [label[0] if len(label) == 1 else label for label in axis.labels]
            for axis in self.grid
        }

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return shape(self.grid)

    @property
    def labels(self) -> list[dict[str, Any]]:
        """The labels of each run by path."""
        return [{**self.fixed, **label} for label in label_cells(self.grid)]

    @property
    def seconds(self) -> float:
        """The time of all runs together, without compilation."""
        return sum(run.seconds for run in self.runs)

    @property
    def compile_seconds(self) -> float:
        """The time that was spent on compilation."""
        return sum(run.compile_seconds for run in self.runs)

    def __len__(self) -> int:
        """The number of runs."""
        return len(self.runs)

    def __repr__(self) -> str:
        """The axes and the outcomes in one line."""
        axes = " × ".join(f"{len(axis.labels)} {axis.name}" for axis in self.grid) or "1 cell"
        outcomes = Counter(run.status.name for run in self.runs)
        told = ", ".join(f"{count} {name}" for name, count in outcomes.items())
        return f"Sweep({axes}: {told}, seconds={self.seconds:.3g})"

    def __getitem__(self, column: str) -> np.ndarray:
        """A column of all traces as floats: an axis for each of `axes` and one for k.

        Where a run ended before the longest one there is NaN.
        """
        longest = max(len(run.trace) for run in self.runs)
        entries = np.full((len(self.runs), longest), np.nan)
        for row, run in zip(entries, self.runs, strict=True):
            row[: len(run.trace)] = run.trace[column]
        return entries.reshape(*self.shape, longest)

    def last(self, column: str) -> np.ndarray:
        """The last entry of a column for each cell; NaN for cells that did not start."""
        return np.array([_last(run, column) for run in self.runs]).reshape(self.shape)

    @property
    def table(self) -> dict[str, np.ndarray]:
        """One row per cell: its labels, how it ended, what it cost and where it got."""
        labels = {path: [label[path] for label in self.labels] for path in self.labels[0]}
        results = {name: [find(run) for run in self.runs] for name, find in RESULTS.items()}
        return {name: np.asarray(column) for name, column in (labels | results).items()}

    def to_pandas(self) -> "pandas.DataFrame":
        """The table as a data frame."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_pandas needs pandas: pip install pandas.") from None
        return pandas.DataFrame(self.table)

    def to_xarray(self) -> Any:
        """An `xarray.Dataset`: the columns of all traces over the axes and k, and how runs ended.

        Axes of which several paths vary together have positions instead of labels.
        """
        try:
            xarray = import_module("xarray")
        except ImportError:
            raise ImportError("to_xarray needs xarray: pip install xarray.") from None
        dims = tuple(axis.name for axis in self.grid)
        columns = self.runs[0].trace.columns
        curves = {name: ((*dims, "k"), self[name]) for name in columns if name != "k"}
        ends = {
            name: (dims, np.array([RESULTS[name](run) for run in self.runs]).reshape(self.shape))
            for name in ("status", "steps", "message")
        }
        together = {axis.name: len(axis.paths) > 1 for axis in self.grid}
        coords = {
            name: np.arange(len(labels)) if together[name] else labels
            for name, labels in self.axes.items()
        }
        return xarray.Dataset(curves | ends, coords, {str(k): v for k, v in self.fixed.items()})

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        # For notebooks: nothing else here knows how a sweep is presented.
        from biloop.report import notebook

        names = [name for name in self.table if name not in ("message", "seconds")]
        columns: dict[str, Any] = {name: self.table[name] for name in names}
        shown = ("value", "batch_value")
        curves = [
            [run.trace.curves[n] for n in shown if n in run.trace.curves] for run in self.runs
        ]
        columns["curve"] = [notebook.sparkline(found[0]) if found else "" for found in curves]
        return notebook.table(repr(self), columns, drawn=["curve"])

    def sel(self, wanted: Mapping[str, Any]) -> "Sweep":
        """The part with these labels, e.g. `{"inner.step_size": 0.1, "seed": [0, 1]}`.

        A single label removes its axis, a list of labels keeps it.
        """
        kept = [_matching(axis, wanted) for axis in self.grid]
        known = [path for axis in self.grid for path in axis.paths]
        for path in wanted:
            if path not in known:
                raise KeyError(f"no axis {path!r}; there are {', '.join(known) or 'none'}")
        fixed, grid = dict(self.fixed), []
        for axis, (places, single) in zip(self.grid, kept, strict=True):
            if single:
                fixed |= dict(axis.label(places[0]))
            else:
                grid.append(axis.at(places))
        chosen = np.arange(len(self.runs)).reshape(self.shape)[np.ix_(*(p for p, _ in kept))]
        return Sweep(tuple(grid), tuple(self.runs[i] for i in chosen.ravel()), fixed)

    def run(self, wanted: Mapping[str, Any] | None = None) -> Run:
        """The one run with these labels."""
        found = self.sel(wanted or {})
        if len(found) != 1:
            raise KeyError(f"{len(found)} runs have these labels; also say {', '.join(found.axes)}")
        return found.runs[0]

    def best(self, column: str = "value", mean: str | Sequence[str] = ()) -> dict[str, Any]:
        """The labels of the cell where the last entry of a column is smallest.

        With `mean="seed"`, those of the smallest mean over that axis. Cells that failed are out.
        """
        ends = self.last(column)
        failed = np.array([run.status.failed for run in self.runs]).reshape(self.shape)
        ends = np.where(failed | np.isnan(ends), np.inf, ends)
        names = [axis.name for axis in self.grid]
        over = [mean] if isinstance(mean, str) else list(mean)
        for name in over:
            if name not in names:
                raise KeyError(f"no axis {name!r}; there are {', '.join(names) or 'none'}")
        ends = ends.mean(axis=tuple(map(names.index, over)))
        if not np.any(np.isfinite(ends)):
            raise ValueError("There is no best cell: every one failed or did not start.")
        left = [axis for axis in self.grid if axis.name not in over]
        place = np.unravel_index(np.argmin(ends), ends.shape)
        return {p: v for axis, i in zip(left, place, strict=True) for p, v in axis.label(int(i))}


def _matching(axis: Axis, wanted: Mapping[str, Any]) -> tuple[list[int], bool]:
    """The positions of an axis that have the wanted labels, and whether that is a single one."""
    asked = {path: wanted[path] for path in axis.paths if path in wanted}
    several = any(isinstance(labels, list) for labels in asked.values())
    places = list(range(len(axis.labels)))
    for path, labels in asked.items():
        labels = labels if isinstance(labels, list) else [labels]
        there = [dict(axis.label(i))[path] for i in range(len(axis.labels))]
        for label in labels:
            if label not in there:
                raise KeyError(f"{path!r} has no {label!r}; there are {there}")
        places = [i for i in places if there[i] in labels]
    return places, bool(asked) and not several and len(places) == 1
