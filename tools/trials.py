"""Tests on copies of a tree with one bug each: which files run, in which order, until when.

A survey runs each test file once without a bug and remembers (out/survey.json) how long it took,
what failed, and which functions it entered. A bug is then tried on the files that enter the
function it is in, the most telling per second first. Bugs on which little time was spent come
first, so that when time runs out each has had its share; a failure counts if the test fails again.
"""

import ast
import hashlib
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

LEFT_OUT = (".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "out", "*.egg-info")
PYTEST = "-m pytest -q -rfE --no-header -p no:cacheprovider -p watch"
NO_END, CRASH = "no end within the limit", "a crash"
FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?: - |$)", re.MULTILINE)


class Mutant(NamedTuple):
    """One change: a file, what kind of change, the line, and the whole text after it."""

    file: Path
    kind: str
    line: int
    text: str


class Known(NamedTuple):
    """What the survey knows of a test file: of which text, its time, failures and functions."""

    text: str
    seconds: float
    failed: list[str]
    functions: dict[str, list[str]]

    def enters(self, mutant: Mutant, root: Path) -> bool:
        """Whether the changed function is entered; outside of functions any one of the module."""
        names = set(self.functions.get(mutant.file.relative_to(root).as_posix(), ()))
        name = function_at(ast.parse(mutant.file.read_bytes()), mutant.line)
        return name in names if name else bool(names - {"<module>"})


class Outcome(NamedTuple):
    """The tests that failed, or what else went wrong; None if there was no time left."""

    failed: list[str] | None
    seconds: float


class Case:
    """One bug: the test files still to run, those that ran, what caught it, and the time spent."""

    def __init__(self, mutant: Mutant, tests: list[str]):
        self.mutant, self.left = mutant, tests
        self.ran: list[str] = []
        self.caught, self.running, self.spent = "", 0, 0.0

    @property
    def decided(self) -> bool:
        return bool(self.caught) or not (self.left or self.running)


def function_at(tree: ast.AST, line: int, above: str = "") -> str:
    """The dotted name of the innermost function around a line, "" outside of all."""
    for node in ast.iter_child_nodes(tree):
        if getattr(node, "lineno", line + 1) <= line <= getattr(node, "end_lineno", 0):
            named = isinstance(node, ast.ClassDef | ast.FunctionDef)
            name = f"{above}.{node.name}".strip(".") if named else above
            return function_at(node, line, name) or (
                name if isinstance(node, ast.FunctionDef) else ""
            )
    return ""


