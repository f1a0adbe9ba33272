"""The rows of runs on the host, with costs and times added up in Python numbers."""

from collections.abc import Iterable, Iterator

import jax
import numpy as np

from biloop.methods import Residuals
from biloop.oracles import Cost
from biloop.run.progress import Progress
from biloop.run.step import SAMPLES, Row, State
from biloop.run.trace import COLUMNS, Trace


class Record:
    """What a run did so far. `columns` has the names and the order of a trace.

    `sample_sizes` are the numbers of inner and outer samples where rows are drawn: then cost is in
    passes over them, made from exact counts of rows.
    """

    def __init__(self, sample_sizes: tuple[int, int] | None = None) -> None:
        self._sizes = sample_sizes
        self._names = COLUMNS if sample_sizes is None else (*COLUMNS, *SAMPLES)
        self._drawn = dict.fromkeys(SAMPLES, 0)
        self.rows = 0
        # Rows by which the run is not judged: on batches, or of a way that was left.
        self.aside: tuple[int, int] = (0, 0)
        self.cost = Cost(0, 0)
        self.seconds = 0.0
        self._chunks: list[dict[str, np.ndarray]] = []

    def restore(self, columns: dict[str, np.ndarray]) -> None:
        """Go on where a checkpoint ends."""
        self._know(columns)
        trace = Trace(columns)
        self._chunks = [columns]
        self.rows, self.cost = len(trace), trace.cost
        if self._sizes is not None and self.rows:
            self._drawn = {name: int(columns[name][-1]) for name in SAMPLES}
        self.seconds = float(trace["seconds"][-1]) if self.rows else 0.0

    def _know(self, names: Iterable[str]) -> None:
        """Have columns for the metrics of f as well."""
        self._names += tuple(name for name in names if name not in self._names)

    def add(self, k: int, rows: Row, count: int, elapsed: float) -> None:
        """Append the first `count` rows of a chunk that began at k and took `elapsed` seconds."""
        columns = rows._asdict()
        columns |= columns.pop("metrics")
        self._know(rows.metrics)
        # Copies: a view would keep the whole record of each chunk, however few its steps are.
        chunk = {name: _wide(np.array(column[:count])) for name, column in columns.items()}
        if self._sizes is None:
            for name, before in self.cost._asdict().items():
                chunk[name] = before + np.cumsum(chunk[name], dtype=np.int64)
        else:
            self._count_rows(chunk, *self._sizes)
        chunk["k"] = k + np.arange(count)
        chunk["seconds"] = self.seconds + elapsed * np.arange(1, count + 1) / max(count, 1)
        self._chunks.append({name: chunk[name] for name in self._names})
        self.rows += count
        self.seconds += elapsed
        if count:
            self.cost = Cost(chunk["gradients"][-1].item(), chunk["products"][-1].item())

    def _count_rows(self, chunk: dict[str, np.ndarray], n: int, m: int) -> None:
        """Rows so far, and the passes over the samples that they are."""
        for name, before in self._drawn.items():
            chunk[name] = before + np.cumsum(chunk[name], dtype=np.int64)
            if len(chunk[name]):
                self._drawn[name] = int(chunk[name][-1])
        chunk["gradients"] = chunk["inner_samples"] / n + chunk["outer_samples"] / m
        chunk["products"] = chunk["product_samples"] / n

    @property
    def on_batches(self) -> bool:
        """Whether the values are of batches, which say little each."""
        return self._sizes is not None

    def columns(self, since: int = 0) -> dict[str, np.ndarray]:
        """The rows from number `since` on, as columns."""
        parts, missing = [], self.rows - since
        while missing > 0:
            chunk = self._chunks[-1 - len(parts)]
            parts.append({name: column[-missing:] for name, column in chunk.items()})
            missing -= len(chunk["k"])
        if not parts and self._chunks:  # of the same types
            return {name: column[:0] for name, column in self._chunks[-1].items()}
        parts = parts[::-1] or [{name: np.zeros(0) for name in self._names}]
        if len(parts) == 1:
            return parts[0]
        columns = {n: np.concatenate([part[n] for part in parts]) for n in self._names}
        if since == 0:
            self._chunks = [columns]
        return columns

    def trace(self, label: str) -> Trace:
        """The rows for a reader: what is on batches is named so."""
        columns = self.columns()
        if self._sizes is not None:
            columns = {"batch_value" if n == "value" else n: c for n, c in columns.items()}
        return Trace(columns, label)

    def judged(self) -> dict[str, np.ndarray]:
        """The rows by which the run is judged, as columns."""
        begin, end = self.aside
        if begin == 0:
            return self.columns(end)
        return {name: np.delete(c, slice(begin, end)) for name, c in self.columns().items()}

    def first(self, name: str) -> float:
        """The oldest entry of a column by which the run is judged."""
        return float((self.judged() if any(self.aside) else self._chunks[0])[name][0])

    def last(self, name: str) -> float:
        """The newest entry of a column."""
        return float(self._chunks[-1][name][-1])

    def most(self, name: str) -> float:
        """The largest size of a finite entry of a column so far, 0 if there is none."""
        chunks = [self.judged()] if any(self.aside) else self._chunks
        each = (np.abs(chunk[name][np.isfinite(chunk[name])]) for chunk in chunks)
        return max((float(np.max(sizes, initial=0.0)) for sizes in each), default=0.0)

    def residuals(self) -> Residuals:
        """What the loops told in the last step; NaN before the first."""
        if not self.rows:
            return Residuals()
        return Residuals(self.last("inner_residual"), self.last("linear_residual"))

    def progress(self, k: int, steps: int, state: State) -> Progress:
        """Where the run is, for the progress line and callbacks."""
        return Progress(
            k,
            steps,
            state.x,
            state.method.y,
            self.last("value"),
            self.last("hypergradient_norm"),
            self.cost,
            self.seconds,
        )


