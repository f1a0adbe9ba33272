"""The bugs that are planted: mistakes that people make, one in each.

What would not be a bug is not planted, by rules and not by hand: texts (strings, what is raised,
warned or printed, __repr__), types, pictures (draw…, *_plot.py, looks), what has a suite of its own
(torch.py), the order of arguments where it does not matter, the names and numbers of clocks and
caches, what a divisor is where another branch is taken, and what is the same program. Nor is what
raises at once: a test of None that is turned around, a required field left out, things of different
kinds exchanged.
"""

import ast
import copy
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

OPERATORS = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
NEXT = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
OPPOSITE = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
TWINS = [
    ("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("any", "all"), ("floor", "ceil"),
    ("zeros_like", "ones_like"), ("zeros", "ones"), ("logical_and", "logical_or"), ("sum", "mean"),
    ("cumsum", "cumprod"), ("real", "imag"),
]  # fmt: skip
TWIN = dict(TWINS) | {b: a for a, b in TWINS}
MAPS = {"sqrt", "abs", "square", "log", "exp", "negative", "reversed", "sorted", "stop_gradient"}
COMMUTE = {  # of their first two arguments, or told apart by their types
    "min", "max", "minimum", "maximum", "logical_and", "logical_or", "add", "multiply", "vdot",
    "dot", "hypot", "isinstance", "issubclass", "getattr", "hasattr", "setattr", "cast", "TypeVar",
    "namedtuple", "NamedTuple", "gcd", "allclose", "array_equal", "isclose", "print",
}  # fmt: skip
UNSEEN_FILES = re.compile(r"_plot\.py$|/looks\.py$|/progress\.py$|/torch\.py$")
TEXTS = {"__repr__", "__str__", "_repr_html_", "warn", "print", "write", "echo", "debug", "info"}
UNSEEN_NAMES = {  # arguments that change no result
    "stacklevel", "maxsize", "unroll", "encoding", "help", "metavar", "parents", "exist_ok",
    "flush", "errors", "indent", "linewidth", "timeout", "strict", "epilog", "justify", "no_wrap",
    "highlight", "end_section",
}  # fmt: skip
CLOCKS = re.compile(r"\b(sleep|monotonic|perf_counter|PATIENCE|INTERVAL|TIMEOUT)\b|version_info")


class Mutant(NamedTuple):
    """One change: a file, what kind of change, the line, and what stands for which bytes."""

    file: Path
    kind: str
    line: int
    first: int
    last: int
    new: bytes

    @property
    def text(self) -> str:
        """The whole file after it."""
        return planted(self.file.read_bytes(), [self]).decode()


def planted(source: bytes, mutants: Iterable[Mutant]) -> bytes:
    """A file with some changes, none inside another."""
    for mutant in sorted(mutants, key=lambda each: -each.first):
        source = source[: mutant.first] + mutant.new + source[mutant.last :]
    return source


def changed(node: ast.AST, **fields: object) -> ast.AST:
    """A copy with other fields."""
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def called(node: ast.AST) -> str:
    """The last name of what a call calls."""
    function = getattr(node, "func", None)
    return getattr(function, "attr", None) or getattr(function, "id", "")


def textual(node: ast.AST) -> bool:
    """Whether an expression is about text or paths, not numbers."""
    return any(
        isinstance(part, ast.JoinedStr)
        or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        or re.search("path|folder|text|name|home|root", getattr(part, "id", ""), re.IGNORECASE)
        for part in ast.walk(node)
    )


def kindred(node: ast.Call, first: ast.expr, second: ast.expr) -> bool:
    """Whether two arguments may be taken for each other: short letters, or names that end alike."""
    if called(node) in COMMUTE or textual(node) or ast.unparse(first) == ast.unparse(second):
        return False
    if not (isinstance(first, ast.Name) and isinstance(second, ast.Name)):
        return type(first) is type(second) and not isinstance(first, ast.Starred)
    short = max(len(first.id), len(second.id)) <= 3
    return short or first.id.rpartition("_")[2] == second.id.rpartition("_")[2]


def of_types(node: ast.BinOp) -> bool:
    """Whether A | B says which types, not which bits."""
    last = ast.unparse(node.right).rpartition(".")[2]
    return isinstance(node.op, ast.BitOr) and (last[:1].isupper() or last in {"ndarray", "float"})


def guards(tree: ast.AST) -> set[ast.AST]:
    """What where() puts in the place of a divisor, for a branch that is not taken."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(op=ast.Div(), right=ast.Call(args=[_, _, other]) as divisor):
                found |= set(ast.walk(other)) if called(divisor) == "where" else set()
    return found


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What may become of a node: the kind of the bug, and what stands in its place."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in NEXT:
            yield "boundary", changed(node, ops=[NEXT[type(operator)]()])
            yield "comparison", changed(node, ops=[OPPOSITE[type(operator)]()])
        case ast.Compare(ops=[operator]) if type(operator) in OPERATORS:
            yield "comparison", changed(node, ops=[OPERATORS[type(operator)]()])
        case ast.BinOp(op=operator) if type(operator) in OPERATORS:
            if textual(node) or of_types(node):
                return
            yield "sign", changed(node, op=OPERATORS[type(operator)]())
            yield "dropped term", node.left
        case ast.BinOp(op=ast.Pow(), left=left) if not isinstance(left, ast.Constant):
            yield "dropped term", left
        case ast.AugAssign(op=operator) if type(operator) in OPERATORS:
            yield "sign", changed(node, op=OPERATORS[type(operator)]())
        case ast.BoolOp(op=operator):
            yield "logic", changed(node, op=OPERATORS[type(operator)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "dropped sign", operand
        case ast.Constant(value=bool(value)):
            yield "logic", changed(node, value=not value)
        case ast.Constant(value=int(value)):
            yield "off by one", changed(node, value=value + 1)
        case ast.Constant(value=float(value)) if value:
            yield "factor", changed(node, value=2 * value)
        case ast.IfExp(body=first, orelse=second):
            yield "branch", changed(node, body=second, orelse=first)
        case ast.Attribute(attr=name, value=ast.Name(id="jnp" | "np" | "math")) if name in TWIN:
            yield "twin", changed(node, attr=TWIN[name])
        case ast.Name(id="min" | "max" | "any" | "all" as name, ctx=ast.Load()):
            yield "twin", changed(node, id=TWIN[name])
        case ast.Expr(value=ast.Call()) | ast.If(body=[ast.Raise() | ast.Return()], orelse=[]):
            yield "dropped", ast.Pass()
        case ast.Call(args=arguments):
            yield from changed_calls(node, arguments)


def changed_calls(node: ast.Call, arguments: list[ast.expr]) -> Iterator[tuple[str, ast.AST]]:
    """What may become of a call: a branch, an order, or an argument that is forgotten."""
    name = called(node)
    if name in MAPS and len(arguments) == 1 and not node.keywords:
        yield "dropped term", arguments[0]
    if name in {"where", "cond"} and len(arguments) >= 3:
        yes, no = arguments[1:3]
        yield "branch", changed(node, args=[arguments[0], no, yes, *arguments[3:]])
    elif len(arguments) >= 2 and kindred(node, *arguments[:2]):
        yield "arguments", changed(node, args=[arguments[1], arguments[0], *arguments[2:]])
    if name[:1].isupper():
        return  # a class: its fields are required
    for keyword in node.keywords:
        if keyword.arg and keyword.arg not in UNSEEN_NAMES:
            others = [other for other in node.keywords if other is not keyword]
            yield "ignored", changed(node, keywords=others)


def forgotten(function: ast.FunctionDef) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Steps of a function that may be forgotten: a variable that keeps its value from before,
    and an argument with a default that is taken for its default.
    """
    arguments = [*function.args.posonlyargs, *function.args.args]
    defaults = dict(
        zip((a.arg for a in arguments[::-1]), function.args.defaults[::-1], strict=False)
    )
    for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if default is not None:
            defaults[argument.arg] = default
    known = {a.arg for a in [*arguments, *function.args.kwonlyargs]}
    for part in visible(function):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id in defaults:
            yield "ignored", part, defaults[part.id]
        if isinstance(part, ast.Assign) and len(part.targets) == 1:
            names = {n.id for n in ast.walk(part.targets[0]) if isinstance(n, ast.Name)}
            if names and names <= known and function.name != "__init__":
                yield "not carried", part, ast.Pass()
            known |= names


def visible(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes whose change would be a bug (the beginning of this file says which)."""
    match node:
        case ast.JoinedStr() | ast.Raise() | ast.Import() | ast.ImportFrom() | ast.Assert():
            return
        case ast.If(test=test) if re.search("TYPE_CHECKING", ast.unparse(test)):
            return
        case ast.FunctionDef(name=name) if name in TEXTS:
            return
        case ast.ClassDef(bases=bases) if any("Protocol" in ast.unparse(b) for b in bases):
            return
        case ast.Call() if called(node) in TEXTS or called(node).startswith("draw"):
            return
        case ast.keyword(arg=name) if name in UNSEEN_NAMES:
            return
        case ast.Compare() | ast.Assign() if CLOCKS.search(ast.unparse(node)):
            return
        case ast.Call() if called(node) in {"sleep", "TypeVar", "cast", "field", "isinstance"}:
            return
    yield node
    for name, value in ast.iter_fields(node):
        if name not in {"annotation", "returns", "decorator_list", "type_params"}:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from visible(child)


def mutants(file: Path) -> Iterator[Mutant]:
    """Every change of a file, as the text with one node replaced where it stands."""
    if UNSEEN_FILES.search(file.as_posix()):
        return
    source = file.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    unseen = guards(tree)
    nodes = [node for node in visible(tree) if node not in unseen]
    places = [(kind, node, other) for node in nodes for kind, other in changes(node)]
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            places += forgotten(node)
    seen = set()
    for kind, node, other in places:
        first = starts[node.lineno - 1] + node.col_offset  # in bytes: so are the offsets
        last = starts[node.end_lineno - 1] + node.end_col_offset
        new = ast.unparse(other).encode()
        if isinstance(other, ast.expr) and not isinstance(other, ast.Constant | ast.Name):
            new = b"(" + new + b")"
        if (first, last, new) not in seen:
            seen.add((first, last, new))
            yield Mutant(file, kind, node.lineno, first, last, new)


def means_nothing(mutant: Mutant) -> bool:
    """Whether both texts are the same program, or the new one is none."""
    try:
        new = ast.parse(mutant.text)
    except SyntaxError:
        return True
    return ast.dump(new) == ast.dump(ast.parse(mutant.file.read_bytes()))
