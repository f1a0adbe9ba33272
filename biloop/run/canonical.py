"""One digest for one program: equal in every process and after every restart of Python.

A jaxpr says what is computed, whatever the code looks like: its equations are looked through one by
one, variables by their number and constants by their bits. Left out is what changes no number: the
names of functions, addresses in memory, and where arrays lie.
"""

import hashlib
import re
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.core
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from jax.sharding import AbstractMesh, Mesh, Sharding

from biloop.run.host_functions import is_plain, parts_of_function, parts_of_object

# Parameters of equations that say how or where, not what: names, layouts, and rules for
# derivatives, which have been taken where they matter.
_IGNORED = {"name", "donated_invars", "debug_info", "jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd"}
_IGNORED |= {"sharding", "out_sharding", "in_shardings", "out_shardings", "ctx_mesh"}
_IGNORED |= {"in_layouts", "out_layouts"}
_SILENT = {"debug_callback", "debug_print"}
_ADDRESS = re.compile(r"\bat 0x[0-9a-f]+|\b0x[0-9a-f]+\b")


class Digester:
    """digest = Digester(bits); digest(thing): equal for things that compute the same.

    `bits` gives the bytes that stand for an array.
    """

    def __init__(self, bits: Callable[[Any], bytes]) -> None:
        self._bits = bits
        # Holds what it has seen, or an address might be used again.
        self._seen: dict[int, tuple[Any, bytes]] = {}

    def __call__(self, thing: Any) -> bytes:
        """The digest of programs, arrays, functions, numbers, and containers of them."""
        if isinstance(thing, jax.Array | np.ndarray | np.generic):
            return _hash("array", self._bits(thing))
        if isinstance(thing, tuple | list):
            return _hash("sequence", *map(self, thing))
        if isinstance(thing, dict):
            items = sorted(thing.items(), key=lambda item: str(item[0]))
            return _hash("dictionary", *(self(part) for item in items for part in item))
        if isinstance(thing, set | frozenset):
            return _hash("set", *sorted(map(self, thing)))
        if isinstance(thing, ClosedJaxpr):
            # With jax 0.12 a program is its own open form.
            return _hash("program", self._once(thing.jaxpr, self._program), self(thing.consts))
        if isinstance(thing, Sharding | Mesh | AbstractMesh):
            return _hash("place")
        if isinstance(thing, Jaxpr):
            return self._once(thing, self._program)
        if isinstance(thing, types.CodeType):
            return self._once(thing, lambda code: self(_of_code(code)))
        if isinstance(thing, type | property | types.ModuleType):
            return self._once(thing, lambda known: self(parts_of_object(known)))
        if callable(thing):  # what JAX did not trace: a callback to the host
            return self._once(thing, lambda function: self(parts_of_function(function)))
        if is_plain(thing):
            return _hash(type(thing).__qualname__, _ADDRESS.sub("", repr(thing)))
        return self._once(thing, lambda known: self(parts_of_object(known)))

    def _once(self, thing: Any, digest: Callable[[Any], bytes]) -> bytes:
        """Programs are shared, and functions may refer to themselves."""
        if id(thing) not in self._seen:
            self._seen[id(thing)] = thing, _hash("itself")
            self._seen[id(thing)] = thing, digest(thing)
        return self._seen[id(thing)][1]

    def _program(self, jaxpr: Jaxpr) -> bytes:
        inputs = [*jaxpr.constvars, *jaxpr.invars]
        numbers: dict[Any, int] = {variable: n for n, variable in enumerate(inputs)}

        def atom(value: Any) -> bytes:
            if isinstance(value, Literal):
                return _hash("literal", _type(value), self(np.asarray(value.val)))
            return _hash("variable", str(numbers[value]))

        lines = [_type(variable) for variable in inputs]
        for equation in jaxpr.eqns:
            if equation.primitive.name in _SILENT:
                continue
            operands = [atom(value) for value in equation.invars]
            results = [_type(variable) for variable in equation.outvars]
            lines.append(_hash(*self._operation(equation), *operands, *results))
            for variable in equation.outvars:
                numbers[variable] = len(numbers)
        return _hash(str(len(jaxpr.constvars)), *lines, *map(atom, jaxpr.outvars))

    def _operation(self, equation: JaxprEqn) -> list[bytes]:
        params = {n: value for n, value in equation.params.items() if n not in _IGNORED}
        return [equation.primitive.name.encode(), self(params)]


def _of_code(code: types.CodeType) -> Any:
    return code.co_code, code.co_names, code.co_consts


def _type(atom: Any) -> bytes:
    """The shape and the dtype of a variable, without where it lies."""
    aval = atom.aval
    if isinstance(aval, jax.core.ShapedArray):
        return _hash(f"{aval.dtype}{list(aval.shape)}{aval.weak_type}")
    return _hash(type(aval).__qualname__)


def _hash(*parts: str | bytes) -> bytes:
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        hasher.update(len(content).to_bytes(8, "little"))
        hasher.update(content)
    return hasher.digest()
