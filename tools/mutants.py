"""Plant small bugs, one at a time, and print those that the tests do not notice.

    python tools/mutants.py --count 40 --seed 0 --jobs 2 [--only biloop/linear] [--minutes 9]

Each bug changes one expression or statement in a copy of the tree, and the test files that enter
the changed function run on it until one fails (trials.py says how). What survives is printed as a
diff: a test is missing, or the change means nothing, which is for a person to say. Before the
minutes are over all is stopped, and what was not decided is printed as well. The exit status is
the number of survivors.
"""

import argparse
import ast
import copy
import difflib
import math
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from trials import CRASH, NO_END, Case, Court, Known, Mutant, function_at

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

    def ranked(self, mutant: Mutant, known: dict[str, Known]) -> list[str]:
        """The test files that enter the changed function, the most telling per second first."""
        function = function_at(ast.parse(mutant.file.read_bytes()), mutant.line).rpartition(".")[2]

        def worth(test: str) -> float:
            path = self.root / test
            count = self.words[path][function]
            own = (1 + math.log(count)) * self.rarity(function) if count else 0.0
            return (0.1 + own + self.score(path, mutant.file)) / (4 + known[test].seconds)

        entering = [test for test in known if known[test].enters(mutant, self.root)]
        return sorted(entering, key=worth, reverse=True)


def difference(mutant: Mutant) -> str:
    """The lines that changed."""
    old = mutant.file.read_text("utf-8").splitlines()
    lines = difflib.unified_diff(old, mutant.text.splitlines(), n=1, lineterm="")
    return "\n".join(f"    {line}" for line in list(lines)[3:])


def describe(case: Case, root: Path) -> str:
    """One line for a bug, and what one needs to write the test that is missing."""
    mutant = case.mutant
    where = f"{mutant.file.relative_to(root)}:{mutant.line} ({mutant.kind})"
    if case.caught:
        return f"{where}: caught by {case.caught}"
    verdict = "SURVIVED" if case.decided else f"undecided, {len(case.left)} files left"
    after = f"after {' '.join(case.ran)}" if case.ran else "no test enters this function"
    after = after if case.ran or case.decided else "no file had the time to end"
    return f"{where}: {verdict}\n{difference(mutant)}\n    {after}"


def main(arguments: list[str] | None = None) -> int:
    """Sample, try, print; returns how many survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = {"count": 40, "seed": 0, "jobs": 1, "minutes": math.inf}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--files", type=int, help="how many test files a bug has to survive")
    parser.add_argument("--only", default="", help="a file or folder, e.g. biloop/linear")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--package", default="biloop")
    o = parser.parse_args(arguments)
    begin = time.monotonic()
    end = begin + 57 * min(o.minutes, 1e4)  # some seconds to tidy up
    root = o.root.resolve()
    place = root / (o.only or o.package)
    chosen = sample([place] if place.is_file() else sorted(place.rglob("*.py")), o.count, o.seed)
    relevance = Relevance(root, o.package)
    with tempfile.TemporaryDirectory() as folder:
        court = Court(root, o.package, Path(folder), o.jobs, end)
        known = court.survey([p.relative_to(root).as_posix() for p in relevance.words])
        if len(known) < len(relevance.words):
            sys.exit("The time was over before all test files had run: call again, to go on.")
        failed = [test for each in known.values() for test in each.failed]
        seconds = sum(each.seconds for each in known.values())
        print(f"{len(known)} test files, {seconds:.0f} s in all, surveyed after", end=" ")
        print(f"{time.monotonic() - begin:.0f} s; {len(failed)} tests fail without a bug:", end=" ")
        print(*failed[:5], "…" if len(failed) > 5 else "", flush=True)
        known = {t: each for t, each in known.items() if not {CRASH, NO_END} & set(each.failed)}
        cases = [Case(m, relevance.ranked(m, known)[: o.files]) for m in chosen]

        def tell(case: Case) -> None:
            done = sum(case.decided for case in cases)
            clock = f"[{done}/{len(cases)}, {time.monotonic() - begin:.0f} s]"
            print(clock, describe(case, root), flush=True)

        for case in cases:
            if case.decided:  # nothing enters it
                tell(case)
        court.try_all(cases, known, tell)
    for case in cases:
        if not case.decided:
            print(describe(case, root))
    caught = sum(bool(case.caught) for case in cases)
    survived = sum(case.decided and not case.caught for case in cases)
    print(f"{caught} of {len(cases)} were caught, {survived} survived,", end=" ")
    print(f"{len(cases) - caught - survived} undecided")
    return survived


if __name__ == "__main__":
    sys.exit(min(main(), 100))