class Records:
    """A record for each of the runs that go on together, in one piece for a checkpoint."""

    def __init__(self, runs: int, sample_sizes: tuple[int, int] | None = None) -> None:
        self._each = [Record(sample_sizes) for _ in range(runs)]
        self._pieces: list[tuple[int, int, int]] = []  # run, its first row, how many: in order

    def __getitem__(self, run: int) -> Record:
        return self._each[run]

    def __iter__(self) -> Iterator[Record]:
        return iter(self._each)

    def __len__(self) -> int:
        """The number of runs."""
        return len(self._each)

    def add(self, k: int, rows: Row, made: np.ndarray, elapsed: float) -> None:
        """Append the rows of a chunk, so many for each run; who ran shares its time."""
        running = [run for run in range(len(self)) if made[run]]
        for run in running:
            record, count = self._each[run], int(made[run])
            own = jax.tree.map(lambda c: c if c.ndim == 1 else c[:, run], rows)  # noqa: B023
            self._pieces.append((run, record.rows, count))
            record.add(k, own, count, elapsed / len(running))

    def columns(self, since: int = 0) -> dict[str, np.ndarray]:
        """The rows from number `since` on, in the order in which they were made, and their runs."""
        parts, total = [], sum(record.rows for record in self)
        for run, first, count in reversed(self._pieces):
            if total <= since:
                break
            wanted = min(count, total - since)
            own = self._each[run].columns(first + count - wanted)
            parts.append({name: column[:wanted] for name, column in own.items()})
            parts[-1]["lane"] = np.full(wanted, run)
            total -= count
        if not parts:
            parts = [self._each[0].columns(self._each[0].rows) | {"lane": np.zeros(0, int)}]
        parts = parts[::-1]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def restore(self, columns: dict[str, np.ndarray]) -> None:
        """Hand the rows of a checkpoint to their runs."""
        for run, record in enumerate(self):
            mine = columns["lane"] == run
            record.restore({name: columns[name][mine] for name in columns if name != "lane"})
        lanes, seen = columns["lane"].astype(int), [0] * len(self)
        for piece in np.split(lanes, np.flatnonzero(np.diff(lanes)) + 1):
            if len(piece):
                self._pieces.append((piece[0], seen[piece[0]], len(piece)))
                seen[piece[0]] += len(piece)


def _wide(column: np.ndarray) -> np.ndarray:
    """NumPy's files have no bfloat16; half precision is recorded as float32."""
    return column.astype(np.float32) if column.dtype.itemsize < 4 else column
