"""The documents as programs: their code is run, and what they say it prints is compared.

In a document,
  a block ```python is run, after those before it, in one interpreter and a folder of its own;
  a block ```text directly below is what it prints: the same words, and numbers to their last digit,
    where from the third significant digit on the last may differ by one; … stands for anything, and
    times with a unit (0.03 s, 12 ms) are free;
  <!-- slow --> in the first lines says that it takes minutes;
  <!-- needs mnist --> in the first lines says that it wants data that may not be there.
"""

import ast
import difflib
import inspect
import json
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]

BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n?```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
NUMBER = r"\d+(?:,\d{3})*(?:\.\d*)?(?:e[-+]?\d+)?"
TOKEN = re.compile(rf"(…)|({NUMBER}\s?(?:s|ms|µs|ns|min|seconds?|minutes?)\b)|({NUMBER})|(\s+)")
PLACEHOLDER = re.compile(r"@@\w*|\b(?:TODO|FIXME|TBD|XXX)\b|\?\?\?|<[A-Z_]{3,}>|(?i:lorem ipsum)")


class Block(NamedTuple):
    """A piece of code, the line it begins on, and what it is said to print, if anything."""

    line: int
    code: str
    claim: str


def blocks(text: str) -> list[Block]:
    found = BLOCK.finditer(text)
    return [Block(text.count("\n", 0, m.start(1)) + 1, m[1], m[2] or "") for m in found]


def name(path: Path) -> str:
    """A document by its path; those that stand above all others by their name."""
    return path.relative_to(ROOT).as_posix().removeprefix("docs/")


def marks(text: str) -> set[str]:
    """The HTML comments of the first lines."""
    return set(re.findall(r"<!-- ([\w ]+) -->", "\n".join(text.splitlines()[:5])))


# --- running ------------------------------------------------------------------------------------


def _interpreter() -> None:
    """What the other interpreter does; of this file it has only the text of this function."""
    import contextlib
    import io
    import json
    import sys

    import __main__

    path, pieces = json.load(sys.stdin)
    printed = []
    for line, code in pieces:
        program = compile("\n" * (line - 1) + code, path, "exec")  # a traceback has its lines
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(program, vars(__main__))
        printed.append(out.getvalue())
    json.dump(printed, sys.__stdout__)


def run(path: Path, pieces: list[Block], folder: Path, limit: float = 300) -> list[str]:
    """What each block prints, with JAX as a user has it: none of the flags of these tests."""
    environment = {k: v for k, v in os.environ.items() if k not in {"XLA_FLAGS", "JAX_ENABLE_X64"}}
    done = subprocess.run(
        [sys.executable, "-c", inspect.getsource(_interpreter) + "\n_interpreter()"],
        input=json.dumps([str(path), [(b.line, b.code) for b in pieces]]),
        cwd=folder,
        env=environment | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        timeout=limit,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# --- comparing ----------------------------------------------------------------------------------


def difference(claim: str, output: str) -> str:
    """What a reader would see differ, or nothing. Text may be wrapped: whitespace is whitespace."""
    pattern, numbers = "", []
    for anything, time, number, space, other in _tokens(claim.strip()):
        if anything:
            pattern += ".*?"
        elif time:
            pattern += rf"{NUMBER}\s?\w+"
        elif number:
            pattern += f"({NUMBER})"
            numbers.append(number)
        else:
            pattern += r"\s+" if space else re.escape(other)
    matched = re.fullmatch(pattern, output.strip(), re.DOTALL)
    if matched is None:
        lines = difflib.ndiff(claim.split(), output.split())
        return "\n".join(line for line in lines if line[0] in "+-")
    pairs = zip(numbers, matched.groups(), strict=True)
    return "\n".join(f"says {said}, prints {got}" for said, got in pairs if not _agree(said, got))


def _tokens(text: str) -> Iterator[tuple[str, ...]]:
    place = 0
    for found in TOKEN.finditer(text):
        yield "", "", "", "", text[place : found.start()]
        yield *(group or "" for group in found.groups()), ""
        place = found.end()
    yield "", "", "", "", text[place:]


def _agree(said: str, got: str) -> bool:
    mantissa, _, exponent = said.replace(",", "").partition("e")
    digits = mantissa.replace(".", "").lstrip("0")
    decimals = len(mantissa.partition(".")[2])
    unit = 10.0 ** (int(exponent or 0) - decimals)
    slack = 1.01 * unit if decimals and len(digits) >= 3 else 0.01 * unit
    return abs(float(said.replace(",", "")) - float(got.replace(",", ""))) <= slack


# --- what is wrong without running --------------------------------------------------------------


def placeholders(text: str) -> list[str]:
    return [found[0] for found in PLACEHOLDER.finditer(text)]


def missing_files(text: str, folder: Path) -> list[str]:
    """Local links, files in backticks and programs of commands that are not there."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    command = r"^ {4}(?:\S+=\S+ )*python "
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", prose)
    paths = re.findall(r"`((?:biloop|tests|docs|examples|benchmarks|tools)/[\w./-]*)`", prose)
    paths += re.findall(command + r"(\S+/\S+\.py)", prose, re.MULTILINE)
    modules = re.findall(command + r"-m (benchmarks[\w.]*)", prose, re.MULTILINE)
    paths += [module.replace(".", "/") + ".py" for module in modules]
    missing = [link for link in links if not (folder / link).exists()]
    return missing + [path for path in paths if not (ROOT / path).exists()]


def missing_targets(text: str) -> list[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:`|^ {4})make ([a-z][a-z-]*)", text, re.MULTILINE))
    return sorted(t for t in targets if not re.search(rf"^{t}:", makefile, re.MULTILINE))


def wrong_calls(text: str, library: types.ModuleType) -> list[str]:
    """`bl.name` and `bl.name(arguments)` in a sentence that name nothing, or do not fit it."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"`bl(?:\.\w+)+`|\bbl(?:\.\w+)+\([^()]*\)", prose)
    errors = [
        (code.strip("`"), _error(code.strip("`").replace("…", "..."), library)) for code in found
    ]
    return [f"{code}: {error}" for code, error in errors if error]


def _error(code: str, library: types.ModuleType) -> str:
    expression = ast.parse(code, mode="eval").body
    called = expression.func if isinstance(expression, ast.Call) else expression
    try:
        thing = _resolve(library, ast.unparse(called))
        if isinstance(expression, ast.Call) and "..." not in code:
            keywords = {word.arg: None for word in expression.keywords if word.arg}
            inspect.signature(thing).bind(*expression.args, **keywords)
    except (AttributeError, TypeError) as error:
        return str(error)
    return ""


def _resolve(library: Any, name: str) -> Any:
    for part in name.split(".")[1:]:
        library = getattr(library, part)
    return library
