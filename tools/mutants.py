"""Plant small bugs, one at a time, and print those that the tests do not notice.

    python tools/mutants.py --count 40 --seed 0 --jobs 2 [--only biloop/linear] [--minutes 9]

bugs.py says what is planted, trials.py how it is tried. What survives is printed as a diff: a test
is missing, or the change means nothing, which is for a person to say. Before the minutes are over
all is stopped, and what was not decided is printed as well. The exit status is the number of
survivors.
"""

import argparse
import ast
import difflib
import math
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

from bugs import Mutant, means_nothing, mutants
from trials import Case, Court, OutOfTime

LOOKS = re.compile("architecture|documents|docstrings|browser|mutants")  # tests of other things


def sample(files: list[Path], count: int, seed: int) -> list[Mutant]:
    """Each kind is as likely as any other, since there are many constants and few loops."""
    rng = random.Random(seed)
    kinds: dict[str, list[Mutant]] = {}
    for mutant in (m for file in files for m in mutants(file)):
        kinds.setdefault(mutant.kind, []).append(mutant)
    chosen = []
    while kinds and len(chosen) < count:
        kind = rng.choice(sorted(kinds))
        mutant = kinds[kind].pop(rng.randrange(len(kinds[kind])))
        if not means_nothing(mutant):
            chosen.append(mutant)
        if not kinds[kind]:
            del kinds[kind]
    return chosen


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

    def ranked(self, mutant: Mutant, seconds: Callable[[str], float]) -> list[str]:
        """The test files that speak of a change, the most telling per second first."""
        function = function_at(ast.parse(mutant.file.read_bytes()), mutant.line)
        names = [name for name in function.split(".") if name and not name.startswith("__")]

        def worth(path: Path) -> float:
            counts = [self.words[path][name] for name in names if self.words[path][name]]
            own = sum(1 + math.log(count) for count in counts)
            # test_step_sizes.py is about loops/step_size.py, test_cli.py about cli/compare.py
            about = 3 * (mutant.file.stem in path.stem) + (mutant.file.parent.stem in path.stem)
            told = own + self.score(path, mutant.file) + about * math.log(len(self.words))
            return told / (4 + seconds(path.relative_to(self.root).as_posix()))

        found = sorted((path for path in self.words if worth(path)), key=worth, reverse=True)
        return [path.relative_to(self.root).as_posix() for path in found]


def difference(mutant: Mutant) -> str:
    """The lines that changed."""
    old = mutant.file.read_text("utf-8").splitlines()
    lines = difflib.unified_diff(old, mutant.text.splitlines(), n=1, lineterm="")
    return "\n".join(f"    {line}" for line in list(lines)[3:])


def describe(case: Case, root: Path) -> str:
    """One line for a bug that was caught, and the bug itself for the others."""
    mutant = case.mutant
    where = f"{mutant.file.relative_to(root)}:{mutant.line} ({mutant.kind})"
    if case.caught:
        return f"{where}: caught by {case.caught}"
    return f"{where}: {'SURVIVED' if case.survived else 'undecided'}\n{difference(mutant)}"


def main(arguments: list[str] | None = None) -> int:
    """Sample, try, print; returns how many survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = {"count": 40, "seed": 0, "jobs": 1, "minutes": math.inf, "share": 30.0}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--only", default="", help="a file or folder, e.g. biloop/linear")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--package", default="biloop")
    parser.add_argument("--python", default=sys.executable, help="what runs the tests")
    o = parser.parse_args(arguments)
    begin = time.monotonic()
    root = o.root.resolve()
    place = root / (o.only or o.package)
    chosen = sample([place] if place.is_file() else sorted(place.rglob("*.py")), o.count, o.seed)
    relevance = Relevance(root, o.package)
    with tempfile.TemporaryDirectory() as folder:
        end = begin + 57 * min(o.minutes, 1e4)  # some seconds to tidy up
        court = Court(root, Path(folder), o.jobs, end, o.python)
        cases = [Case(m, first(relevance.ranked(m, court.weight), court, o.share)) for m in chosen]

        def tell(case: Case) -> None:
            done = sum(bool(case.caught) or case.survived for case in cases)
            clock = f"[{done}/{len(cases)}, {time.monotonic() - begin:.0f} s]"
            print(clock, describe(case, root), flush=True)

        try:
            court.try_each(cases, tell)
            left = [case for case in cases if not case.caught]
            print(f"{len(left)} are left, and planted together", flush=True)
            tests = [path.relative_to(root).as_posix() for path in relevance.words]
            court.try_together(left, tests, tell)
        except OutOfTime:
            print("The time is over.")
        print("Fail without a bug:", *(test for test, sound in court.sound.items() if not sound))
    caught = sum(bool(case.caught) for case in cases)
    survived = sum(case.survived for case in cases)
    for case in cases:
        if not (case.caught or case.survived):
            print(describe(case, root))
    print(f"{caught} of {len(cases)} were caught, {survived} survived,", end=" ")
    print(f"{len(cases) - caught - survived} undecided")
    return survived


def first(tests: list[str], court: Court, seconds: float) -> list[str]:
    """As many as fit into some seconds, one at least."""
    chosen: list[str] = []
    for test in tests:
        if chosen and sum(map(court.weight, [*chosen, test])) > seconds:
            break
        chosen.append(test)
    return chosen


if __name__ == "__main__":
    sys.exit(min(main(), 100))
