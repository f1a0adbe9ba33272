"""Who differentiates: a derivative outside oracles.py is one that nobody counts.

A spelling is found by its last word, whatever stands before it: jax.grad, j.grad after
`import jax as j`, `from jax import grad as slope`, getattr(jax, "grad"), vars(jax)["grad"].
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import sources

DERIVATIVES = frozenset(
    [
        "grad",
        "value_and_grad",
        "vjp",
        "jvp",
        "linearize",
        "linear_transpose",
        "hessian",
        "jacobian",
        "jacfwd",
        "jacrev",
        "jet",
        "fwd_and_bwd",
        "saved_input_vjp",
        "minimize",
        "check_grads",
        "filter_grad",
        "filter_value_and_grad",
        "filter_vjp",
        "filter_jvp",
        "filter_linearize",
        "filter_hessian",
        "filter_jacfwd",
        "filter_jacrev",
        "hvp",
        "hessian_diag",
        "fisher_diag",
        "value_and_grad_from_state",
    ]
)

# Files that differentiate something other than a problem's functions, and by which names.
ALLOWED = {
    "methods/jacobian.py": {"linear_transpose"},  # a product that is linear already
    "methods/unroll.py": {"jvp", "vjp"},  # the steps of an inner solver
    "methods/unroll_bytes.py": {"vjp"},  # what those steps would store
}
BY_STRING = {"getattr", "attrgetter", "methodcaller"}
ORACLES = "oracles.py"


def derivatives(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and the name of each way to a derivative that a file mentions."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self")):
                pass  # the Hessian that a problem knows by its formula
            case ast.Attribute(attr=name) if name in DERIVATIVES:
                yield node.lineno, name
            case ast.ImportFrom(module=module, names=names):
                path = f"{module or ''}."
                for alias in names:
                    if alias.name in DERIVATIVES and not path.startswith("biloop."):
                        yield node.lineno, alias.name
                    if alias.name == "*" and path.split(".")[0] in {"jax", "equinox", "optax"}:
                        yield node.lineno, "*"
            case ast.Call(func=function, args=args) if _last(function) in BY_STRING:
                yield from ((node.lineno, name) for name in _strings(args))
            case ast.Subscript(value=ast.Call() | ast.Attribute(attr="__dict__"), slice=key):
                yield from ((node.lineno, name) for name in _strings([key]))


def uncounted(package: Path, allowed: dict[str, set[str]] = ALLOWED) -> list[str]:
    """Derivatives outside oracles.py that no allowance covers, and allowances nobody needs."""
    found, used = [], {(file, name) for file, names in allowed.items() for name in names}
    for path, tree in sources(package):
        file = path.relative_to(package).as_posix()
        if file == ORACLES:
            continue
        for line, name in derivatives(tree):
            used.discard((file, name))
            if name not in allowed.get(file, set()):
                found.append(f"{file}:{line} {name}")
    return found + [
        f"{file} is allowed {name}, which it does not use" for file, name in sorted(used)
    ]


def _last(function: ast.expr) -> str:
    return ast.unparse(function).rpartition(".")[2]


def _strings(nodes: list[ast.expr]) -> list[str]:
    constants = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return [value for value in constants if value in DERIVATIVES]
