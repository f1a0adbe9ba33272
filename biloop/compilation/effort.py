"""How hard XLA tries: less where a program is compiled for longer than it will ever run.

On a CPU XLA takes some 7 ms for each kernel of a program, and the loops of `auto` have hundreds. A
fifth of that will do for programs that run once, as those that look at the end of a run, and for
those on few numbers: with 1000 of them a step of 6 µs takes 10, which is made up for by what is
saved in compilation until 200 000 outer steps. Outer steps that find their own size are few and
large, and save more: with 16 000 numbers they take 1.3 times as long, made up for until 20 000 of
them. What a program is and is given says which it is: never a clock, and never the number of
steps, so that the bits of a run depend on neither. On a GPU programs
that run once are compiled without a search for the fastest kernels (2.2 → 1.9 times by hand for the
network of `benchmarks/device_memory.py --part compile`).
`BILOOP_QUICK_COMPILATION=0` in the environment has everything compiled with full effort.
"""

import functools
import os
from collections.abc import Sequence
from typing import Literal

import jax

from biloop.compilation.products import Target

SWITCH = "BILOOP_QUICK_COMPILATION"

Often = Literal["once", "briefly", "long"]
"""How often a program may run: once or twice, some tens of times, or without end."""

FEW: dict[Often, int] = {"once": 2**18, "briefly": 2**14, "long": 2**10}
"""Numbers in the arguments up to which a program is compiled with less effort."""

Option = tuple[str, int | bool]
_QUICK: dict[str, tuple[Option, ...]] = {
    "cpu": (
        ("xla_backend_optimization_level", 0),
        ("xla_cpu_use_fusion_emitters", False),
        ("xla_cpu_parallel_codegen_split_count", 1),
    ),
    "gpu": (("xla_backend_optimization_level", 0), ("xla_gpu_autotune_level", 0)),
}


def options(target: Target, arrays: Sequence, often: Often) -> tuple[Option, ...]:
    """What XLA is told for a program with these arguments; nothing for full effort."""
    if target.platform not in _QUICK or os.environ.get(SWITCH, "1") == "0":
        return ()
    small = _few(arrays, FEW[often]) if target.platform == "cpu" else often == "once"
    return _known(_QUICK[target.platform]) if small else ()


def _few(arrays: Sequence, most: int) -> bool:
    """Whether they have so many numbers in all; not all are looked at where they have not."""
    for array in arrays:
        most -= array.size
        if most < 0:
            return False
    return True


@functools.cache
def _known(wanted: tuple[Option, ...]) -> tuple[Option, ...]:
    """Those options that this version of XLA has: they come and go."""
    try:
        jax.jit(lambda: 0, compiler_options=dict(wanted)).lower().compile()
    except jax.errors.JaxRuntimeError:
        return () if len(wanted) == 1 else sum((_known((option,)) for option in wanted), ())
    return wanted
