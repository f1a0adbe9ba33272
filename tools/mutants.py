"""Plant small bugs, one at a time, and print those that the tests do not notice.

    python tools/mutants.py --count 40 --seed 0 --jobs 2 [--only biloop/linear] [--files 5]

Each bug changes one expression or statement in a copy of the tree. The test files that speak most
of the names in that module, or in those that import it, run until one fails. What survives is
printed as a diff: a test is missing, or the change means nothing. The exit status is their number.
"""

import argparse
import ast
import copy
import difflib
import math
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
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
        case ast.Name(id=name) if name in TWIN:
            yield "twin", swapped(id=TWIN[name])
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
        tests = [p for p in sorted(root.glob("tests/**/test_*.py")) if not LOOKS.search(str(p))]
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

    def likely(self, file: Path, most: int) -> list[str]:
        ranked = sorted(self.words, key=lambda test: -self.score(test, file))
        ranked = [test for test in ranked if self.score(test, file)] or ranked
        return [str(test.relative_to(self.root)) for test in ranked[:most]]


PYTEST = "-m pytest -x -q -rfE --no-header -p no:cacheprovider"


def first_failure(tree: Path, tests: list[str], broken: set[str], limit: float) -> str:
    """The test or file that fails first, "" if none does; what is broken anyway does not count."""
    skipped = [word for test in sorted(broken) for word in ("--deselect", test)]
    tests = [test for test in tests if test not in broken]
    try:
        done = subprocess.run(
            ["nice", sys.executable, *PYTEST.split(), *skipped, *tests],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {limit:.0f} s"
    if not tests or done.returncode in {0, 5}:  # 5: none was left
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?: - |$)", done.stdout, re.MULTILINE)
    return found[1] if found else "a crash"


class Court:
    """Copies of a tree in which mutants are tried, one in each at a time."""

    def __init__(self, root: Path, folder: Path, jobs: int, limit: float):
        self.root, self.clean, self.limit = root, folder / "clean", limit
        self.broken: set[str] = set()  # tests that fail without a bug have caught nothing
        self.free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for tree in [self.clean, *(folder / f"copy{job}" for job in range(jobs))]:
            shutil.copytree(root, tree, ignore=shutil.ignore_patterns(*LEFT_OUT))
            if tree != self.clean:
                self.free.put(tree)

    def who_catches(self, mutant: Mutant, tests: list[str]) -> str:
        tree = self.free.get()
        target = tree / mutant.file.relative_to(self.root)
        target.write_text(mutant.text, encoding="utf-8")
        try:
            while caught := first_failure(tree, tests, self.broken, self.limit):
                named = caught.startswith("tests")
                if not named or not first_failure(self.clean, [caught], set(), self.limit):
                    return caught
                self.broken.add(caught)
            return ""
        finally:
            shutil.copy(mutant.file, target)
            self.free.put(tree)


def difference(mutant: Mutant) -> str:
    """The lines that changed."""
    old = mutant.file.read_text("utf-8").splitlines()
    lines = difflib.unified_diff(old, mutant.text.splitlines(), n=1, lineterm="")
    return "\n".join(f"    {line}" for line in list(lines)[3:])


def main(arguments: list[str] | None = None) -> int:
    """Sample, try, print; returns how many survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in {"count": 40, "seed": 0, "jobs": 1, "files": 5, "limit": 600.0}.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--only", default="", help="a file or folder, e.g. biloop/linear")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--package", default="biloop")
    o = parser.parse_args(arguments)
    root = o.root.resolve()
    place = root / (o.only or o.package)
    chosen = sample([place] if place.is_file() else sorted(place.rglob("*.py")), o.count, o.seed)
    relevance = Relevance(root, o.package)
    tests = [relevance.likely(mutant.file, o.files) for mutant in chosen]
    survived = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(o.jobs) as pool:
        court = Court(root, Path(folder), o.jobs, o.limit)
        catches = pool.map(court.who_catches, chosen, tests)
        for mutant, ran, caught in zip(chosen, tests, catches, strict=True):
            where = f"{mutant.file.relative_to(root)}:{mutant.line} ({mutant.kind})"
            print(f"{where}: {'caught by ' + caught if caught else 'SURVIVED'}", flush=True)
            if not caught:
                survived += 1
                print(f"{difference(mutant)}\n    after {' '.join(ran)}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} were caught, {survived} survived")
    return survived


if __name__ == "__main__":
    sys.exit(min(main(), 100))
