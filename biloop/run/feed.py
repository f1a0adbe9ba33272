"""Streams in a run: a chunk is given the problem on those of their batches that are at hand."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from biloop.loops.results import Status
from biloop.methods import Method
from biloop.problem import Problem, Stream
from biloop.problem.rows import Slice
from biloop.problem.stream import Window
from biloop.run.chunk import CAPACITY
from biloop.run.engine import Engine
from biloop.run.reader import Numbered, Reader, StreamFailed
from biloop.samples import All, Samples
from biloop.samples.estimators import Estimator

_GROUP = 256  # draws that are made at once
_NAMES = ("inner", "outer")


class Feed:
    """Hands a run the batches that its next steps read; without a stream it does nothing.

    `status` and `trouble` say why it could not go on.
    """

    def __init__(self, problem: Problem, method: Method) -> None:
        self._given, self._method = problem, method
        self._readers: dict[int, Reader] = {}
        self.status: Status | None = None
        self.trouble = ""
        self.problem = problem
        data: tuple[Any, Any] = (problem.inner_data, problem.outer_data)
        streams = {level: d for level, d in enumerate(data) if isinstance(d, Stream)}
        if not streams:
            return
        check_streams(problem, method, streams)
        assert method.sampled is not None
        wanted = method.reads(0, 0)
        assert wanted is not None
        try:
            for level, stream in streams.items():
                reading = _reading(stream, method.sampled, level)
                need = len(wanted[level])
                self._readers[level] = Reader(stream, reading, _NAMES[level], need)
                _check_size(self._readers[level], method.sampled, level)
            self.problem = self._windowed()
        except BaseException:
            self.__exit__()
            raise

    def refuse(self, measure: Any, checkpoint: Any, mesh: Any) -> None:
        """Refuse what needs all samples, or a stream that can be put back to where it was."""
        if not self._readers:
            return
        if measure is not None:
            raise ValueError(
                f"measure={measure} looks at all samples, and a stream has only a few at hand. "
                f"Watch a value on data of your own instead: watch=lambda x, y: …."
            )
        if mesh is not None:
            raise ValueError("The batches of a stream go to one device: x0 and y0 need no mesh.")
        for reader in self._readers.values():
            if checkpoint is not None and not reader.stream.can_be_resumed:
                raise ValueError(
                    f"A run on the {reader.name} stream could not be resumed from a checkpoint: an "
                    f"iterator cannot be put back to where it was. Give Stream a function of t "
                    f"that returns the batches from number t on."
                )

    def begin(self, engine: Engine) -> None:
        """Feed this engine from now on, wherever it is."""
        self._engine = engine

    def steps_until_due(self, k: int, steps: int) -> int:
        """How many outer steps there are batches for, having read on if there were none."""
        if not self._readers:
            return steps - k
        room = self._room(k)
        if room == 0:
            self._read_on(k)
            room = self._room(k)
        if room == 0:
            self._engine.stop = np.asarray(Status.STOPPED, np.int32)
            self._explain()
        return room

    def _room(self, k: int) -> int:
        """The outer steps from k on that read nothing but what is at hand."""
        draws, count = self._draws, 0
        while count < CAPACITY:
            wanted = self._method.reads(draws, k + count)
            assert wanted is not None
            for level, reader in self._readers.items():
                if wanted[level].start < reader.held.first or wanted[level].stop > reader.held.end:
                    return count
            draws, count = draws + len(wanted.inner), count + 1
        return count

    def _read_on(self, k: int) -> None:
        wanted = self._method.reads(self._draws, k)
        assert wanted is not None
        for level, reader in self._readers.items():
            reader.move(wanted[level].start, len(wanted[level]))
        self.problem = self._windowed()
        self._engine.shared = self._engine.shared._replace(problem=self.problem)

    def _explain(self) -> None:
        for reader in self._readers.values():
            if error := reader.failure():
                self.status, self.trouble = Status.STREAM_FAILED, f"{error}."
                return
        reader = min(self._readers.values(), key=lambda reader: reader.held.end)
        self.status = Status.STOPPED
        self.trouble = f"The {reader.name} stream ended after {reader.held.end} batches."

    def at_the_end(self) -> tuple[Problem, str]:
        """The problem on outer rows on which f can be looked at, and a word about that."""
        if 1 not in self._readers:
            return self.problem, ""
        reader = self._readers[1]
        count = len(reader.held.batches) * reader.rows
        word = f"The value is f on {count} rows of the outer stream, not on all of it."
        return self.problem.batch(None, Slice(0, count)), word

    def __enter__(self) -> "Feed":
        return self

    def __exit__(self, *_: object) -> None:
        """End all threads."""
        for reader in self._readers.values():
            reader.close()

    @property
    def _draws(self) -> int:
        return int(self._engine.state.method.draws)

    def _windowed(self) -> Problem:
        """The problem on what the readers hold."""
        data = [self._given.inner_data, self._given.outer_data]
        windows: list[Window | None] = [None, None]
        for level, reader in self._readers.items():
            held = reader.held
            numbers = [number for number, _ in held.batches]
            numbers += numbers[:1] * (reader.capacity - len(numbers))
            known = None if numbers[0] is None else jnp.asarray(numbers, jnp.int32)
            data[level] = held.arrays
            windows[level] = Window(
                jnp.asarray(held.first, jnp.int32), known, reader.rows, reader.stream.samples
            )
        return replace(
            self._given, inner_data=data[0], outer_data=data[1], windows=(windows[0], windows[1])
        )


def check_streams(problem: Problem, method: Method, streams: dict[int, Stream]) -> None:
    """Refuse methods that need more than the next batch."""
    name = type(method).__name__
    if method.sampled is None:
        raise TypeError(
            f"{name} sees all samples in every step, and a stream has only a few at hand. Use a "
            f"method that draws rows, such as bl.schemes.soba(batch=64)."
        )
    if method.reads(0, 0) is None:
        raise TypeError(
            f"{name} as given here draws rows in another order than one after the other, which a "
            f"stream cannot give: use SingleLoop without a linear loop, SampledAID or Penalty."
        )
    if problem.per_sample is not None:
        raise TypeError("per_sample needs all inner samples at hand, which a stream has not.")
    is_estimator = lambda node: isinstance(node, Estimator)  # noqa: E731
    for part in filter(is_estimator, jax.tree.leaves(method, is_leaf=is_estimator)):
        if part.needs_all:
            raise TypeError(f"{part} sees all rows now and then, which a stream has not at hand.")
        if part.needs_blocks and not all(stream.samples for stream in streams.values()):
            raise TypeError(
                f"{part} keeps a value for each block, so that the number of samples must be "
                f"known: use Stream.rows(X, …)."
            )


def _check_size(reader: Reader, samples: Samples, level: int) -> None:
    sampler = (samples.inner, samples.outer)[level]
    if isinstance(sampler, All):
        raise ValueError(
            f"A stream has not all rows at hand: give batch={reader.rows}, the rows of a batch of "
            f"the {reader.name} stream."
        )
    if (size := sampler.batch(reader.stream.samples)) != reader.rows:
        raise ValueError(
            f"The method draws {size} rows, but a batch of the {reader.name} stream has "
            f"{reader.rows}: give batch={reader.rows}, or other batches."
        )


def _reading(stream: Stream, samples: Samples, level: int) -> Callable[[int], Iterator[Numbered]]:
    """The batches of a stream from any number on: its own, or the rows that the method draws."""
    if not stream.arrays:
        return lambda t: ((None, batch) for batch in stream.batches(t))
    n = stream.samples
    (samples.inner, samples.outer)[level].check(n, f"{_NAMES[level]}_data")
    one = samples.numbered(level, n)

    @jax.jit
    def drawn(first: Any) -> Any:
        rows = jax.vmap(one)(first + jnp.arange(_GROUP, dtype=jnp.int32))
        return jax.vmap(lambda rows: (rows.numbered(n), rows.block))(rows)

    def reading(t: int) -> Iterator[Numbered]:
        while True:
            numbers, blocks = jax.device_get(drawn(jnp.asarray(t, jnp.int32)))
            for i in range(_GROUP):
                number = None if blocks is None else int(blocks[i])
                yield number, stream.read(numbers[i])
            t += _GROUP

    return reading


__all__ = ["Feed", "StreamFailed"]
