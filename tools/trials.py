"""Tests on copies of a tree with bugs in it: which run, in which order, until when.

First each bug is alone, with the test files that speak of it most for the time they take. Those
that are left are then planted together, and all files run once: what fails is halved until the bug
is found that makes it fail, which is taken out. So a bug survives only if no test of the whole
suite sees it. A test that fails without a bug as well catches nothing, and a test has an end by the
time that it computes, so that nothing depends on what else a machine is doing.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bugs import Mutant, planted

LEFT_OUT = (".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "out", "*.egg-info")
PYTEST = "-m pytest -q -rfE --no-header -p no:cacheprovider -p watch"
FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?: - |$)", re.MULTILINE)
LIMIT = 30, 3  # seconds for a process, and for each that its files need
UNKNOWN = 6.0  # seconds of a file that never ran
TOGETHER = 60.0  # seconds of files for which one process is started


class OutOfTime(Exception):
    """The time was over before a process ended."""


class Case:
    """One bug, the first test files for it, and what became of it."""

    def __init__(self, mutant: Mutant, tests: Sequence[str]):
        self.mutant, self.tests = mutant, list(tests)
        self.caught, self.survived = "", False


class Court:
    """Copies of a tree, one for each job; ends in time whatever is running."""

    def __init__(self, root: Path, folder: Path, jobs: int, end: float, python: str):
        self.root, self.folder, self.end, self.python = root, folder, end, python
        self.lock = threading.Lock()
        self.jobs = range(jobs)
        self.stamps = iter(range(10**9, 2 * 10**9))
        self.store = root / "out" / "seconds.json"  # of each test file, when it last ran
        known = self.store.read_text("utf-8") if self.store.exists() else "{}"
        self.seconds: dict[str, float] = json.loads(known)
        self.sound: dict[str, bool] = {}  # whether tests pass without a bug
        for job in self.jobs:
            shutil.copytree(root, self.tree(job), ignore=shutil.ignore_patterns(*LEFT_OUT))
        self.flags = self._flags()

    def tree(self, job: int) -> Path:
        return self.folder / f"copy{job}"

    def _flags(self) -> dict[str, str]:
        """What tests/conftest.py finds out about XLA, so that it is found out once."""
        code = "import os, tests.conftest; print(os.environ.get('XLA_FLAGS', ''))"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=self.tree(0), capture_output=True, text=True)
        return {} if done.returncode else {"XLA_FLAGS": done.stdout.strip()}

    def weight(self, test: str) -> float:
        return self.seconds.get(test, UNKNOWN)

    def try_each(self, cases: list[Case], tell: Callable[[Case], None]) -> None:
        """Each bug with its own test files, until one fails."""
        todo = iter(cases)

        def work(job: int) -> None:
            while (case := self._next(todo)) is not None:
                if case.tests:
                    case.caught = self._first_failure(job, [case.mutant], case.tests)
                if case.caught:
                    tell(case)

        self._parallel(work)

    def try_together(
        self, cases: list[Case], tests: list[str], tell: Callable[[Case], None]
    ) -> None:
        """All that are left at once, with all test files; what remains has survived."""
        rounds: list[list[Case]] = []
        for case in cases:  # one inside another is for another round
            apart = (each for each in rounds if all(_apart(case.mutant, c.mutant) for c in each))
            others = next(apart, None)
            if others is None:
                rounds.append(others := [])
            others.append(case)
        for group in rounds:
            todo = iter(self._portions(tests))

            def work(job: int, group: list[Case] = group, todo: Iterator[list[str]] = todo) -> None:
                while (portion := self._next(todo)) is not None:
                    self._find(job, group, portion, tell)

            self._parallel(work)
            for case in group:
                if not case.caught:
                    case.survived = True
                    tell(case)

    def _find(self, job: int, group: list[Case], tests: list[str], tell: Callable) -> None:
        """Which bugs of a group make test files fail."""
        while alive := [case for case in group if not case.caught]:
            failure = self._first_failure(job, [case.mutant for case in alive], tests)
            if not failure:
                return
            words = [failure] if "::" in failure else tests
            while len(alive) > 1:
                half = alive[: len(alive) // 2]
                fails = self._first_failure(job, [case.mutant for case in half], words)
                alive = half if fails else alive[len(half) :]
            if self._first_failure(job, [alive[0].mutant], words):
                with self.lock:
                    if not alive[0].caught:
                        alive[0].caught = failure
                        tell(alive[0])
            elif "::" in failure:
                self.sound[failure] = False  # only some together make it fail: it catches none
            else:
                return
            tests = tests[next((i for i, t in enumerate(tests) if failure.startswith(t)), 0) :]

    def _first_failure(self, job: int, mutants: list[Mutant], words: list[str]) -> str:
        """The first test that fails with bugs and not without, "" if there is none."""
        ignored = [test for test, sound in list(self.sound.items()) if not sound]
        with self._planted(job, mutants):
            failed = self._run(job, words, ignored)
        if not failed or failed in self.sound:
            return failed if self.sound.get(failed) else ""
        one = "::" in failed  # else all of them have no end, or crash
        self.sound[failed] = not self._run(job, [failed] if one else words, ignored)
        if one and not self.sound[failed]:
            return self._first_failure(job, mutants, words)
        return failed if self.sound[failed] else ""

    @contextmanager
    def _planted(self, job: int, mutants: list[Mutant]) -> Iterator[None]:
        files = {mutant.file: mutant.file.read_bytes() for mutant in mutants}

        def write(file: Path, text: bytes) -> None:
            target = self.tree(job) / file.relative_to(self.root)
            target.write_bytes(text)
            with self.lock:
                stamp = next(self.stamps)
            os.utime(target, (stamp, stamp))  # never that of bytecode which was cached

        for file, text in files.items():
            write(file, planted(text, [m for m in mutants if m.file == file]))
        try:
            yield
        finally:
            for file, text in files.items():
                write(file, text)

    def _run(self, job: int, words: list[str], ignored: list[str]) -> str:
        """Pytest in a copy of the tree: the first test that fails, or the files if all ended."""
        files = {word.partition("::")[0] for word in words}
        limit = LIMIT[0] + LIMIT[1] * int(sum(self.weight(file) for file in files))
        path = [str(self.tree(job)), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        report = self.folder / f"report{job}.json"
        report.unlink(missing_ok=True)
        environment = os.environ | self.flags | {
            "MUTANTS_REPORT": str(report), "MUTANTS_SECONDS": str(limit)
        }  # fmt: skip
        environment |= {"PYTHONPATH": os.pathsep.join(path).strip(os.pathsep)}
        if len(self.jobs) > 1 and hasattr(os, "sched_getaffinity"):
            cores = sorted(os.sched_getaffinity(0))
            environment |= {"MUTANTS_CORE": str(cores[job % len(cores)])}
        skipped = [word for test in ignored if "::" in test for word in ("--deselect", test)]
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                [self.python, *PYTEST.split(), "-x", *skipped, *words],
                cwd=self.tree(job),
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                # one that waits for ever computes nothing
                code = process.wait(max(0.0, min(5 * limit, self.end - time.monotonic())))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # and what it has started
                process.wait()
                if time.monotonic() >= self.end:
                    raise OutOfTime from None
                return f"{' '.join(sorted(files))} (no end)"
            output.seek(0)
            found = FAILURE.findall(output.read())
        if code == 0 and set(words) == files and report.exists():
            with self.lock:
                self.seconds |= json.loads(report.read_text("utf-8"))
                self.store.parent.mkdir(exist_ok=True)
                self.store.write_text(json.dumps(self.seconds, indent=0), "utf-8")
        if found:
            return found[0]
        return "" if code in {0, 5} else f"{' '.join(sorted(files))} (exit {code})"  # 5: none left

    def _portions(self, tests: list[str]) -> list[list[str]]:
        """Files for one process each, since starting it takes seconds."""
        portions: list[list[str]] = [[]]
        for test in sorted(tests, key=self.weight, reverse=True):
            if sum(map(self.weight, portions[-1])) + self.weight(test) > TOGETHER and portions[-1]:
                portions.append([])
            portions[-1].append(test)
        return [portion for portion in portions if portion]

    def _next(self, todo: Iterator):
        with self.lock:
            return next(todo, None)

    def _parallel(self, work: Callable[[int], None]) -> None:
        with ThreadPoolExecutor(len(self.jobs)) as pool:
            list(pool.map(work, self.jobs))  # raises what they raised


def _apart(one: Mutant, other: Mutant) -> bool:
    return one.file != other.file or one.last <= other.first or other.last <= one.first
