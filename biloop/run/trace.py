"""What a run recorded: one row per outer step, in columns; saved and loaded as npz."""

import os
from collections.abc import Iterator, KeysView
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from biloop.oracles import Cost
from biloop.run.files import read_npz, write_npz

if TYPE_CHECKING:
    import pandas

# value               f(x_k, y_k^N); batch_value where it is on the rows of a draw
# hypergradient_norm  ‖h_k‖
# inner_residual      ‖∇_y g‖ as the N-loop last saw it
# linear_residual     ‖Hv − b‖ as the Q-loop last saw it; NaN without a linear system
# gradients, products the cost so far, this step included; in passes where rows are drawn, and then
#                     inner_samples, outer_samples, product_samples have the rows
# seconds             time so far without compilation, interpolated within a compiled chunk
# result              the code of the step (biloop.loops.results.Status)
COLUMNS = (
    "k",
    "value",
    "hypergradient_norm",
    "inner_residual",
    "linear_residual",
    "gradients",
    "products",
    "seconds",
    "result",
)


@dataclass(frozen=True, eq=False)
class Trace:
    """The columns of a run, all of the same length: `trace["value"]`, `trace.to_pandas()`.

    `label` names the run in tables and figures.
    """

    columns: dict[str, np.ndarray]
    label: str = field(default="")

    def __post_init__(self) -> None:
        """Refuse columns of different lengths."""
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"The columns of a trace must have one length, got {lengths}.")

    def __getitem__(self, name: str) -> np.ndarray:
        """One column; an unknown name says which there are."""
        try:
            return self.columns[name]
        except KeyError:
            known = f"no column {name!r}; there are {', '.join(self.columns)}"
            sampled = " (f was seen on batches only)" if f"batch_{name}" in self.columns else ""
            raise KeyError(known + sampled) from None

    def __iter__(self) -> Iterator[str]:
        """The names of the columns, as of a data frame; `in` looks among them."""
        return iter(self.columns)

    def keys(self) -> KeysView[str]:
        """The same, so that `dict(trace)` has the columns."""
        return self.columns.keys()

    def __len__(self) -> int:
        """The number of outer steps that were recorded."""
        return len(next(iter(self.columns.values()), ()))

    def __repr__(self) -> str:
        """Name, length and columns, not the numbers."""
        return f"Trace({self.label!r}, rows={len(self)}, columns={list(self.columns)})"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        # For notebooks: nothing else here knows how a trace is presented.
        from biloop.report import notebook

        facts = {"rows": len(self), "columns": ", ".join(self.columns)}
        return notebook.summary(f"Trace {self.label}".strip(), facts, self.curves)

    @property
    def curves(self) -> dict[str, np.ndarray]:
        """The columns that say how a run went: f (or f on batches) and ‖h‖."""
        names = ("value", "batch_value", "hypergradient_norm")
        return {name: self.columns[name] for name in names if name in self.columns}

    @property
    def cost(self) -> Cost:
        """Gradients and products of the whole run."""
        if len(self) == 0:
            return Cost(0, 0)
        return Cost(self["gradients"][-1].item(), self["products"][-1].item())

    def to_pandas(self) -> "pandas.DataFrame":
        """The columns as a data frame with index k."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_pandas needs pandas: pip install pandas.") from None
        return pandas.DataFrame(dict(self.columns)).set_index("k")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the trace as npz; an old file is replaced only by a complete new one."""
        return write_npz(Path(path), self.columns, {"label": self.label})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Trace":
        """Read a trace that `save` wrote."""
        columns, meta = read_npz(Path(path))
        names = {name.removeprefix("batch_") for name in columns}
        if missing := set(COLUMNS) - names:
            raise ValueError(f"{path} is not a trace: it has no column {sorted(missing)[0]!r}.")
        for name, column in columns.items():
            if column.ndim != 1 or column.dtype.kind not in "iuf":
                raise ValueError(f"{path} is not a trace: its column {name!r} has no numbers.")
        if not isinstance(meta.get("label"), str):
            raise ValueError(f"{path} is not a trace: it has no label.")
        return cls(columns, meta["label"])
