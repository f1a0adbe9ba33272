"""Where runs reach the target: ‖∇Φ‖² on their snapshots, measured where it has to be known."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from biloop.comparison.measure import Truth, is_small, measure
from biloop.comparison.race import Track
from biloop.comparison.target import Target
from biloop.problem import Problem


class Score(NamedTuple):
    """How good a run is, smallest first: its cost to the target; for those that miss it, how far Φ
    is above the target at the end, and ‖∇Φ‖² there.
    """

    cost: float
    excess: float
    end: float


class Sight:
    """What is known of a run: ‖∇Φ‖² and Φ at each snapshot, NaN where it was not (or in vain)."""

    def __init__(self, track: Track) -> None:
        self.track = track
        self.last = len(track.snapshots) - 1
        self.norm2 = np.full(self.last + 1, np.nan)
        self.value = np.full(self.last + 1, np.nan)
        self.looked = np.zeros(self.last + 1, bool)
        self.adjoint: PyTree = None  # as it was last measured: closer than that of the run

    def hit(self, target: Target) -> int | None:
        """The first snapshot from which on the run is at the target, as far as was looked.

        A run that comes by and leaves again has not arrived.
        """
        arrived = self._last_off(target) + 1
        on = np.flatnonzero(self.looked[arrived:])
        return arrived + int(on[0]) if len(on) else None

    def missing(self, target: Target) -> int | None:
        """Where to look next for that snapshot: None if it is known.

        At the end; then where the run's own ‖h‖² says, and beside it; then halfway.
        """
        if not self.looked[self.last]:
            return self.last
        hit, off = self.hit(target), self._last_off(target)
        if hit is None or hit - off == 1:
            return None
        guess = self._guess(target)
        near = min(max(guess, off + 1), hit - 1)
        return near if abs(near - guess) <= 1 else (off + hit) // 2

    def _guess(self, target: Target) -> int:
        """The snapshot from which on ‖h‖² is small enough, by what the run itself computed."""
        # The h of a row was computed at the x before it: the last x has none.
        own = self.track.trace["hypergradient_norm"][self.track.steps[:-1]]
        off = np.flatnonzero(~(own <= math.sqrt(target.norm2)))
        return int(off[-1]) + 1 if len(off) else 0

    def _last_off(self, target: Target) -> int:
        """The last snapshot that was looked at and is not at the target; −1 if there is none."""
        off = np.flatnonzero(self.looked & ~target.holds(self.norm2, self.value))
        return int(off[-1]) if len(off) else -1

    def score(self, target: Target) -> Score:
        """The score by what is known."""
        hit, end, value = self.hit(target), self.norm2[self.last], self.value[self.last]
        cost = math.inf if hit is None else float(self.track.cost[hit])
        if self.track.status.failed or math.isnan(end):
            return Score(cost, math.inf, math.inf)
        return Score(cost, max(0.0, float(value) - target.value), float(end))


class Judge:
    """Measures ∇Φ, some points at a time, always with one compiled program.

    `start` is ‖∇Φ‖² where runs begin and `finest` the smallest target there may be.
    """

    def __init__(self, problem: Problem, y: PyTree, start: float, finest: float) -> None:
        self.start = start
        # Points side by side wait for the slowest of them, which costs more than a call saves.
        self._cheap = is_small(y)
        self._width = 32 if self._cheap else 3
        self._problem = problem
        self._size = jnp.asarray(math.sqrt(start))
        self._level = jnp.asarray(math.sqrt(finest))

    def truth(self, x: PyTree, y: PyTree, v: PyTree) -> Truth:
        """∇Φ at the x along the leading axis, on the host."""
        points = len(jax.tree.leaves(x)[0])
        parts = [self._truth(x, y, v, i, points) for i in range(0, points, self._width)]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def _truth(self, x: PyTree, y: PyTree, v: PyTree, first: int, points: int) -> Truth:
        """At some of them; what is missing to the width is filled up with the last one."""
        chosen = np.minimum(np.arange(first, first + self._width), points - 1)
        x, y, v = jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], (x, y, v))
        found = measure(self._problem, x, y, v, self._size, self._level)
        return jax.tree.map(lambda leaf: leaf[: points - first], jax.device_get(found))

    def look(self, places: Iterable[tuple[Sight, int]]) -> None:
        """Measure these snapshots, those that are known excepted."""
        new = [(sight, j) for sight, j in places if not sight.looked[j]]
        for i in range(0, len(new), self._width):
            self._look(new[i : i + self._width])

    def look_along(self, sights: Sequence[Sight], points: int) -> None:
        """Measure about so many snapshots of each run, its start and its end among them."""
        places = {
            (sight, int(j))
            for sight in sights
            for j in np.linspace(0, sight.last, min(points, sight.last + 1)).round()
        }
        self.look(sorted(places, key=lambda place: place[1]))

    def find_hits(self, sights: Sequence[Sight], target: Target) -> None:
        """Measure what has to be known for the snapshot where each run arrives at the target.

        What was measured before decides in which interval it is, `Sight.missing` where to look
        there. Where measuring is cheap, all snapshots are looked at: a run may leave the target and
        come back.
        """
        if self._cheap:
            self.look((sight, j) for sight in sights for j in range(sight.last + 1))
        while wanted := [(s, j) for s in sights if (j := s.missing(target)) is not None]:
            self.look(wanted)

    def _look(self, places: Sequence[tuple[Sight, int]]) -> None:
        snapshots = [sight.track.snapshots[j] for sight, j in places]
        adjoints = [
            snapshot.v if sight.adjoint is None else sight.adjoint
            for (sight, _), snapshot in zip(places, snapshots, strict=True)
        ]
        columns = [s.x for s in snapshots], [s.y for s in snapshots], adjoints
        found = self.truth(*(jax.tree.map(lambda *a: np.stack(a), *trees) for trees in columns))
        for i, (sight, j) in enumerate(places):
            sight.norm2[j], sight.value[j] = found.norm2[i], found.value[i]
            sight.looked[j] = True
            if np.isfinite(found.norm2[i]):
                sight.adjoint = jax.tree.map(lambda leaf, i=i: leaf[i], found.v)


def host_norm(tree: PyTree) -> float:
    """‖·‖ by NumPy: for a few numbers nothing has to be compiled."""
    squares = [np.sum(np.square(leaf, dtype=float)) for leaf in jax.tree.leaves(tree)]
    return math.sqrt(sum(squares))
