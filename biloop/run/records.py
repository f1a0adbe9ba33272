"""The records of runs that go on together, and all of them in one piece for a checkpoint."""

from collections.abc import Iterator

import jax
import numpy as np

from biloop.run.record import Record
from biloop.run.step import Row


class Records:
    """A record for each run."""

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
