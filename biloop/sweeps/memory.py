"""How many runs fit into memory side by side."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from jaxtyping import PyTree

_SHARE = 0.5  # of the memory that is free
_UNKNOWN = 2**32  # bytes, where the system does not tell


def lanes_that_fit(needs: Callable[[int], int], most: int) -> int:
    """The largest width up to `most` that needs at most half of the free memory.

    `needs(width)` is in bytes, and linear in the width but for a constant.
    """
    free = _SHARE * free_bytes()
    wide = needs(most)
    if wide <= free or most == 1:
        return most
    single = needs(1)
    each = max(1.0, (wide - single) / (most - 1))
    return int(min(most, max(1, 1 + (free - single) // each)))


def tree_bytes(tree: PyTree) -> int:
    """The size of all arrays of a tree, be they there or only planned."""
    return sum(_size(leaf) for leaf in jax.tree.leaves(tree))


def peak_bytes(jaxpr: Jaxpr) -> int:
    """The most that a program keeps at one time beside its arguments, line by line.

    What is compiled needs less: most intermediate values are never written to memory.
    """
    last_use: dict[Any, int] = {}
    for line, equation in enumerate(jaxpr.eqns):
        last_use |= dict.fromkeys(_variables(equation.invars), line)
    last_use |= dict.fromkeys(_variables(jaxpr.outvars), len(jaxpr.eqns))

    kept: dict[Any, int] = {}
    peak = 0
    for line, equation in enumerate(jaxpr.eqns):
        kept |= {variable: _size(variable.aval) for variable in equation.outvars}
        peak = max(peak, sum(kept.values()) + max(map(peak_bytes, _inside(equation)), default=0))
        kept = {v: size for v, size in kept.items() if last_use.get(v, line) > line}
    return peak


def free_bytes() -> int:
    """Memory that can still be had on the device that JAX uses by default."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats["bytes_in_use"]
    return min(_host_bytes(), _container_bytes())


def _host_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if "MemAvailable" in line)
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN


def _container_bytes() -> int:
    """What the limit of the control group leaves, where there is one."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text())
        return limit - int((group / "memory.current").read_text())
    except (OSError, ValueError):  # no control group, or "max": no limit
        return 2**62


def _inside(equation: JaxprEqn) -> Iterator[Jaxpr]:
    """The programs that an equation runs: the body of a loop, a function."""
    for parameter in jax.tree.leaves(
        tuple(equation.params.values()), is_leaf=lambda p: isinstance(p, ClosedJaxpr | Jaxpr)
    ):
        if isinstance(parameter, ClosedJaxpr):
            yield parameter.jaxpr
        elif isinstance(parameter, Jaxpr):
            yield parameter


def _variables(atoms: Sequence[Any]) -> list[Any]:
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _size(value: Any) -> int:
    return value.size * value.dtype.itemsize