class Court:
    """Copies of a tree, one for each job and its core; ends in time whatever is running."""

    def __init__(self, root: Path, package: str, folder: Path, jobs: int, end: float):
        self.root, self.package, self.folder, self.end = root, package, folder, end
        self.lock = threading.Lock()
        self.jobs = range(jobs)
        self.stamps = iter(range(10**9, 2 * 10**9))
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

    def survey(self, tests: list[str]) -> dict[str, Known]:
        """Each test file without a bug; those that are known are not run again."""
        store = self.root / "out" / "survey.json"
        entries = json.loads(store.read_text("utf-8")) if store.exists() else {}
        known = {test: Known(*entry) for test, entry in entries.items()}
        package = b"".join(p.read_bytes() for p in sorted((self.root / self.package).rglob("*.py")))
        texts = {test: package + (self.root / test).read_bytes() for test in tests}
        sums = {test: hashlib.sha256(text).hexdigest() for test, text in texts.items()}
        # the longest first, so that none is left alone at the end
        todo = sorted(tests, key=lambda test: -known[test].seconds if test in known else -1e9)
        todo = iter([t for t in todo if t not in known or known[t].text != sums[t]])

        def run(job: int) -> None:
            while True:
                with self.lock:
                    test = next(todo, None)
                if test is None:
                    return
                report = self.folder / f"report{job}.json"
                report.unlink(missing_ok=True)
                found = self._run(job, [test], 600.0, report)
                if found.failed is None:
                    return
                functions = json.loads(report.read_text("utf-8")) if report.exists() else {}
                with self.lock:
                    known[test] = Known(sums[test], found.seconds, found.failed, functions)
                    store.parent.mkdir(exist_ok=True)
                    store.write_text(json.dumps(known), "utf-8")

        self._parallel(run)
        return {t: known[t] for t in tests if t in known and known[t].text == sums[t]}

    def try_all(self, cases: list[Case], known: dict[str, Known], tell: Callable) -> None:
        """Run the tests of all bugs, and tell of each when it is decided."""

        def run(job: int) -> None:
            while True:
                with self.lock:
                    open_ = [case for case in cases if case.left and not case.caught]
                    if not open_ or time.monotonic() > self.end:
                        return
                    case = min(open_, key=lambda case: case.spent)
                    test = case.left.pop(0)
                    case.spent += known[test].seconds
                    case.running += 1
                caught = self._trial(job, case.mutant, test, known[test])
                with self.lock:
                    case.running -= 1
                    if case.caught:
                        continue  # by another job, meanwhile
                    if caught is None:  # it had to stop: not decided
                        case.left.insert(0, test)
                        continue
                    case.caught = caught
                    case.ran += [] if caught else [test]
                    if case.decided:
                        tell(case)

        self._parallel(run)

    def _trial(self, job: int, mutant: Mutant, test: str, known: Known) -> str | None:
        """The first test of a file that fails twice with a bug, "" if none does."""
        ignored = list(known.failed)  # tests that fail without a bug have caught nothing
        with self._planted(job, mutant):
            while True:
                limit = 60 + 5 * known.seconds
                skipped = [word for each in ignored for word in ("--deselect", each)]
                found = self._run(job, ["-x", *skipped, test], limit)
                if found.failed is None:
                    return None
                if not found.failed or found.failed[0] in {NO_END, CRASH}:
                    return "".join(found.failed)
                again = self._run(job, [found.failed[0]], limit)
                if again.failed is None:
                    return None
                if again.failed:
                    return found.failed[0]
                ignored.append(found.failed[0])  # it depends on something else

    @contextmanager
    def _planted(self, job: int, mutant: Mutant) -> Iterator[None]:
        target = self.tree(job) / mutant.file.relative_to(self.root)
        for text in (mutant.text, mutant.file.read_text("utf-8")):
            target.write_text(text, encoding="utf-8")
            with self.lock:
                stamp = next(self.stamps)
            os.utime(target, (stamp, stamp))  # never that of bytecode which was cached
            if text is mutant.text:
                yield

    def _run(self, job: int, words: list[str], limit: float, report: Path | None = None) -> Outcome:
        """Pytest in a copy of the tree, on a core of its own."""
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
        path = [str(self.tree(job)), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | self.flags
        environment |= {"PYTHONPATH": os.pathsep.join(path).strip(os.pathsep)}
        environment |= {"MUTANTS_CORE": str(cores[job % len(cores)])}
        if report:
            environment |= {"MUTANTS_REPORT": str(report), "MUTANTS_WATCH": self.package}
        begin = time.monotonic()
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                [sys.executable, *PYTEST.split(), *words],
                cwd=self.tree(job),
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(max(0.0, min(limit, self.end - begin)))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # and what it has started
                process.wait()
                in_time = time.monotonic() < self.end
                return Outcome([NO_END] if in_time else None, time.monotonic() - begin)
            output.seek(0)
            failed = FAILURE.findall(output.read())
        failed = failed or ([] if code in {0, 5} else [CRASH])  # 5: no test was left
        return Outcome(failed, time.monotonic() - begin)

    def _parallel(self, run: Callable[[int], Any]) -> None:
        with ThreadPoolExecutor(len(self.jobs)) as pool:
            list(pool.map(run, self.jobs))  # raises what they raised
