"""How long files and functions are, what they are called, and what stands at the top."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import parse, sources

FILE_LINES = {"biloop": 300, "tests": 400}
FUNCTION_LINES = 60  # what fits a screen: its body, without signature and docstring
TOP_ENTRIES = 24
BAD_NAMES = {"utils", "util", "helper", "common", "misc"}  # a helper lives beside its user


def long_files(root: Path) -> list[str]:
    found = []
    for folder, most in FILE_LINES.items():
        for path in sorted((root / folder).rglob("*.py")):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > most:
                found.append(f"{path.relative_to(root)} has {lines} lines, more than {most}")
    return found


def long_functions(root: Path) -> list[str]:
    found = []
    for path, tree in sources(root / "biloop"):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[ast.get_docstring(node) is not None :][:1]
                lines = node.end_lineno - first[0].lineno + 1 if first else 0
                if lines > FUNCTION_LINES:
                    found.append(
                        f"{path.relative_to(root)}:{node.lineno} {node.name}, {lines} lines"
                    )
    return found


def silent_files(root: Path) -> list[str]:
    """Files that do not say why they exist; an empty tests/__init__.py has nothing to say."""
    files = [file for folder in ("biloop", "tests", "tools") for file in sources(root / folder)]
    return [
        str(path.relative_to(root))
        for path, tree in files
        if tree.body and not ast.get_docstring(tree)
    ] + [str(path.relative_to(root)) for path, tree in sources(root / "biloop") if not tree.body]


def bad_names(root: Path) -> list[str]:
    paths = sorted((root / "biloop").rglob("*"))
    return [str(path.relative_to(root)) for path in paths if path.stem in BAD_NAMES]


def top_entries(root: Path) -> list[str]:
    """What one sees first on opening the package."""
    entries = (root / "biloop").iterdir()
    plain = (path.name for path in entries if not path.name.startswith("__"))
    return sorted(name for name in plain if name != "py.typed")


def hidden_modules(root: Path) -> list[str]:
    """Names that a package binds to something other than its module of that name.

    `from biloop.sweep.driver import sweep` in biloop/__init__.py makes biloop.sweep a function, and
    `import biloop.sweep.table` an AttributeError later on.
    """
    found = []
    for path in sorted((root / "biloop").rglob("__init__.py")):
        package = ".".join(path.parent.relative_to(root).parts)
        modules = {p.stem for p in path.parent.iterdir() if p.suffix == ".py" or p.is_dir()}
        bound = {name for node in parse(path).body for name in _bound(node, package)}
        found += [f"{package}.{name}" for name in sorted(bound & modules)]
    return found


def _bound(node: ast.stmt, package: str) -> Iterator[str]:
    """The names that a statement at the top of a package binds, but for its own modules."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ImportFrom(module=module, names=names, level=level):
            own = (module == package and level == 0) or (module is None and level == 1)
            for alias in names:
                name = alias.asname or alias.name
                if not (own and name == alias.name):
                    yield name
        case ast.Import(names=names):
            yield from (alias.asname for alias in names if alias.asname)
        case ast.Assign() | ast.AnnAssign():
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
        case ast.If(body=body, orelse=orelse) | ast.Try(body=body, orelse=orelse):
            yield from (name for inner in [*body, *orelse] for name in _bound(inner, package))
        case _:
            pass
