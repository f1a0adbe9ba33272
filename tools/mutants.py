"""Plant small bugs, one at a time, and print those that the tests do not notice.

    python tools/mutants.py --count 40 --seed 0 --jobs 2 [--only biloop/linear] [--minutes 9]

Each bug changes one expression or statement in a copy of the tree. The test files that speak most
of the names in that module, or in those that import it, run one after the other until one fails; it
is run again without the bug, which is caught only if it passes then. Which functions a file enters
is remembered in out/entered.json, so that those which do not enter the changed one are left out.
What survives is printed as a diff: a test is missing, or the change means nothing, which is for a
person to say. The exit status is their number.
"""

import argparse
import ast
import copy
import difflib
import hashlib
import json
import math
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

OPERATORS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or,
    ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
TWINS = [
    ("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("any", "all"), ("floor", "ceil"),
    ("zeros_like", "ones_like"), ("zeros", "ones"), ("logical_and", "logical_or"), ("sum", "mean"),
]  # fmt: skip
TWIN = dict(TWINS) | {b: a for a, b in TWINS}
LOOKS = re.compile("architecture|documents|browser|mutants")  # tests of other things than code
LEFT_OUT = (".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "out", "*.egg-info")


PYTEST = "-m pytest -q -rfE --no-header -p no:cacheprovider"
NO_END, CRASH = "no end within the limit", "a crash"
FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?: - |$)", re.MULTILINE)


def environment(tree: Path) -> dict[str, str]:
    """That of a process which finds the package in a tree before any other."""
    path = os.pathsep.join([str(tree), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    return os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


class Mutant(NamedTuple):
    """One change: a file, what kind of change, and the whole text after it."""

    file: Path
    kind: str
    line: int
    text: str


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What may become of a node: the kind of the bug, and what stands in its place."""

    def swapped(**fields: object) -> ast.AST:
        other = copy.copy(node)
        for name, value in fields.items():
            setattr(other, name, value)
        return other

    match node:
        case ast.Compare(ops=[operator]) if type(operator) in OPERATORS:
            yield "comparison", swapped(ops=[OPERATORS[type(operator)]()])
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in OPERATORS:
            yield "sign", swapped(op=OPERATORS[type(operator)]())
        case ast.BoolOp(op=operator):
            yield "logic", swapped(op=OPERATORS[type(operator)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "dropped sign", operand
        case ast.Constant(value=bool(value)):
            yield "logic", swapped(value=not value)
        case ast.Constant(value=int(value)):
            yield "off by one", swapped(value=value + 1)
        case ast.Constant(value=float(value)) if value:
            yield "factor", swapped(value=2 * value)
        case ast.Attribute(attr=name) if name in TWIN:
            yield "twin", swapped(attr=TWIN[name])
        case ast.Name(id=name, ctx=ast.Load()) if name in TWIN:
            yield "twin", swapped(id=TWIN[name])
        case ast.Call(func=ast.Name(id="isinstance")):
            pass  # with its arguments swapped it would raise at once
        case ast.Call(args=[first, second, *rest]) if ast.unparse(first) != ast.unparse(second):
            if not any(isinstance(argument, ast.Starred) for argument in node.args):
                yield "arguments", swapped(args=[second, first, *rest])
        case ast.Expr(value=ast.Call()) | ast.If(body=[ast.Raise() | ast.Return()], orelse=[]):
            yield "dropped", ast.Pass()


def visible(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that act when the program runs: no annotations, messages, or imports for types."""
    match node:
        case ast.JoinedStr() | ast.Raise() | ast.Import() | ast.ImportFrom():
            return
        case ast.If(test=test) if "TYPE_CHECKING" in ast.unparse(test):
            return
    yield node
    for name, value in ast.iter_fields(node):
        if name not in {"annotation", "returns", "decorator_list"}:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from visible(child)


def mutants(file: Path) -> Iterator[Mutant]:
    """Every change of a file, as the text with one node replaced where it stands."""
    source = file.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in visible(ast.parse(source)):
        for kind, other in changes(node):
            first = starts[node.lineno - 1] + node.col_offset  # in bytes: so are the offsets
            last = starts[node.end_lineno - 1] + node.end_col_offset
            new = ast.unparse(other).encode()
            if isinstance(other, ast.expr) and not isinstance(other, ast.Constant | ast.Name):
                new = b"(" + new + b")"
            yield Mutant(file, kind, node.lineno, (source[:first] + new + source[last:]).decode())


def sample(files: list[Path], count: int, seed: int) -> list[Mutant]:
    """Each kind is as likely as any other, since there are many constants and few loops."""
    rng = random.Random(seed)
    kinds: dict[str, list[Mutant]] = {}
    for mutant in (m for file in files for m in mutants(file)):
        kinds.setdefault(mutant.kind, []).append(mutant)
    chosen = []
    while kinds and len(chosen) < count:
        kind = rng.choice(sorted(kinds))
        chosen.append(kinds[kind].pop(rng.randrange(len(kinds[kind]))))
        if not kinds[kind]:
            del kinds[kind]
    return chosen


class Relevance:
    """How much a test file speaks of a module: rare names count more, and so do its importers."""

    def __init__(self, root: Path, package: str):
        tests = sorted(root.glob("tests/**/test_*.py"))
        tests = [p for p in tests if not LOOKS.search(p.relative_to(root).as_posix())]
        self.root = root
        self.words = {p: Counter(re.findall(r"\w+", p.read_text("utf-8"))) for p in tests}
        self.names: dict[Path, set[str]] = {}
        self.users: dict[Path, list[Path]] = {}
        for path in sorted((root / package).rglob("*.py")):
            tree = ast.parse(path.read_bytes())
            names = {getattr(node, "name", "") for node in tree.body} | {path.stem}
            self.names[path] = names - {"", "__init__"}
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package):
                    place = root.joinpath(*(node.module or "").split("."))
                    for other in [place, *(place / alias.name for alias in node.names)]:
                        self.users.setdefault(other.with_suffix(".py"), []).append(path)
                        self.users.setdefault(other / "__init__.py", []).append(path)

    def rarity(self, name: str) -> float:
        return math.log(1 + len(self.words) / sum(name in words for words in self.words.values()))

    @cache  # noqa: B019
    def score(self, test: Path, file: Path, depth: int = 3) -> float:
        spoken = [name for name in self.names[file] if name in self.words[test]]
        own = sum((1 + math.log(self.words[test][name])) * self.rarity(name) for name in spoken)
        users = [user for user in self.users.get(file, []) if depth and user != file]
        return own + 0.4 * sum(self.score(test, u, depth - 1) for u in users) / (len(users) or 1)

    def ranked(self, file: Path) -> list[str]:
        """The test files, those that speak most of it first."""
        ranked = sorted(self.words, key=lambda test: -self.score(test, file))
        return [test.relative_to(self.root).as_posix() for test in ranked]


class Entered:
    """Which functions of the package each test file enters, itself or by what it calls.

    Known of those that have run, until they change: out/entered.json.
    """

    def __init__(self, root: Path, package: str):
        self.root, self.package = root, package
        self._store, self._lock = root / "out" / "entered.json", threading.Lock()
        self._known = json.loads(self._store.read_text("utf-8")) if self._store.exists() else {}

    def by(self, test: str, mutant: Mutant) -> bool | None:
        """Whether it enters the function that is changed, None if that is not known.

        Outside of functions it is any one of the module.
        """
        known = self._known.get(test, {})
        if known.get("text") != self._checksum(test):
            return None
        file = mutant.file.relative_to(self.root).as_posix()
        name = function_at(ast.parse(mutant.file.read_bytes()), mutant.line)
        names = set(known["functions"].get(file, ())) - {""}
        return name in names if name else bool(names)

    def record(self, test: str, report: Path) -> None:
        """From what coverage has written of a test file that ran alone.

        In one process with others it would use what they have compiled.
        """
        files = json.loads(report.read_text("utf-8"))["files"] if report.exists() else {}
        functions = {
            file: [name for name, lines in found["functions"].items() if lines["executed_lines"]]
            for file, found in files.items()
        }
        with self._lock:
            self._known[test] = {"text": self._checksum(test), "functions": functions}
            self._store.parent.mkdir(exist_ok=True)
            self._store.write_text(json.dumps(self._known), "utf-8")

    def _checksum(self, test: str) -> str:
        return hashlib.sha256((self.root / test).read_bytes()).hexdigest()


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


class Trial(NamedTuple):
    """What fails first in a test file, "" if nothing does, and the files that ran before it."""

    caught: str
    ran: list[str]


class Court:
    """Copies of a tree in which mutants are tried, one in each at a time."""

    def __init__(self, entered: Entered, folder: Path, jobs: int, limit: float):
        self.entered, self.root, self.limit = entered, entered.root, limit
        self.clean = folder / "clean"
        self.broken: set[str] = set()  # tests that fail without a bug have caught nothing
        self.free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for tree in [self.clean, *(folder / f"copy{job}" for job in range(jobs))]:
            shutil.copytree(self.root, tree, ignore=shutil.ignore_patterns(*LEFT_OUT))
            if tree != self.clean:
                self.free.put(tree)

    def trial(self, mutant: Mutant, ranked: list[str], most: int) -> Trial | None:
        """Test files that enter the changed function, one after the other until one fails.

        So many at most, and no more than that in vain; None where nobody can say what is to blame.
        """
        tree = self.free.get()
        target = tree / mutant.file.relative_to(self.root)
        target.write_text(mutant.text, encoding="utf-8")
        ran, in_vain = [], 0
        try:
            for test in ranked:
                if self.entered.by(test, mutant) is False:
                    continue
                if len(ran) == most or in_vain == most:
                    break
                caught = self._first_failure(tree, test, self.broken)
                while caught and self._fails_anyway(test, caught):
                    if caught in {NO_END, CRASH}:
                        return None
                    self.broken.add(caught)
                    caught = self._first_failure(tree, test, self.broken)
                if caught:
                    return Trial(caught, ran)
                enters = self.entered.by(test, mutant) is not False
                ran, in_vain = [*ran, test] if enters else ran, in_vain + (not enters)
            return Trial("", ran)
        finally:
            shutil.copy(self.clean / mutant.file.relative_to(self.root), target)
            self.free.put(tree)

    def _fails_anyway(self, test: str, caught: str) -> bool:
        """Whether a test fails without the bug as well."""
        alone = test if caught in {NO_END, CRASH} else caught
        return bool(self._first_failure(self.clean, alone, set()))

    def _first_failure(self, tree: Path, test: str, broken: set[str]) -> str:
        """The test that fails first, "" if none does; what is broken anyway does not count.

        What a whole file enters is recorded if it passes: then a bug has not led it elsewhere.
        """
        if test in broken:
            return ""
        skipped = [word for each in sorted(broken) for word in ("--deselect", each)]
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            watched = ["-p", "pytest_cov", f"--cov={self.entered.package}"]
            watched = [*watched, f"--cov-report=json:{report}"] if "::" not in test else []
            try:
                done = subprocess.run(
                    [sys.executable, *PYTEST.split(), "-x", *watched, *skipped, test],
                    cwd=tree,
                    env=environment(tree) | {"COVERAGE_FILE": f"{folder}/data"},
                    capture_output=True,
                    text=True,
                    timeout=self.limit,
                )
            except subprocess.TimeoutExpired:
                return NO_END
            if done.returncode not in {0, 5}:  # 5: none was left
                found = FAILURE.search(done.stdout)
                return found[1] if found else CRASH
            if watched:
                self.entered.record(test, report)
            return ""


def difference(mutant: Mutant) -> str:
    """The lines that changed."""
    old = mutant.file.read_text("utf-8").splitlines()
    lines = difflib.unified_diff(old, mutant.text.splitlines(), n=1, lineterm="")
    return "\n".join(f"    {line}" for line in list(lines)[3:])


def report(mutant: Mutant, root: Path, trial: Trial) -> None:
    """One line for a bug, and what one needs to write the test that is missing."""
    where = f"{mutant.file.relative_to(root)}:{mutant.line} ({mutant.kind})"
    print(f"{where}: {'caught by ' + trial.caught if trial.caught else 'SURVIVED'}", flush=True)
    if not trial.caught:
        after = f"after {' '.join(trial.ran)}" if trial.ran else "no test enters this function"
        print(f"{difference(mutant)}\n    {after}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Sample, try, print; returns how many survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = {"count": 40, "seed": 0, "jobs": 1, "files": 8, "limit": 600.0, "minutes": math.inf}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--only", default="", help="a file or folder, e.g. biloop/linear")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--package", default="biloop")
    o = parser.parse_args(arguments)
    end = time.monotonic() + 60 * o.minutes  # no other bug is planted after it
    root = o.root.resolve()
    place = root / (o.only or o.package)
    chosen = sample([place] if place.is_file() else sorted(place.rglob("*.py")), o.count, o.seed)
    relevance = Relevance(root, o.package)
    results = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(o.jobs) as pool:
        court = Court(Entered(root, o.package), Path(folder), o.jobs, o.limit)

        def trial(mutant: Mutant) -> Trial | None:
            ranked = relevance.ranked(mutant.file)
            return court.trial(mutant, ranked, o.files) if time.monotonic() < end else None

        for mutant, found in zip(chosen, pool.map(trial, chosen), strict=True):
            if found is not None:
                report(mutant, root, found)
                results.append(found.caught)
    survived = results.count("")
    print(f"{len(results) - survived} of {len(results)} were caught, {survived} survived")
    return survived


if __name__ == "__main__":
    sys.exit(min(main(), 100))
