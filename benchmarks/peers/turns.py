"""Contenders in turns: each in its own process, only one of them computing at a time."""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from benchmarks.peers.contenders import CONTENDERS
from benchmarks.peers.machine import cores
from benchmarks.peers.reference import expected, relative_error
from benchmarks.peers.works import Work, make

ROOT = Path(__file__).parents[2]
TOLERANCE = {"full": 2e-5, "tf32": 2e-3}  # of a hypergradient in float32
CHECKED_STEPS = 2  # the second one sees what was carried over
SETTLE = 0.05  # seconds until the threads of the last worker have gone to sleep
Say = Callable[[str], None]


@dataclass(frozen=True)
class Pace:
    """How to measure: so many turns, each about so long or one outer step."""

    turns: int
    seconds: float
    precision: str = "full"  # of matrix products on a GPU, or tf32


@dataclass
class Result:
    """A contender's measurement of one work, or why there is none."""

    contender: str
    problem: str = ""
    error: float = math.nan  # of the hypergradients, relative
    compile_seconds: float = math.nan
    seconds: list[float] = field(default_factory=list)  # per outer step, one entry per turn

    @property
    def best(self) -> float:
        """The shortest turn."""
        return min(self.seconds, default=math.nan)

    @property
    def median(self) -> float:
        """Far above the best one where something else was running."""
        return float(np.median(self.seconds)) if self.seconds else math.nan


class Failed(Exception):
    """A contender could not go on; the sentence says why."""


class Worker:
    """A contender's process, to be asked one thing at a time."""

    def __init__(self, name: str, device: str, precision: str):
        self.name, self.trouble = name, ""
        self._log: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.peers.worker", name, device],
            cwd=ROOT,
            env=environment(device, precision),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """The answer, or {"error": …} also where the process has died."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line else {"error": f"the process ended: {self._last_words()}"}

    def close(self) -> None:
        """End the process by ending its input."""
        self._process.communicate()
        self._log.close()

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.wait()}"


def environment(device: str, precision: str) -> dict[str, str]:
    """All cores for everybody; on a GPU no reserved memory, and products in one precision."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(cores()))
    gpu = {
        "JAX_PLATFORMS": "cuda",
        "JAX_DEFAULT_MATMUL_PRECISION": {"full": "highest", "tf32": "tensorfloat32"}[precision],
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": {"full": "0", "tf32": "1"}[precision],
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    return os.environ | threads | (gpu if device == "gpu" else {"JAX_PLATFORMS": "cpu"})


def measure(work: Work, workers: Sequence[Worker], pace: Pace, say: Say) -> list[Result]:
    """Set up, check, then take turns. Those that fail are left out, with the reason."""
    results, ready = [], []
    truth = Truth(work)
    for worker in workers:
        answer = worker.ask("setup", work=work.as_json())
        if answer.get("unsupported"):
            continue
        result = Result(worker.name)
        results.append(result)
        try:
            if refusal := answer.get("missing") or answer.get("error"):
                raise Failed(refusal)
            ready.append((worker, result, _prepare(worker, result, truth, pace)))
        except Failed as why:
            _leave(result, why, say)

    for _ in range(pace.turns):
        for worker, result, steps in list(ready):
            time.sleep(SETTLE)
            try:
                result.seconds.append(_run(worker, steps) / steps)
            except Failed as why:
                _leave(result, why, say)
                ready.remove((worker, result, steps))
    return results


def _leave(result: Result, why: Failed, say: Say) -> None:
    """Without this contender, but not without the reason."""
    result.problem = str(why)
    say(f"  {CONTENDERS[result.contender].title}: {why}")


class Truth:
    """The hypergradients of a work, computed when they are first needed."""

    def __init__(self, work: Work):
        self.work, self._known = work, {}

    def of(self, contender: str) -> list[np.ndarray]:
        """Those that a contender must find."""
        warm = CONTENDERS[contender].warm_adjoint or self.work.method != "AID"
        if warm not in self._known:
            self._known[warm] = expected(make(self.work), CHECKED_STEPS, warm)
        return self._known[warm]


def _prepare(worker: Worker, result: Result, truth: Truth, pace: Pace) -> int:
    """Compile, check, and find how many steps make a turn of the wanted length."""
    first, took = _run(worker, 1), _run(worker, 1)
    result.compile_seconds = max(0.0, first - took)
    result.error = _error(worker, truth)
    if not result.error <= TOLERANCE[pace.precision]:
        raise Failed(f"computes something else: relative error {result.error:.1e}")
    steps = 1
    while took < 0.5 * pace.seconds:
        steps = max(2 * steps, min(10 * steps, int(steps * pace.seconds / max(took, 1e-9))))
        took = min(_run(worker, steps), _run(worker, steps))  # one may have been disturbed
    return steps


def _run(worker: Worker, steps: int) -> float:
    answer = worker.ask("run", steps=steps)
    if "error" in answer:
        raise Failed(answer["error"])
    return answer["seconds"]


def _error(worker: Worker, truth: Truth) -> float:
    """The largest relative error of the hypergradients that a contender shows."""
    answer = worker.ask("check", count=CHECKED_STEPS)
    if "error" in answer:
        raise Failed(answer["error"])
    found, wanted = answer["hypergradients"], truth.of(worker.name)
    if len(found) != len(wanted):
        raise Failed(f"gave {len(found)} hypergradients instead of {len(wanted)}")
    return max(map(relative_error, map(np.asarray, found), wanted))
