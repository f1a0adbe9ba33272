"""The process of one contender: a JSON object per line in, one out.

    {"do": "setup", "work": {…}}   → {"seconds": …}; or {"unsupported": true}, {"missing": "…"}
    {"do": "check", "count": 2}    → {"hypergradients": [[…], […]], "seconds": …}
    {"do": "run", "steps": 10}     → {"seconds": …}
    {"do": "floor", "work": {…}}   → {"unit": …, "how": "…"}
    {"do": "rates", "work": {…}}   → {"rates": {"reading X once": "…", …}}

Anything that goes wrong is answered with {"error": "…"}; the process ends with its input.
"""

import importlib
import json
import os
import sys
import time
from typing import Any

import numpy as np

from benchmarks.peers import floor
from benchmarks.peers.contenders import CONTENDERS
from benchmarks.peers.contenders.base import Contender, Unavailable, Unsupported
from benchmarks.peers.works import make, work_from_json


class Worker:
    """One contender, and the work that it was given last."""

    def __init__(self, name: str, device: str):
        self.name, self.device = name, device
        self.contender: Contender | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What a request asks for."""
        start = time.perf_counter()
        answer = getattr(self, f"_{request.pop('do')}")(**request)
        return {"seconds": time.perf_counter() - start} | answer

    def _setup(self, work: dict[str, Any]) -> dict[str, Any]:
        self.contender = None  # free the last work first
        entry = CONTENDERS[self.name]
        try:
            module = importlib.import_module(f"benchmarks.peers.contenders.{entry.module}")
            self.contender = module.prepare(make(work_from_json(work)), self.device)
        except Unsupported:
            return {"unsupported": True}
        except ImportError as error:
            return {"missing": f"not installed (no {error.name})" if error.name else str(error)}
        except Unavailable as error:
            return {"missing": str(error)}
        return {}

    def _check(self, count: int) -> dict[str, Any]:
        assert self.contender is not None
        found = self.contender.hypergradients(count)
        return {"hypergradients": [np.asarray(h, np.float64).ravel().tolist() for h in found]}

    def _run(self, steps: int) -> dict[str, Any]:
        assert self.contender is not None
        self.contender.run(steps)
        return {}

    def _floor(self, work: dict[str, Any]) -> dict[str, Any]:
        try:
            seconds, how = floor.unit(work_from_json(work), self.device)
        except Unavailable as error:
            return {"unit": None, "how": str(error)}
        return {"unit": seconds, "how": how}

    def _rates(self, work: dict[str, Any]) -> dict[str, Any]:
        return {"rates": floor.rates(work_from_json(work), self.device)}


def main(name: str, device: str) -> None:
    """Answer until the input ends."""
    # Libraries print; what they print must not get between the answers.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker(name, device)
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:  # a contender may fail in any way; the others go on
            answer = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
        replies.write(json.dumps(answer) + "\n")
        replies.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
