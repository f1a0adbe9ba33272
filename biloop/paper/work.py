"""Units of work that are done once: a run that was interrupted goes on after the last of them."""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import biloop
from biloop.run.trace import read_npz, write_npz

Arrays = Mapping[str, np.ndarray]


class Listener(Protocol):
    """Who wants to know what is going on."""

    def started(self, unit: str) -> None:
        """A unit of work begins."""

    def finished(self, unit: str, seconds: float, kept: bool) -> None:
        """It is done, or was there from before."""


class Silent:
    """A listener that says nothing."""

    def started(self, unit: str) -> None:
        """Nothing."""

    def finished(self, unit: str, seconds: float, kept: bool) -> None:
        """Nothing."""


SILENT = Silent()


class Work:
    """The units of one target, each in a file of its own once it is finished.

    A file is used again if the settings, this library and jax are those that made it.
    """

    def __init__(self, folder: Path, target: str, listener: Listener) -> None:
        self._folder = folder / "work"
        self._target = target
        self._listener = listener
        self.seconds = 0.0
        """What the units took when they were computed, now or before."""

    def unit(
        self, name: str, settings: Mapping[str, Any], compute: Callable[[], Arrays]
    ) -> dict[str, np.ndarray]:
        """The arrays that `compute` returns, from the folder if they are there."""
        meta = {
            "target": self._target,
            "unit": name,
            "settings": json.loads(json.dumps(settings)),
            "versions": {"biloop": biloop.__version__, "jax": version("jax")},
        }
        path = self._path(name, meta)
        found = _read(path, meta)
        said = f"{self._target}: {name}"
        if found is None:
            self._listener.started(said)
            began = time.perf_counter()
            arrays = {key: np.asarray(value) for key, value in compute().items()}
            seconds = time.perf_counter() - began
            self._folder.mkdir(parents=True, exist_ok=True)
            write_npz(path, arrays, meta | {"seconds": seconds})
        else:
            arrays, seconds = found
        self._listener.finished(said, seconds, found is not None)
        self.seconds += seconds
        return arrays

    def _path(self, name: str, meta: Mapping[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()[:12]
        words = re.sub(r"[^a-zA-Z0-9]+", "-", name).strip("-")
        return self._folder / f"{self._target}-{words}-{digest}.npz"


def _read(path: Path, meta: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], float] | None:
    try:
        arrays, found = read_npz(path)
    except FileNotFoundError:
        return None
    except ValueError:  # damaged: it is computed anew and replaced
        return None
    if {key: found.get(key) for key in meta} != dict(meta):
        return None
    return arrays, float(found["seconds"])


def write_text(path: Path, text: str) -> None:
    """Write a text so that `path` never holds anything but a complete file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
